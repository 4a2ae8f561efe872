import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.records import Source
from autotune.reuse import answer_from, surely_too_large
from search_spaces import SearchSpace, TrainingConfig
from tests.factories import (
    MIB,
    make_config,
    make_measurement,
    make_memory,
    make_oom,
    make_stored,
    make_timing,
    make_told,
)
from trials.measurement import Failure, Measurement, Outcome, Where

BUDGET = 600 * MIB


def completed(**memory):
    return make_stored(make_measurement(memory=make_memory(**memory)), budget_bytes=BUDGET)


def failed(outcome=Outcome.OUT_OF_MEMORY, budget_bytes=BUDGET, **failure):
    reason = Failure(**{"reason": "out of memory", "phase": "warm_up", **failure})
    return make_stored(
        Measurement(outcome=outcome, failure=reason, memory=make_memory()),
        budget_bytes=budget_bytes,
    )


def holds(stored, budget_bytes):
    return answer_from([stored], budget_bytes) is stored


@pytest.mark.parametrize(("budget", "answers"), [(399, False), (400, True), (9000, True)])
def test_a_completed_trial_answers_under_every_budget_that_its_peak_keeps_to(budget, answers):
    stored = completed(peak_device_bytes=400 * MIB)
    assert holds(stored, budget * MIB) is answers


@pytest.mark.parametrize(("share", "answers"), [(0.09, True), (0.11, False)])
def test_a_time_that_is_known_badly_is_measured_again(share, answers):
    steps = (0.1, 0.1, 0.1)
    timing = make_timing(
        step_seconds=steps, low_seconds=0.1 - share / 10, high_seconds=0.1 + share / 10
    )
    stored = make_stored(make_measurement(timing=timing), budget_bytes=BUDGET)
    assert holds(stored, BUDGET) is answers


@pytest.mark.parametrize(("budget", "answers"), [(499, False), (500, True)])
def test_what_the_allocator_reserved_counts_where_it_is_known(budget, answers):
    stored = completed(peak_device_bytes=400 * MIB, peak_reserved_bytes=500 * MIB)
    assert holds(stored, budget * MIB) is answers


@pytest.mark.parametrize(("budget", "answers"), [(100, True), (600, True), (601, False)])
def test_out_of_memory_answers_under_no_budget_larger_than_its_own(budget, answers):
    stored = make_stored(make_oom(), budget_bytes=BUDGET)
    assert holds(stored, budget * MIB) is answers


def test_out_of_memory_under_no_budget_of_its_own_answers_nothing():
    assert not holds(make_stored(make_oom(), budget_bytes=None), BUDGET)


def test_host_out_of_memory_is_run_again():
    assert not holds(failed(where=Where.HOST), BUDGET)


def test_a_suspect_out_of_memory_is_run_again():
    assert not holds(failed(where=Where.DEVICE, is_suspect=True), BUDGET)


def test_a_crash_is_run_again():
    assert not holds(failed(Outcome.CRASHED), BUDGET)


@pytest.mark.parametrize("budget", [MIB, 9000 * MIB])
def test_what_diverged_answers_under_every_budget(budget):
    assert holds(failed(Outcome.DIVERGED), budget)


def test_what_was_invalid_is_run_again_since_its_cause_may_be_mended():
    assert not holds(failed(Outcome.INVALID), BUDGET)


def test_the_first_that_holds_answers():
    too_small, fits, later = make_stored(make_oom()), completed(), completed()
    assert answer_from([too_small, fits, later], 700 * MIB) is fits


def test_nothing_stored_answers_nothing():
    assert answer_from([], BUDGET) is None


def witness(config, source=Source.RUN):
    return make_told(3, make_oom(), config=config, source=source)


def is_ruled_out(config, *trials):
    return surely_too_large(config, trials) is not None


SPLIT = make_config(micro_batch_size=8, accumulation_steps=4)
WHOLE = make_config(micro_batch_size=8, accumulation_steps=1)


