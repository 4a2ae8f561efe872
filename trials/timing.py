"""When a mean of step times is known well enough, and which steps count. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from trials.measurement import StepTiming
from trials.spec import TimingPolicy

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom, from standard tables.
_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
MAX_LEADING_SKIPS = 10
"""A gradient scaler starts too high; so many skipped steps at the start are normal."""
MAX_SKIPPED_SHARE = 0.25
"""Above this share of skipped steps after the start, a throughput says nothing of training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReading:
    """One optimizer step as the loop saw it.

    Attributes:
        seconds: Compute, device-synchronised.
        data_wait_seconds: Waiting for its batches.
        units: Trained units of the window.
        is_skipped: The gradient scaler found inf or NaN and did not step.
        loss: Mean over the window's units.
    """

    seconds: float
    data_wait_seconds: float
    units: int
    is_skipped: bool
    loss: float


def t_quantile(degrees_of_freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t."""
    if degrees_of_freedom <= len(_T_95):
        return _T_95[degrees_of_freedom - 1]
    return 1.96 + 2.5 / degrees_of_freedom


def half_width(values: Sequence[float]) -> float:
    """Return half the 95 % confidence interval of the mean; infinite below two values.

    Source: Student's t interval, s * t(0.975, n - 1) / sqrt(n).
    """
    if len(values) < 2:
        return math.inf
    spread = statistics.stdev(values)
    return spread * t_quantile(len(values) - 1) / math.sqrt(len(values))


def leading_skips(readings: Sequence[StepReading]) -> int:
    """Return how many steps at the start were skipped, while the scaler found its scale."""
    return next((n for n, r in enumerate(readings) if not r.is_skipped), len(readings))


def timed_steps(readings: Sequence[StepReading]) -> list[StepReading]:
    """Return the readings that count: steps that were really taken."""
    return [reading for reading in readings if not reading.is_skipped]


def skips_too_much(readings: Sequence[StepReading]) -> bool:
    """Tell whether the gradient scaler skips for good: fast, and useless."""
    leading = leading_skips(readings)
    later = readings[leading:]
    skipped = sum(reading.is_skipped for reading in later)
    return leading > MAX_LEADING_SKIPS or skipped > MAX_SKIPPED_SHARE * len(later)


def is_enough(
    readings: Sequence[StepReading], elapsed_seconds: float, policy: TimingPolicy
) -> bool:
    """Tell whether timing may stop."""
    if len(readings) >= policy.max_steps:
        return True
    times = [reading.seconds for reading in timed_steps(readings)]
    if len(times) < policy.min_steps:
        return False
    is_narrow = half_width(times) <= policy.relative_half_width * statistics.fmean(times)
    return is_narrow or elapsed_seconds >= policy.max_seconds


def is_beaten(
    readings: Sequence[StepReading], policy: TimingPolicy, beaten_seconds: float | None
) -> bool:
    """Tell whether a step surely takes longer than what any use could be made of."""
    times = [reading.seconds for reading in timed_steps(readings)]
    if beaten_seconds is None or len(times) < policy.min_steps:
        return False
    return statistics.fmean(times) - half_width(times) > beaten_seconds


def timing_of(
    warm_up: Sequence[StepReading],
    readings: Sequence[StepReading],
    *,
    samples_per_step: int,
    warm_up_seconds: float,
    has_ended_early: bool = False,
) -> StepTiming:
    """Return what the steps of a trial say of its time; one of them at least was taken."""
    timed = timed_steps(readings)
    seconds = [reading.seconds for reading in timed]
    mean, half = statistics.fmean(seconds), half_width(seconds)
    waits = [reading.data_wait_seconds for reading in timed]
    return StepTiming(
        step_seconds=tuple(seconds),
        low_seconds=max(0.0, mean - half),
        high_seconds=mean + half,
        samples_per_step=samples_per_step,
        units_per_step=statistics.fmean(reading.units for reading in timed),
        warm_up_seconds=warm_up_seconds,
        data_wait_seconds=statistics.fmean(waits[1:] or waits),
        optimizer_steps=len(timed) + len(timed_steps(warm_up)),
        skipped_steps=sum(reading.is_skipped for reading in [*warm_up, *readings]),
        is_beaten=has_ended_early,
    )
