"""What a config saves in time and money against today's, and how sure that is. Pure."""

import math
from dataclasses import dataclass
from typing import Any

from autotune.rates import MILLION
from autotune.records import TrialRecord

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One quantity of two configs, and the share of it that the second saves.

    Attributes:
        before: Of the baseline.
        after: Of the other config.
        share: Saved, of ``before``; negative where the other takes more.
        least_share: Lower end of the 95 % interval; minus infinity where the baseline's noise
            leaves it open.
        most_share: Upper end.
    """

    before: float
    after: float
    share: float
    least_share: float
    most_share: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out that nothing is saved or lost."""
        return self.least_share > 0 or self.most_share < 0

    def __str__(self) -> str:
        """Say the share with its interval, and whether it may be noise."""
        word = "less" if self.share >= 0 else "more"
        ends = sorted((abs(self.least_share), abs(self.most_share)))
        if not self.is_sure:
            ends = [self.least_share, self.most_share]
            word = f"{word}, which may be noise"
        low, high = (f"{end:.1%}" if math.isfinite(end) else "any" for end in ends)
        return f"{abs(self.share):.1%} {word} (95 % interval {low} to {high})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What a config saves against the baseline, for a million samples.

    Attributes:
        baseline: Number of the baseline's trial.
        chosen: Number of the other trial.
        hours: Time of training them.
        usd: Money, at the prices of the trials' scores.
    """

    baseline: int
    chosen: int
    hours: Saving
    usd: Saving

    def __str__(self) -> str:
        """Say both."""
        return f"against the baseline (trial {self.baseline}): money {self.usd}; time {self.hours}"

    def hours_of_run(self, samples: int) -> float:
        """Return the hours that a run of so many samples takes less."""
        return (self.hours.before - self.hours.after) * samples / MILLION

    def usd_of_run(self, samples: int) -> float:
        """Return the US dollars that a run of so many samples costs less."""
        return (self.usd.before - self.usd.after) * samples / MILLION


def savings_of(chosen: TrialRecord, baseline: TrialRecord) -> Savings | None:
    """Return what one trial saves against another; None where one of them has no scores.

    Args:
        chosen: Scored, at the prices that count: a study's own, or those of ``reprice``.
        baseline: Likewise; the trial of today's configuration.
    """
    new, old = chosen.scores, baseline.scores
    costs = (old.cost_usd_per_million_samples, new.cost_usd_per_million_samples)
    speeds = (old.throughput_samples_per_second, new.throughput_samples_per_second)
    if None in (*costs, *speeds) or chosen.number == baseline.number:
        return None
    (old_cost, new_cost), (old_speed, new_speed) = (
        tuple(float(value or 0) for value in pair) for pair in (costs, speeds)
    )
    return Savings(
        baseline=baseline.number,
        chosen=chosen.number,
        hours=saving(
            *(MILLION / speed / SECONDS_PER_HOUR for speed in (old_speed, new_speed)),
            before_noise=old.throughput_half_width / old_speed,
            after_noise=new.throughput_half_width / new_speed,
        ),
        usd=saving(
            old_cost,
            new_cost,
            before_noise=old.cost_half_width / old_cost if old_cost else 0.0,
            after_noise=new.cost_half_width / new_cost if new_cost else 0.0,
        ),
    )


def savings_document(savings: Savings) -> dict[str, Any]:
    """Return savings as a document; an end that is open is None."""
    return {
        "baseline": savings.baseline,
        "usd": _document(savings.usd),
        "hours": _document(savings.hours),
    }


def _document(saving: Saving) -> dict[str, Any]:
    least = saving.least_share if math.isfinite(saving.least_share) else None
    return {
        "per_million_samples_before": saving.before,
        "per_million_samples_after": saving.after,
        "saved_share": saving.share,
        "saved_share_least": least,
        "saved_share_most": saving.most_share,
    }


def saving(before: float, after: float, *, before_noise: float, after_noise: float) -> Saving:
    """Return the share of a quantity that is saved, with its 95 % interval.

    Source: Fieller (1954), the interval of a ratio of two independent means: with a, b the means
    and p, q their half widths, the ends are (ab -+ sqrt(a^2 b^2 - (a^2 - p^2)(b^2 - q^2))) /
    (b^2 - q^2). It is not symmetric, and open where b may be 0.

    Args:
        before: The baseline's mean, above 0 where anything is to be saved.
        after: The other's.
        before_noise: Half of the baseline's 95 % interval, over its mean.
        after_noise: Likewise, of the other.
    """
    if before == 0:
        return Saving(before=before, after=after, share=0.0, least_share=0.0, most_share=0.0)
    ratio, spread = after / before, 1 - before_noise**2
    if spread <= 0:
        low, high = 0.0, math.inf
    else:
        root = math.sqrt(1 - (1 - after_noise**2) * spread)
        low, high = (max(0.0, ratio * (1 + sign * root) / spread) for sign in (-1, 1))
    return Saving(
        before=before, after=after, share=1 - ratio, least_share=1 - high, most_share=1 - low
    )
