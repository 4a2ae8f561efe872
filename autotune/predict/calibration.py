"""Correct predictions by what trials measured, and say how far off they may still be.

The logarithm of measured over predicted is taken to be linear in a few features of a config,
with a prior around no correction (Bayesian linear regression). Intervals are conformal: each
trial is predicted from the others (jackknife), and the interval is as wide as it must be for the
stated share of those predictions to hold (Barber et al. 2021; Vovk et al. 2005).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

COVERAGE = 0.9
"""Share of trials that an interval is to hold."""
_USUAL = NormalDist().inv_cdf(0.5 + COVERAGE / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A prediction and what it may be instead, with ``COVERAGE``."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is believed before any trial.

    Attributes:
        widths: Standard deviation of the coefficient of each feature.
        noise: Standard deviation of what no feature explains.
    """

    widths: tuple[float, ...]
    noise: float

    def errors(self, features: Sequence[float]) -> tuple[float, ...]:
        """Return one standard deviation of the correction that each feature may bring."""
        return tuple(width * x for width, x in zip(self.widths, features, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrector:
    """A correction learnt from trials.

    Attributes:
        coefficients: Of the features.
        covariance: Of the coefficients.
        noise: Standard deviation of a trial around them.
        stretch: Standard deviations to each side that an interval takes.
        num_trials: Learnt from.
    """

    coefficients: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    noise: float
    stretch: float = _USUAL
    num_trials: int = 0

    @classmethod
    def learnt(
        cls,
        prior: Prior,
        features: Sequence[Sequence[float]] = (),
        log_ratios: Sequence[float] = (),
    ) -> Self:
        """Return the correction that fits trials and prior.

        Args:
            prior: Before any trial.
            features: Of each trial.
            log_ratios: Logarithm of measured over predicted, of each trial.
        """
        precision = 1 / prior.noise**2
        size = len(prior.widths)
        normal = [
            [
                precision * sum(row[i] * row[j] for row in features)
                + (prior.widths[i] ** -2 if i == j else 0.0)
                for j in range(size)
            ]
            for i in range(size)
        ]
        covariance = _inverse(normal)
        moments = [
            precision * sum(row[i] * y for row, y in zip(features, log_ratios, strict=True))
            for i in range(size)
        ]
        coefficients = tuple(_dot(line, moments) for line in covariance)
        fitted = cls(coefficients=coefficients, covariance=covariance, noise=prior.noise)
        scores = [fitted.score(row, y) for row, y in zip(features, log_ratios, strict=True)]
        return cls(
            coefficients=coefficients,
            covariance=covariance,
            noise=prior.noise,
            stretch=_conformal(scores),
            num_trials=len(scores),
        )

    def corrected(self, value: float, features: Sequence[float]) -> Interval:
        """Return a prediction, corrected, with its interval."""
        mean = value * math.exp(_dot(self.coefficients, features))
        factor = math.exp(self.stretch * self.deviation(features))
        return Interval(low=mean / factor, mean=mean, high=mean * factor)

    def probability_below(self, limit: float, value: float, features: Sequence[float]) -> float:
        """Return how likely the quantity stays below a limit."""
        width = self.deviation(features) * self.stretch / _USUAL
        gap = math.log(limit / value) - _dot(self.coefficients, features)
        return NormalDist().cdf(gap / width)

    def deviation(self, features: Sequence[float]) -> float:
        """Return the standard deviation of a prediction's logarithm."""
        return math.sqrt(self.noise**2 + self._spread(features))

    def _spread(self, features: Sequence[float]) -> float:
        return _dot(features, [_dot(line, features) for line in self.covariance])

    def score(self, features: Sequence[float], log_ratio: float) -> float:
        """Return how many deviations a trial is off when it is predicted from the others.

        Leaving one out changes a residual by 1 / (1 - leverage), and the deviation by its root.
        """
        leverage = min(1 - 1e-9, self._spread(features) / self.noise**2)
        residual = abs(log_ratio - _dot(self.coefficients, features))
        return residual / (self.noise * math.sqrt(1 - leverage))


def _conformal(scores: Sequence[float]) -> float:
    """Return the score that the next trial keeps to with ``COVERAGE``.

    With too few trials for that, the prior's, or the largest score if that is larger.
    """
    rank = math.ceil((len(scores) + 1) * COVERAGE)
    if rank <= len(scores):
        return sorted(scores)[rank - 1]
    return max([_USUAL, *scores])


def _dot(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(first, second, strict=True))


def _inverse(matrix: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Return the inverse of a small positive definite matrix (Gauss and Jordan)."""
    size = len(matrix)
    rows = [[*line, *(float(i == j) for j in range(size))] for i, line in enumerate(matrix)]
    for i in range(size):
        pivot = rows[i][i]
        rows[i] = [value / pivot for value in rows[i]]
        for j in range(size):
            if j != i:
                factor = rows[j][i]
                rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i], strict=True)]
    return tuple(tuple(line[size:]) for line in rows)
