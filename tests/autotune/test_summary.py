import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.records import Source, TrialState
from autotune.settings import parse_bytes
from autotune.summary import (
    data_bound_text,
    data_bound_warning,
    nothing_fits,
    short_reason,
    shown_bytes,
    tally,
    trial_state,
)
from tests.factories import (
    GIB,
    MIB,
    make_config,
    make_measurement,
    make_oom,
    make_timing,
    make_told,
    make_trial,
)
from trials.measurement import Failure, Measurement, Outcome, Where


def failed(number, reason="ValueError: shapes differ", outcome=Outcome.INVALID, **failure):
    why = Failure(reason=reason, phase="warm_up", **failure)
    return make_told(number, Measurement(outcome=outcome, failure=why))


def out_of_memory(number, attempted_bytes, where=Where.DEVICE, **override):
    why = Failure(
        reason="out of memory", phase="warm_up", where=where, attempted_bytes=attempted_bytes
    )
    return make_told(number, Measurement(outcome=Outcome.OUT_OF_MEMORY, failure=why), **override)


def test_the_tally_counts_outcomes_the_most_frequent_first():
    trials = [failed(0), out_of_memory(1, GIB), out_of_memory(2, GIB), make_told(3)]
    assert tally(trials) == "2 out of memory, 1 invalid, 1 completed"


def test_trials_without_an_outcome_are_not_counted():
    assert tally([make_told(0, outcome=None)]) == ""


def test_the_nearest_config_is_named_with_what_it_misses_and_what_would_help():
    nearest = make_config(micro_batch_size=1)
    trials = [out_of_memory(0, 9 * GIB), out_of_memory(1, 5 * GIB, config=nearest)]
    message = nothing_fits(trials, 4 * GIB)
    assert message.startswith("no trial completed within 4 GiB (2 out of memory); nearest")
    assert f"trial 1 ({nearest}), short of at least 1 GiB" in message
    assert "give --memory-budget 5.1GiB or more" in message
    assert "smaller micro-batches and more checkpointing" in message


def test_an_allocation_below_what_was_left_says_what_is_known():
    message = nothing_fits([out_of_memory(0, 600 * MIB + 1)], 600 * MIB)
    assert "whose last allocation failed though it was smaller than what the budget" in message
    assert "by how much it misses is not known; give --memory-budget 670MiB or more" in message


@pytest.mark.parametrize(
    ("budget", "missing", "words"),
    [
        (10 * MIB, 12 * 1024, "short of at least 12 KiB; give --memory-budget 11MiB or more"),
        (12 * MIB, 3 * MIB, "short of at least 3 MiB; give --memory-budget 16MiB or more"),
        (600 * MIB, 512 * MIB, "short of at least 512 MiB; give --memory-budget 1.1GiB or more"),
        (70 * GIB, 33 * GIB, "short of at least 33 GiB; give --memory-budget 110GiB or more"),
    ],
)
def test_a_shortage_has_a_unit_of_its_size_and_the_hint_two_digits(budget, missing, words):
    assert words in nothing_fits([out_of_memory(0, budget + missing)], budget)


@given(st.integers(MIB, 2**45), st.integers(1, 2**45))
def test_the_suggested_budget_is_one_and_is_larger(budget, missing):
    message = nothing_fits([out_of_memory(0, budget + missing)], budget)
    suggested = parse_bytes(re.search(r"--memory-budget (\S+) or more", message)[1])
    assert budget + missing < suggested <= 1.2 * (budget + missing) + 2


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (12 * 1024, "12 KiB"),
        (310 * MIB, "310 MiB"),
        (1000 * MIB, "0.977 GiB"),
        (80 * GIB, "80 GiB"),
        (5000 * GIB, "4.88 TiB"),
    ],
)
def test_bytes_are_shown_in_three_digits(size, text):
    assert shown_bytes(size) == text


