"""From what a trial found to objective values and constraints. Pure.

Out-of-memory, invalid and timed-out trials complete with finite values and a violated,
graded constraint, because samplers ignore trials that are told as failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.rates import Rates
from autotune.records import Objective, Scores
from trials.measurement import Direction, Measurement, Outcome, Where

LEAST_VIOLATION = 0.01
FULL_VIOLATION = 1.0
"""Told where nothing says by how much a limit was missed."""
LIKELY_CONSTRAINTS = {"host_memory": 0.0, "quality": 0.0, "valid": 0.0}
"""What most trials are told with, beside their memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What is known of a numerics class.

    Attributes:
        value: The metric, or None when it could not be measured.
        half_width: Half the 95 % interval of one run, from repeats; None if unknown.
        reason: Why there is no value.
    """

    value: float | None
    half_width: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the sampler is told of a trial.

    Attributes:
        scores: Values with their uncertainty; empty unless the trial completed.
        constraints: By name, in sorted order; feasible when none is above 0.
    """

    scores: Scores
    constraints: dict[str, float]

    @property
    def violation(self) -> float:
        """The largest constraint."""
        return max(self.constraints.values())


def judge(
    measurement: Measurement, *, budget_bytes: int, rates: Rates, quality: Quality | None
) -> Verdict:
    """Score a trial.

    Args:
        measurement: What it found.
        budget_bytes: Device memory that it was allowed.
        rates: Prices of the cost objective.
        quality: Of its numerics class; None when quality is no objective.
    """
    is_completed = measurement.outcome == Outcome.COMPLETED
    return Verdict(
        scores=_scores(measurement, rates, quality) if is_completed else Scores(),
        constraints={
            "host_memory": _host_memory_violation(measurement),
            "memory": _memory_violation(measurement, budget_bytes),
            "quality": _quality_violation(measurement, quality),
            "valid": _validity_violation(measurement),
        },
    )


def predicted_verdict(attempted_bytes: int, budget_bytes: int) -> Verdict:
    """Score a config that was not run because a smaller one ran out of memory."""
    violation = max(LEAST_VIOLATION, attempted_bytes / budget_bytes - 1)
    constraints = {**LIKELY_CONSTRAINTS, "memory": violation}
    return Verdict(scores=Scores(), constraints=dict(sorted(constraints.items())))


def direction_of(objective: Objective, quality_direction: Direction) -> Direction:
    """Return which way an objective gets better."""
    if objective == Objective.QUALITY:
        return quality_direction
    return Direction.MINIMIZE if objective == Objective.COST else Direction.MAXIMIZE


def value_of(scores: Scores, objective: Objective) -> float | None:
    """Return one objective's value."""
    return {
        Objective.COST: scores.cost_usd_per_million_samples,
        Objective.THROUGHPUT: scores.throughput_samples_per_second,
        Objective.QUALITY: scores.quality,
    }[objective]


def half_width_of(scores: Scores, objective: Objective) -> float:
    """Return half of the 95 % interval of one objective's value."""
    return {
        Objective.COST: scores.cost_half_width,
        Objective.THROUGHPUT: scores.throughput_half_width,
        Objective.QUALITY: scores.quality_half_width or 0.0,
    }[objective]


def worst_value(
    seen: Sequence[Scores], objective: Objective, quality_direction: Direction
) -> float:
    """Return the worst value measured so far: what an infeasible trial is told with.

    Zero before anything completed. Realistic values keep a surrogate model honest, and the
    constraints alone already say that the trial is infeasible.
    """
    values = [v for scores in seen if (v := value_of(scores, objective)) is not None]
    is_minimized = direction_of(objective, quality_direction) == Direction.MINIMIZE
    return (max if is_minimized else min)(values, default=0.0)


def _scores(measurement: Measurement, rates: Rates, quality: Quality | None) -> Scores:
    assert measurement.timing is not None
    relative = measurement.timing.relative_half_width
    cost = rates.usd_per_million_samples(measurement)
    throughput = measurement.timing.samples_per_second
    return Scores(
        cost_usd_per_million_samples=cost,
        cost_half_width=cost * relative,
        throughput_samples_per_second=throughput,
        throughput_half_width=throughput * relative,
        quality=None if quality is None else quality.value,
        quality_half_width=None if quality is None else quality.half_width,
    )


def _ran_out_on_host(measurement: Measurement) -> bool:
    failure = measurement.failure
    is_out_of_memory = measurement.outcome == Outcome.OUT_OF_MEMORY
    return is_out_of_memory and failure is not None and failure.where == Where.HOST


def _host_memory_violation(measurement: Measurement) -> float:
    return FULL_VIOLATION if _ran_out_on_host(measurement) else 0.0


def _memory_violation(measurement: Measurement, budget_bytes: int) -> float:
    if _ran_out_on_host(measurement):
        return 0.0
    if measurement.outcome == Outcome.OUT_OF_MEMORY:
        failure = measurement.failure
        assert failure is not None
        if failure.attempted_bytes is None:
            return FULL_VIOLATION
        return max(LEAST_VIOLATION, failure.attempted_bytes / budget_bytes - 1)
    if measurement.memory is None:
        return 0.0
    return min(0.0, measurement.memory.peak_device_bytes / budget_bytes - 1)


def _quality_violation(measurement: Measurement, quality: Quality | None) -> float:
    is_lost = quality is not None and quality.value is None
    has_completed = measurement.outcome == Outcome.COMPLETED
    is_violated = measurement.outcome == Outcome.DIVERGED or (has_completed and is_lost)
    return FULL_VIOLATION if is_violated else 0.0


def _validity_violation(measurement: Measurement) -> float:
    is_valid = measurement.outcome not in (Outcome.INVALID, Outcome.TIMED_OUT, Outcome.CRASHED)
    return 0.0 if is_valid else FULL_VIOLATION
