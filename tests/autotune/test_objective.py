import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.objective import (
    LIKELY_CONSTRAINTS,
    Quality,
    direction_of,
    half_width_of,
    judge,
    predicted_verdict,
    value_of,
    worst_value,
)
from autotune.records import Objective, Scores
from tests.factories import (
    GIB,
    MIB,
    make_measurement,
    make_memory,
    make_oom,
    make_rates,
    make_timing,
)
from trials.measurement import Direction, Failure, Measurement, Outcome, Where

MINIMIZE, MAXIMIZE = Direction.MINIMIZE, Direction.MAXIMIZE
KNOWN = Quality(value=2.5, half_width=0.001)
LOST = Quality(value=None, reason="its quality run was lost with its slot, twice")


def judged(measurement, *, budget_bytes=600 * MIB, quality=KNOWN):
    return judge(measurement, budget_bytes=budget_bytes, rates=make_rates(), quality=quality)


def failing(outcome, **failure):
    reason = Failure(**{"reason": "ValueError: boom", "phase": "warm_up", **failure})
    return Measurement(outcome=outcome, failure=reason)


def out_of_memory(attempted_bytes, where=Where.DEVICE):
    return failing(Outcome.OUT_OF_MEMORY, where=where, attempted_bytes=attempted_bytes)


FAILURES = st.builds(
    failing,
    st.sampled_from([outcome for outcome in Outcome if outcome != Outcome.COMPLETED]),
    where=st.sampled_from([None, *Where]),
    attempted_bytes=st.none() | st.integers(0, 2**50),
)
QUALITIES = st.sampled_from([None, KNOWN, LOST])


@given(FAILURES | st.just(make_measurement()), st.integers(1, 2**50), QUALITIES)
def test_every_trial_is_told_the_same_sorted_constraints_all_finite(measurement, budget, quality):
    constraints = judged(measurement, budget_bytes=budget, quality=quality).constraints
    assert list(constraints) == ["host_memory", "memory", "quality", "valid"]
    assert all(math.isfinite(value) for value in constraints.values())


@given(FAILURES, st.integers(1, 2**50), QUALITIES)
def test_a_trial_that_did_not_complete_has_no_scores(measurement, budget, quality):
    assert judged(measurement, budget_bytes=budget, quality=quality).scores == Scores()


@given(st.integers(1, 2**45), st.integers(1, 2**45))
def test_a_completed_trial_never_violates_memory(peak_bytes, budget_bytes):
    measurement = make_measurement(memory=make_memory(peak_device_bytes=peak_bytes))
    assert judged(measurement, budget_bytes=budget_bytes).violation <= 0


def test_a_completed_trial_tells_how_much_memory_it_left():
    measurement = make_measurement(memory=make_memory(peak_device_bytes=450 * MIB))
    assert judged(measurement).constraints == {**LIKELY_CONSTRAINTS, "memory": -0.25}


@pytest.mark.parametrize(("attempted", "violation"), [(900, 0.5), (1200, 1.0), (3000, 4.0)])
def test_out_of_memory_violates_by_how_much_it_would_have_needed(attempted, violation):
    constraints = judged(out_of_memory(attempted * MIB)).constraints
    assert constraints == {**LIKELY_CONSTRAINTS, "memory": pytest.approx(violation)}


@pytest.mark.parametrize("attempted", [0, 300 * MIB, 600 * MIB, 600 * MIB + 1])
def test_out_of_memory_violates_by_at_least_a_hundredth(attempted):
    assert judged(out_of_memory(attempted)).constraints["memory"] == 0.01


def test_out_of_memory_of_unknown_size_violates_in_full():
    assert judged(out_of_memory(None)).constraints["memory"] == 1.0


@pytest.mark.parametrize("attempted", [None, 700 * MIB])
def test_host_out_of_memory_says_nothing_of_the_device(attempted):
    constraints = judged(out_of_memory(attempted, Where.HOST)).constraints
    assert constraints["host_memory"] == 1.0 and constraints["memory"] == 0.0


@pytest.mark.parametrize(
    ("outcome", "constraint"),
    [
        (Outcome.DIVERGED, "quality"),
        (Outcome.INVALID, "valid"),
        (Outcome.TIMED_OUT, "valid"),
    ],
)
def test_each_failure_violates_its_own_constraint_alone(outcome, constraint):
    constraints = judged(failing(outcome)).constraints
    assert {name for name, value in constraints.items() if value > 0} == {constraint}


@given(FAILURES, st.integers(1, 2**50), QUALITIES)
def test_no_trial_that_failed_is_told_as_feasible(measurement, budget, quality):
    assert judged(measurement, budget_bytes=budget, quality=quality).violation > 0


