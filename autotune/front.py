"""The Pareto front of measured trials under noise, and the point to recommend. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import moocore
import numpy as np
from numpy.typing import NDArray

from autotune.figures import shown_count, shown_number
from autotune.objective import direction_of, half_width_of, value_of
from autotune.records import Objective, TrialRecord
from trials.measurement import Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The point of the front to train with, and why.

    Attributes:
        number: The trial's.
        reason: In words, with the numbers that decided.
    """

    number: int
    reason: str


def pareto_front(
    trials: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    quality_direction: Direction,
) -> list[TrialRecord]:
    """Return the feasible trials that no other beats, cheapest or fastest first.

    A trial is on the front when no trial is at least as good in every objective, and none is at
    least as good within the noise of both and better beyond it in one. The first keeps ties in
    everything to one point, the second keeps noise from making a front: of two trials that
    differ measurably in cost alone, only the cheaper stays. Trials that beat each other in a
    circle all stay.
    """
    feasible = [trial for trial in trials if trial.is_feasible]
    if not feasible:
        return []
    values, noise = _matrices(feasible, objectives, quality_direction)
    nominal = np.flatnonzero(moocore.is_nondominated(values))
    beaten = _beaten(values[nominal], noise[nominal])
    kept = [
        feasible[index] for index, is_beaten in zip(nominal, beaten, strict=True) if not is_beaten
    ]
    return sorted(kept, key=lambda t: (_oriented(t, objectives[0], quality_direction), t.number))


def hypervolume(
    front: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    quality_direction: Direction,
    reference: Sequence[float],
) -> float:
    """Return the volume that a front dominates up to a reference point.

    Args:
        front: Trials with a value in every objective.
        objectives: The axes.
        quality_direction: Of the quality objective.
        reference: One value per objective, in the objective's own direction.
    """
    values, _ = _matrices(front, objectives, quality_direction)
    signs = [_sign(objective, quality_direction) for objective in objectives]
    oriented = [value * sign for value, sign in zip(reference, signs, strict=True)]
    return float(moocore.hypervolume(values, ref=oriented))


def recommend(
    front: Sequence[TrialRecord], objectives: Sequence[Objective], quality_direction: Direction
) -> Recommendation | None:
    """Return the front's point that is best in the first objective at no loss of quality.

    Points whose quality is worse than the best beyond the noise of both are left out.
    """
    if not front:
        return None
    first = objectives[0]
    equal = as_good_in_quality(front, quality_direction)
    chosen = min(equal, key=lambda t: (_oriented(t, first, quality_direction), t.number))
    superlative = {
        Objective.COST: "cheapest",
        Objective.THROUGHPUT: "fastest",
        Objective.QUALITY: "best in quality",
    }[first]
    return Recommendation(
        number=chosen.number,
        reason=_reason(superlative, chosen, len(front), len(equal)),
    )


def as_good_in_quality(
    front: Sequence[TrialRecord], quality_direction: Direction
) -> list[TrialRecord]:
    """Return the trials whose quality is no worse than the best beyond the noise of both.

    All of them, where one has no quality.
    """
    if any(trial.scores.quality is None for trial in front):
        return list(front)
    best = min(front, key=lambda t: _oriented(t, Objective.QUALITY, quality_direction))

    def is_as_good(trial: TrialRecord) -> bool:
        gap = _oriented(trial, Objective.QUALITY, quality_direction) - _oriented(
            best, Objective.QUALITY, quality_direction
        )
        return gap <= math.hypot(
            half_width_of(trial.scores, Objective.QUALITY),
            half_width_of(best.scores, Objective.QUALITY),
        )

    return [trial for trial in front if is_as_good(trial)]


def _reason(superlative: str, chosen: TrialRecord, num_front: int, num_equal: int) -> str:
    scores = chosen.scores
    facts = []
    if scores.cost_usd_per_million_samples is not None:
        facts.append(f"${shown_number(scores.cost_usd_per_million_samples)} per million samples")
    if scores.throughput_samples_per_second is not None:
        facts.append(f"{shown_number(scores.throughput_samples_per_second)} samples/s")
    among = shown_count(num_front, "point")
    text = f"the {superlative} of the {among} of the front ({', '.join(facts)})"
    timing = None if chosen.measurement is None else chosen.measurement.timing
    if timing is not None and not timing.is_precise:
        share = timing.relative_half_width
        text += f", though its time is known to ±{share:.0%} only: measure on a quieter machine"
    if scores.quality is None:
        return text
    half = scores.quality_half_width
    noise = "of unknown noise" if half is None else f"within ±{shown_number(half, 2)} of noise"
    left_out = num_front - num_equal
    counted = shown_count(left_out, "point trains", "points train")
    worse = f"; {counted} measurably worse" if left_out else ""
    return f"{text}; its quality {shown_number(scores.quality)} is as good as any {noise}{worse}"


def _sign(objective: Objective, quality_direction: Direction) -> float:
    return 1.0 if direction_of(objective, quality_direction) == Direction.MINIMIZE else -1.0


def _oriented(trial: TrialRecord, objective: Objective, quality_direction: Direction) -> float:
    value = value_of(trial.scores, objective)
    assert value is not None, f"trial {trial.number} has no {objective}"
    return value * _sign(objective, quality_direction)


def _matrices(
    trials: Sequence[TrialRecord], objectives: Sequence[Objective], quality_direction: Direction
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values to minimise and their half widths, each of shape (trials, objectives)."""
    values = [[_oriented(t, o, quality_direction) for o in objectives] for t in trials]
    noise = [[half_width_of(t.scores, o) for o in objectives] for t in trials]
    return np.array(values, dtype=np.float64), np.array(noise, dtype=np.float64)


def _beaten(values: NDArray[np.float64], noise: NDArray[np.float64]) -> list[bool]:
    """Tell which points are beaten within the noise by a point they do not beat back."""
    margin = np.hypot(noise[:, None, :], noise[None, :, :])
    gap = values[None, :, :] - values[:, None, :]  # gap[i, j] > 0 where i is better than j
    beats = np.all(gap >= -margin, axis=2) & np.any(gap > margin, axis=2)
    reaches = beats.copy()
    for middle in range(len(values)):
        reaches |= np.outer(reaches[:, middle], reaches[middle])
    return [bool(np.any(beats[:, j] & ~reaches[j])) for j in range(len(values))]