@pytest.mark.parametrize(("micro", "too_large"), [(4, False), (8, True), (16, True)])
def test_a_micro_batch_at_least_as_large_is_ruled_out(micro, too_large):
    config = SPLIT.with_knobs({"micro_batch_size": micro})
    assert is_ruled_out(config, witness(SPLIT)) is too_large


@pytest.mark.parametrize("steps", [1, 2, 4, 64])
def test_accumulating_takes_at_least_what_one_step_takes(steps):
    config = WHOLE.with_knobs({"accumulation_steps": steps})
    assert is_ruled_out(config, witness(WHOLE))


@pytest.mark.parametrize(("steps", "too_large"), [(1, False), (2, True), (64, True)])
def test_how_often_it_accumulates_does_not_matter_but_whether_it_does(steps, too_large):
    config = SPLIT.with_knobs({"accumulation_steps": steps})
    assert is_ruled_out(config, witness(SPLIT)) is too_large


def test_a_larger_micro_batch_without_accumulation_may_fit():
    config = make_config(micro_batch_size=16, accumulation_steps=1)
    assert not is_ruled_out(config, witness(SPLIT))


@pytest.mark.parametrize(
    "knobs",
    [
        {"amp_dtype": "bf16"},
        {"checkpoint_interval": 1},
        {"optimizer_bits": 8},
        {"offload_target": "cpu"},
    ],
)
def test_every_other_knob_must_be_equal(knobs):
    config = make_config(**knobs, micro_batch_size=64)
    assert not is_ruled_out(config, witness(make_config()))


CONFIGS = st.builds(
    make_config,
    amp_dtype=st.sampled_from(["fp32", "bf16"]),
    checkpoint_interval=st.integers(0, 2),
    micro_batch_size=st.integers(2, 64),
    accumulation_steps=st.integers(1, 8),
    optimizer_bits=st.sampled_from([32, 8]),
)


@given(CONFIGS, st.integers(1, 64))
def test_nothing_strictly_smaller_is_ever_ruled_out(config, micro):
    smaller = []
    if micro < config.micro_batch_size:
        smaller.append(config.with_knobs({"micro_batch_size": micro}))
    if config.accumulation_steps > 1:
        smaller.append(config.with_knobs({"accumulation_steps": 1}))
    assert not any(is_ruled_out(one, witness(config)) for one in smaller)


def test_after_out_of_memory_everything_at_least_as_large_is_ruled_out():
    space = SearchSpace.of({"micro_batch_size": [1, 2, 4, 8], "accumulation_steps": [1, 2]})
    trial = witness(TrainingConfig(micro_batch_size=4))
    left = [config for config in space.combinations() if not is_ruled_out(config, trial)]
    points = [(config.micro_batch_size, config.accumulation_steps) for config in left]
    assert points == list(itertools.product([1, 2], [1, 2]))


def test_the_reason_names_the_trial_and_its_config():
    found = surely_too_large(SPLIT, [witness(SPLIT)])
    assert found.attempted_bytes == 900 * MIB
    assert found.reason == (
        "not run: trial 3 (fp32, no ckpt, batch 8x4, 32-bit) ran out of memory, "
        "and this is at least as large in every knob"
    )


def test_a_prediction_is_no_witness():
    predicted = replace(witness(SPLIT, Source.PREDICTED), measurement=None)
    assert not is_ruled_out(SPLIT, predicted)


def test_an_answer_from_the_store_is_a_witness():
    assert is_ruled_out(SPLIT, witness(SPLIT, Source.CACHED))


def test_host_out_of_memory_is_no_witness():
    trial = make_told(3, failed(where=Where.HOST).measurement, config=SPLIT)
    assert not is_ruled_out(SPLIT, trial)


def test_a_completed_trial_rules_nothing_out():
    assert not is_ruled_out(SPLIT, make_told(config=SPLIT))
