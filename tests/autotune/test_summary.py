import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.records import Source, TrialState
from autotune.settings import parse_bytes
from autotune.summary import (
    against_baseline,
    baseline_of,
    data_bound_text,
    data_bound_warning,
    nothing_fits,
    nothing_scored,
    resting_bytes,
    short_reason,
    source_counts,
    tally,
    trial_state,
)
from tests.factories import (
    GIB,
    MIB,
    make_config,
    make_facts,
    make_measurement,
    make_oom,
    make_scored,
    make_study_record,
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


TINY = make_facts(num_parameters=1000, num_trainable=1000)


def fits(trials, budget_bytes, facts=TINY):
    return nothing_fits(trials, budget_bytes, facts)


def test_the_nearest_config_is_named_with_what_it_misses_and_what_would_help():
    nearest = make_config(micro_batch_size=1)
    trials = [out_of_memory(0, 9 * GIB), out_of_memory(1, 5 * GIB, config=nearest)]
    message = fits(trials, 4 * GIB)
    assert message.startswith("no trial completed within 4 GiB (2 out of memory); nearest")
    assert f"trial 1 ({nearest}), which needs at least 5 GiB, has 4 GiB" in message
    assert "where it ran out, not all it would have taken; begin another study" in message
    assert "with --memory-budget 11GiB (twice that)" in message
    assert "smaller micro-batches and more checkpointing" in message


def test_an_allocation_below_what_was_left_says_what_is_known():
    message = fits([out_of_memory(0, 600 * MIB + 1)], 600 * MIB)
    assert "which needs more than the 600 MiB that it has" in message


def test_what_a_model_holds_anyway_is_told_and_counts_for_the_suggestion():
    facts = make_facts(num_parameters=10 * MIB, num_trainable=10 * MIB)
    message = fits([out_of_memory(0, 12 * MIB)], 10 * MIB, facts)
    assert "weights, gradients and optimizer state alone make 160 MiB" in message
    assert "--memory-budget 330MiB" in message


@pytest.mark.parametrize(
    ("knobs", "per_parameter"),
    [
        ({}, 16),
        ({"optimizer_bits": 8}, 10),
        ({"optimizer_bits": 4}, 9),
        ({"optimizer": "sgd"}, 12),
        ({"optimizer_in_backward": "on"}, 12),
        ({"lora_rank": 8}, 4),
        ({"lora_rank": 8, "weight_bits": 8}, 1),
        ({"lora_rank": 8, "weight_bits": 4, "optimizer_bits": 8}, 0.5),
        ({"zero_stage": 1}, 0),
        ({"zero_stage": 1, "offload_target": "cpu"}, 0),
    ],
)
def test_what_is_held_at_rest_follows_the_optimizer(knobs, per_parameter):
    assert resting_bytes(make_config().with_knobs(knobs), TINY) == 1000 * per_parameter


def test_frozen_parameters_have_weights_alone():
    facts = make_facts(num_parameters=1000, num_trainable=100)
    assert resting_bytes(make_config(), facts) == 4000 + 1200


@given(st.integers(MIB, 2**45), st.integers(1, 2**45))
def test_the_suggested_budget_is_one_and_is_twice_what_was_needed(budget, missing):
    message = fits([out_of_memory(0, budget + missing)], budget)
    suggested = parse_bytes(re.search(r"--memory-budget (\S+) \(", message)[1])
    assert 2 * (budget + missing) < suggested <= 2.4 * (budget + missing) + 2


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
        (
            make_told(0, make_oom()),
            "out of memory in warm-up, needs at least 900 MiB, has 600 MiB",
        ),
        (out_of_memory(0, None, Where.HOST), "out of host memory in warm-up"),
        (out_of_memory(0, None), "out of memory in warm-up"),
        (PREDICTED, "predicted: larger than trial 7 that ran out of memory"),
        (
            replace(PREDICTED, reason="not run: predicted to take 9 GiB, and 8 GiB at least"),
            "not run: predicted to take 9 GiB, and 8 GiB at least",
        ),
        (failed(0), "cannot train, fails in warm-up: ValueError: shapes differ"),
        (failed(0, "the loss is nan", Outcome.DIVERGED), "diverged in warm-up: the loss is nan"),
        (failed(0, "killed\nmore", Outcome.CRASHED), "process broke in warm-up: killed"),
        (failed(0, "not done after 9 s", Outcome.TIMED_OUT), "not done after 9 s"),
        (make_trial(0, state=TrialState.LOST, reason="slot 3 died"), "slot 3 died"),
    ],
)
def test_every_outcome_has_a_short_reason_in_words(trial, words):
    assert short_reason(trial, 600 * MIB) == words


def test_a_long_reason_is_cut_between_words():
    found = short_reason(failed(0, "many words " * 40), GIB)
    assert len(found) <= 100 and found.endswith("words …")


@pytest.mark.parametrize(("is_driven", "state"), [(True, "running"), (False, "interrupted")])
def test_a_leased_trial_is_under_way_while_its_driver_lives(is_driven, state):
    assert trial_state(make_trial(0), is_driven) == state
    assert trial_state(make_told(0), is_driven) == "told"