PREDICTED = make_told(
    3,
    outcome=Outcome.OUT_OF_MEMORY,
    source=Source.PREDICTED,
    measurement=None,
    reason="not run: trial 7 (fp32, batch 8x1) ran out of memory, and this is at least as large",
)


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (make_told(0), ""),
        (
            make_told(0, state=TrialState.MEASURED),
            "not scored: its quality is still to be measured",
        ),
        (make_told(0, make_oom()), "out of memory in warm-up, needs at least 900 MiB"),
        (out_of_memory(0, None, Where.HOST), "out of host memory in warm-up"),
        (out_of_memory(0, None), "out of memory in warm-up"),
        (PREDICTED, "predicted: larger than trial 7 that ran out of memory"),
        (
            replace(PREDICTED, reason="too large"),
            "predicted: larger than a smaller config that ran out of memory",
        ),
        (failed(0), "cannot train, fails in warm-up: ValueError: shapes differ"),
        (failed(0, "the loss is nan", Outcome.DIVERGED), "diverged in warm-up: the loss is nan"),
        (failed(0, "killed\nmore", Outcome.CRASHED), "process broke in warm-up: killed"),
        (failed(0, "not done after 9 s", Outcome.TIMED_OUT), "not done after 9 s"),
        (make_trial(0, state=TrialState.LOST, reason="slot 3 died"), "slot 3 died"),
    ],
)
def test_every_outcome_has_a_short_reason_in_words(trial, words):
    assert short_reason(trial) == words


def test_a_long_reason_is_cut_between_words():
    found = short_reason(failed(0, "many words " * 40))
    assert len(found) <= 100 and found.endswith("words …")


@pytest.mark.parametrize(("is_driven", "state"), [(True, "running"), (False, "interrupted")])
def test_a_leased_trial_is_under_way_while_its_driver_lives(is_driven, state):
    assert trial_state(make_trial(0), is_driven) == state
    assert trial_state(make_told(0), is_driven) == "told"


def test_a_predicted_trial_is_not_the_nearest():
    predicted = replace(out_of_memory(1, 2 * GIB), source=Source.PREDICTED, measurement=None)
    message = nothing_fits([out_of_memory(0, 5 * GIB), predicted], GIB)
    assert "nearest to fitting: trial 0" in message


def test_when_all_fail_for_one_reason_the_message_gives_it():
    message = nothing_fits([failed(0), failed(1), failed(2)], GIB)
    assert message == ("no trial completed (3 invalid); most often: ValueError: shapes differ")


def test_of_several_reasons_the_most_frequent_is_given():
    trials = [failed(0, "rare"), failed(1, "frequent"), failed(2, "frequent")]
    assert nothing_fits(trials, GIB).endswith("most often: frequent")


def test_one_trial_out_of_memory_does_not_hide_why_the_others_fail():
    trials = [failed(0), failed(1), failed(2), out_of_memory(3, 5 * GIB)]
    assert "most often: ValueError: shapes differ" in nothing_fits(trials, GIB)


def test_host_memory_is_named_where_it_is_the_most_frequent():
    trials = [out_of_memory(0, None, Where.HOST), out_of_memory(1, None, Where.HOST), failed(2)]
    assert nothing_fits(trials, GIB).endswith("most often: out of host memory")


def test_completed_trials_whose_quality_is_lost_give_that_reason():
    lost = make_told(0, make_measurement(), reason="quality run diverged: loss", violation=1.0)
    assert nothing_fits([lost], GIB).endswith("most often: quality run diverged: loss")


def test_a_study_without_trials_says_what_to_raise():
    assert nothing_fits([], GIB) == "no trial ran; raise --trials or --seconds"


def test_predicted_trials_count_as_out_of_memory():
    predicted = replace(out_of_memory(0, GIB), source=Source.PREDICTED, measurement=None)
    trials = [replace(predicted, number=number, reason=f"{number}") for number in range(3)]
    message = nothing_fits([failed(3), *trials, out_of_memory(4, 5 * GIB)], GIB)
    assert "nearest to fitting: trial 4" in message


def waiting(number, seconds):
    return make_told(number, make_measurement(timing=make_timing(0.08, data_wait_seconds=seconds)))


def test_a_trial_that_waits_for_data_says_for_how_long():
    words = "data-bound: waits 0.217 s of 0.297 s per step for data (73%)"
    assert short_reason(waiting(0, 0.217)) == words
    assert data_bound_text(make_timing(0.08, data_wait_seconds=0.217)) == words


@pytest.mark.parametrize(("wait", "is_told"), [(0.0199, False), (0.0201, True)])
def test_more_than_a_fifth_of_the_time_is_much(wait, is_told):
    assert bool(data_bound_text(make_timing(0.08, data_wait_seconds=wait))) is is_told


def test_a_study_warns_of_the_trial_that_waits_most():
    warning = data_bound_warning([waiting(0, 0.05), waiting(1, 0.217), waiting(2, 0.0)])
    assert warning.startswith("warning: 2 of 3 trial(s) of the front are data-bound, the worst ")
    assert "waits 0.217 s of 0.297 s per step for data (73%); samples/s and cost leave" in warning


def test_a_study_without_waiting_trials_warns_of_nothing():
    assert data_bound_warning([waiting(0, 0.0), make_told(1, make_oom())]) == ""
