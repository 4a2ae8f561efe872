"""From what step time on a config is beaten, whatever else its trial would find. Pure."""

import math
from collections.abc import Iterable, Sequence

from autotune.rates import MILLION, Rates
from autotune.records import Objective, TrialRecord
from search_spaces import TrainingConfig


def beaten_seconds(
    config: TrainingConfig,
    rivals: Iterable[TrialRecord],
    *,
    objectives: Sequence[Objective],
    rates: Rates,
    num_ranks: int,
) -> float | None:
    """Return the seconds of a step beyond which a config is surely beaten by the front.

    Its throughput falls below the lower end of the rival's, and its cost, counted without any
    memory, rises above the upper end of the rival's.

    Args:
        config: About to be tried.
        rivals: Points of the front whose quality is as good as the config's can be.
        objectives: Of the study.
        rates: Prices of the cost objective.
        num_ranks: Devices that a trial trains on together.

    Returns:
        Seconds of an optimizer step; None where no step is long enough to tell.
    """
    samples = config.micro_batch_size * config.accumulation_steps * num_ranks
    found = [
        max(_limits(rival, objectives, samples, rates.device_usd_per_hour * num_ranks))
        for rival in rivals
    ]
    least = min(found, default=math.inf)
    return None if math.isinf(least) else least


def _limits(
    rival: TrialRecord, objectives: Sequence[Objective], samples: int, usd_per_hour: float
) -> list[float]:
    scores, limits = rival.scores, [0.0]
    if Objective.THROUGHPUT in objectives:
        assert scores.throughput_samples_per_second is not None
        slowest = scores.throughput_samples_per_second - scores.throughput_half_width
        limits.append(samples / slowest if slowest > 0 else math.inf)
    if Objective.COST in objectives:
        assert scores.cost_usd_per_million_samples is not None
        dearest = scores.cost_usd_per_million_samples + scores.cost_half_width
        hours = dearest * samples / MILLION / usd_per_hour if usd_per_hour > 0 else math.inf
        limits.append(3600 * hours)
    return limits if len(limits) > 1 else [math.inf]