def test_a_completed_trial_whose_quality_is_lost_violates_quality():
    verdict = judged(make_measurement(), quality=LOST)
    assert verdict.constraints["quality"] == 1.0
    assert verdict.scores.quality is None


def test_a_study_without_quality_asks_none():
    verdict = judged(make_measurement(), quality=None)
    assert verdict.violation <= 0
    assert verdict.scores.quality is None


def test_a_failure_does_not_blame_a_quality_that_is_lost():
    assert judged(make_oom(), quality=LOST).constraints["quality"] == 0.0


def test_the_violation_is_the_largest_constraint():
    assert judged(make_oom(), budget_bytes=600 * MIB).violation == pytest.approx(0.5)


def test_a_completed_trial_is_scored_with_its_cost():
    """A hundred samples in 3.6 s are a million in ten hours, of 2 + 10 x 0.01 + 50 x 0.002 $."""
    measurement = make_measurement(
        timing=make_timing(3.6, samples_per_step=100),
        memory=make_memory(peak_device_bytes=10 * GIB, peak_host_bytes=50 * GIB),
    )
    scores = judged(measurement, budget_bytes=16 * GIB).scores
    assert scores.cost_usd_per_million_samples == pytest.approx(22.0)


def test_cost_and_throughput_share_the_relative_noise_of_the_step_time():
    scores = judged(make_measurement(timing=make_timing(0.5))).scores  # 0.49 to 0.51: 2 %
    assert scores.throughput_samples_per_second == pytest.approx(16.0)
    assert scores.throughput_half_width == pytest.approx(0.32)
    cost = scores.cost_usd_per_million_samples
    assert scores.cost_half_width == pytest.approx(0.02 * cost)


def test_quality_brings_its_own_noise():
    scores = judged(make_measurement(), quality=KNOWN).scores
    assert (scores.quality, scores.quality_half_width) == (2.5, 0.001)


def test_noise_of_quality_that_is_not_known_counts_as_none():
    scores = judged(make_measurement(), quality=Quality(value=2.5)).scores
    assert scores.quality_half_width is None
    assert half_width_of(scores, Objective.QUALITY) == 0.0


def test_a_prediction_is_graded_and_told_under_the_same_names():
    verdict = predicted_verdict(900 * MIB, 600 * MIB)
    assert list(verdict.constraints) == ["host_memory", "memory", "quality", "valid"]
    assert verdict.constraints == {**LIKELY_CONSTRAINTS, "memory": pytest.approx(0.5)}
    assert verdict.scores == Scores()


def test_a_prediction_violates_by_at_least_a_hundredth():
    assert predicted_verdict(600 * MIB, 600 * MIB).violation == 0.01


@pytest.mark.parametrize("quality", Direction)
def test_cost_goes_down_throughput_up_and_quality_as_the_workload_says(quality):
    directions = [direction_of(objective, quality) for objective in Objective]
    assert directions == [MINIMIZE, MAXIMIZE, quality]


SEEN = [
    Scores(cost_usd_per_million_samples=3.0, throughput_samples_per_second=9.0, quality=2.0),
    Scores(cost_usd_per_million_samples=7.0, throughput_samples_per_second=4.0, quality=5.0),
    Scores(),
]


@pytest.mark.parametrize(
    ("objective", "direction", "worst"),
    [
        (Objective.COST, MINIMIZE, 7.0),
        (Objective.THROUGHPUT, MINIMIZE, 4.0),
        (Objective.QUALITY, MINIMIZE, 5.0),
        (Objective.QUALITY, MAXIMIZE, 2.0),
    ],
)
def test_a_missing_value_is_told_as_the_worst_seen(objective, direction, worst):
    assert worst_value(SEEN, objective, direction) == worst


@pytest.mark.parametrize("seen", [[], [Scores()]])
@pytest.mark.parametrize("objective", Objective)
def test_before_anything_completed_the_worst_is_zero(seen, objective):
    assert worst_value(seen, objective, MINIMIZE) == 0.0


def test_each_objective_reads_its_own_score_and_noise():
    scores = Scores(
        cost_usd_per_million_samples=1.0,
        cost_half_width=0.1,
        throughput_samples_per_second=2.0,
        throughput_half_width=0.2,
        quality=3.0,
        quality_half_width=0.3,
    )
    assert [value_of(scores, objective) for objective in Objective] == [1.0, 2.0, 3.0]
    assert [half_width_of(scores, objective) for objective in Objective] == [0.1, 0.2, 0.3]
