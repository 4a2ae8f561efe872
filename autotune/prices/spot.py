"""Time and money of a run that may be preempted, and how often it should save. Pure."""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

from autotune.rates import DIGITS
from search_spaces import TrainingConfig
from trials.measurement import Measurement

SECONDS_PER_HOUR = 3600
WEIGHTS, STATE = "parameters", "optimizer_state"
LONGEST_RUN = 1e10
"""Seconds from which on a run is said to have no end: 300 years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """How often a spot machine is taken away, and what that costs in time.

    Attributes:
        mtbf_seconds: Mean time between preemptions.
        restart_seconds: From a preemption until training goes on: another machine, start, load.
        checkpoint_seconds: Of saving once.
    """

    mtbf_seconds: float
    restart_seconds: float
    checkpoint_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRun:
    """A run as it is expected to go.

    Attributes:
        wall_seconds: From its start to its end; infinite where it would hardly ever end.
        interval_seconds: Training between two checkpoints; None where it saves at its end alone.
    """

    wall_seconds: float
    interval_seconds: float | None


def state_bytes(config: TrainingConfig, measurement: Measurement) -> int:
    """Return what a checkpoint holds: weights and optimizer state, as they were measured.

    Both are counted wherever they lie. Memory is that of one rank; a kind that ZeRO shards is
    multiplied by the ranks, one that each rank holds whole is saved once.
    """
    memory = measurement.memory
    assert memory is not None
    sizes = {kind: sum(memory.places.get(kind, {}).values()) for kind in (WEIGHTS, STATE)}
    shards = {WEIGHTS: config.zero_stage >= 3, STATE: config.zero_stage >= 1}
    return sum(
        size * (measurement.num_ranks if shards[kind] else 1) for kind, size in sizes.items()
    )


def young_interval(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """Return Young's interval. Source: Young (1974): sqrt(2 d M)."""
    return math.sqrt(2 * checkpoint_seconds * mtbf_seconds)


def daly_first_interval(
    checkpoint_seconds: float, mtbf_seconds: float, restart_seconds: float
) -> float:
    """Return Daly's first-order interval, at least 0.

    Source: Daly (2003): sqrt(2 d (M + R)) - d.
    """
    root = math.sqrt(2 * checkpoint_seconds * (mtbf_seconds + restart_seconds))
    return max(0.0, root - checkpoint_seconds)


def daly_interval(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """Return Daly's higher-order interval.

    Source: Daly (2006), eq. 37: sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + (d / 2M) / 9) - d where
    d < 2M, else M.
    """
    share = checkpoint_seconds / (2 * mtbf_seconds)
    if share >= 1:
        return mtbf_seconds
    series = 1 + math.sqrt(share) / 3 + share / 9
    return young_interval(checkpoint_seconds, mtbf_seconds) * series - checkpoint_seconds


def wall_seconds(work_seconds: float, interval_seconds: float, risk: Preemption) -> float:
    """Return how long a run takes that may be preempted at any time, also while it restarts.

    Source: Daly (2006), eq. 20, for exponential times between preemptions: a stretch of w seconds
    that must pass without one takes M exp(R / M) (exp(w / M) - 1). Stretches are an interval and
    its checkpoint; here the last is as long as the work that remains, and saved too.

    Returns:
        Expected seconds; infinite where the run would hardly ever end.
    """
    mtbf, save = risk.mtbf_seconds, risk.checkpoint_seconds
    num_before = max(0, math.ceil(work_seconds / interval_seconds) - 1)
    last = work_seconds - num_before * interval_seconds
    try:
        stretches = num_before * math.expm1((interval_seconds + save) / mtbf)
        stretches += math.expm1((last + save) / mtbf)
        expected = mtbf * math.exp(risk.restart_seconds / mtbf) * stretches
    except OverflowError:
        return math.inf
    return expected if expected < LONGEST_RUN else math.inf


def expect_on_spot(work_seconds: float, risk: Preemption) -> ExpectedRun:
    """Return how a run on a spot machine is expected to go, saving at Daly's best interval."""
    best = min(work_seconds, daly_interval(risk.checkpoint_seconds, risk.mtbf_seconds))
    best = best or work_seconds
    return ExpectedRun(
        wall_seconds=wall_seconds(work_seconds, best, risk),
        interval_seconds=None if best >= work_seconds else best,
    )


def money_of(seconds: float, usd_per_hour: Decimal) -> Decimal:
    """Return the price of a machine over a time, in US dollars, without rounding."""
    with localcontext(prec=DIGITS):
        return Decimal(seconds) * usd_per_hour / SECONDS_PER_HOUR
