from dataclasses import replace

from autotune.records import Source
from autotune.summary import nothing_fits, tally
from tests.factories import GIB, MIB, make_config, make_measurement, make_told
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
    assert "give --memory-budget more than 5GiB" in message
    assert "smaller micro-batches and more checkpointing" in message


def test_a_trial_that_says_no_size_is_short_of_an_unknown_amount():
    message = nothing_fits([out_of_memory(0, 600 * MIB + 1)], 600 * MIB)
    assert "short of an unknown amount; give --memory-budget more than 0.5859GiB" in message


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