def test_a_predicted_trial_is_not_the_nearest():
    predicted = replace(out_of_memory(1, 2 * GIB), source=Source.PREDICTED, measurement=None)
    message = fits([out_of_memory(0, 5 * GIB), predicted], GIB)
    assert "nearest to fitting: trial 0" in message


def test_when_all_fail_for_one_reason_the_message_gives_it():
    message = fits([failed(0), failed(1), failed(2)], GIB)
    assert message == ("no trial completed (3 invalid); most often: ValueError: shapes differ")


def test_of_several_reasons_the_most_frequent_is_given():
    trials = [failed(0, "rare"), failed(1, "frequent"), failed(2, "frequent")]
    assert fits(trials, GIB).endswith("most often: frequent")


def test_one_trial_out_of_memory_does_not_hide_why_the_others_fail():
    trials = [failed(0), failed(1), failed(2), out_of_memory(3, 5 * GIB)]
    assert "most often: ValueError: shapes differ" in fits(trials, GIB)


def test_host_memory_is_named_where_it_is_the_most_frequent():
    trials = [out_of_memory(0, None, Where.HOST), out_of_memory(1, None, Where.HOST), failed(2)]
    assert fits(trials, GIB).endswith("most often: out of host memory")


def test_completed_trials_whose_quality_is_lost_are_not_called_incomplete():
    reason = "quality run invalid: KeyError: held out"
    lost = [make_told(n, make_measurement(), reason=reason, violation=1.0) for n in range(2)]
    assert nothing_scored([*lost, out_of_memory(2, GIB)]) == (
        "no trial could be scored (2 completed, 1 out of memory, 0 with a quality); most often: "
        f"{reason}; mend that, or leave quality out with --objectives cost,throughput"
    )
    assert short_reason(lost[0], GIB) == reason


def test_a_study_without_trials_says_what_to_raise():
    assert fits([], GIB) == "no trial ran; raise --trials or --seconds"


def test_predicted_trials_count_as_out_of_memory():
    predicted = replace(out_of_memory(0, GIB), source=Source.PREDICTED, measurement=None)
    trials = [replace(predicted, number=number, reason=f"{number}") for number in range(3)]
    message = fits([failed(3), *trials, out_of_memory(4, 5 * GIB)], GIB)
    assert "nearest to fitting: trial 4" in message


def waiting(number, seconds):
    return make_told(number, make_measurement(timing=make_timing(0.08, data_wait_seconds=seconds)))


def test_a_trial_that_waits_for_data_says_for_how_long():
    words = "data-bound: waits 0.217 s of 0.297 s per step for data (73%)"
    assert short_reason(waiting(0, 0.217), GIB) == words
    assert data_bound_text(make_timing(0.08, data_wait_seconds=0.217)) == words


@pytest.mark.parametrize(("wait", "is_told"), [(0.0199, False), (0.0201, True)])
def test_more_than_a_fifth_of_the_time_is_much(wait, is_told):
    assert bool(data_bound_text(make_timing(0.08, data_wait_seconds=wait))) is is_told


def test_a_study_warns_of_the_trial_that_waits_most():
    warning = data_bound_warning([waiting(0, 0.05), waiting(1, 0.217), waiting(2, 0.0)])
    assert warning.startswith("warning: 2 of 3 trials of the front are data-bound, the worst ")
    assert "waits 0.217 s of 0.297 s per step for data (73%); samples/s and cost leave" in warning


def test_a_study_without_waiting_trials_warns_of_nothing():
    assert data_bound_warning([waiting(0, 0.0), make_told(1, make_oom())]) == ""


def test_the_sources_are_counted_where_not_all_were_run():
    assert source_counts([make_told(0), make_told(1)]) == ""
    cached = make_told(2, source=Source.CACHED)
    assert source_counts([make_told(0), cached, PREDICTED]) == " (1 run, 1 cached, 1 predicted)"


def test_the_recommended_point_is_compared_with_the_baseline():
    base = make_scored(0, cost=10.0, throughput=16.0)
    best = make_scored(3, cost=5.0, throughput=24.0)
    peak = f"{base.measurement.memory.peak_device_bytes / MIB:.4g}"
    assert against_baseline(best, base, GIB) == (
        "against the baseline (trial 0): $5 instead of $10 per million samples (-50%), "
        f"24 instead of 16 samples/s (+50%), {peak} instead of {peak} MiB at the peak (+0%)"
    )
    assert against_baseline(base, base, GIB).endswith("is the recommended point itself")


def test_a_baseline_that_is_no_point_is_told_with_its_reason():
    words = against_baseline(make_scored(1), make_told(0, make_oom()), 600 * MIB)
    assert words.startswith("the baseline (trial 0) is no point: out of memory in warm-up, needs")


def test_the_baseline_is_the_told_trial_of_its_config():
    record = make_study_record()
    study = replace(record, spec=replace(record.spec, baseline=make_config(micro_batch_size=2)))
    waiting = make_trial(0, config=make_config(micro_batch_size=2))
    told = replace(make_told(1), config=waiting.config)
    assert baseline_of([waiting, make_told(2), told], study) == told
    assert baseline_of([waiting], study) is None and baseline_of([told], record) is None
