"""One quantity of every config: predicted by physics, corrected by trials, or learnt alone.

Two Gaussian processes explain the logarithm of what was measured: one its distance from the
prediction, one the measurements themselves. Each counts as much as its evidence says, so a
prediction that is contradicted loses its say.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.optimizer.frontier.gain import normal_cdf
from autotune.optimizer.frontier.gaussian import Process, Scales

Array = NDArray[np.float64]
TRUST = 3.0
"""Logarithm of the odds of the prediction before any trial."""
_SPREAD = 0.5
_UNKNOWN_LEVEL = 1.0


class Usual(NamedTuple):
    """Relative standard deviations.

    Attributes:
        bias: Of predictions, the same for every config.
        error: Of predictions, from config to config.
        noise: Of one measurement.
    """

    bias: float
    error: float
    noise: float


class Belief:
    """The logarithm of a quantity, or a quantity of any sign, of every config of a space."""

    def __init__(self, features: Array, predicted: Array | None, usual: Usual) -> None:
        """Believe a prediction, if there is one, within its usual error.

        Args:
            features: Of every config: (configs, features).
            predicted: Logarithm of the prediction of every config.
            usual: How far off predictions and measurements usually are.
        """
        self._features, self._predicted = features, predicted
        width = features.shape[1]
        alone = Scales.of(width, level=_UNKNOWN_LEVEL, amplitude=_SPREAD, noise=usual.noise)
        helped = Scales.of(width, level=usual.bias, amplitude=usual.error, noise=usual.noise)
        self._scales = [alone] if predicted is None else [helped, alone]
        self._starts: list[Array | None] = [None] * len(self._scales)
        self.weight = 0.0 if predicted is None else 1.0

    def expect(self, tried: Sequence[int], measured: Sequence[float]) -> "Expectation":
        """Return what is expected of every config.

        Args:
            tried: Rows of the measured configs.
            measured: Logarithms of what was measured.
        """
        rows, values = list(tried), np.array(measured, dtype=float)
        centre = self._centre(values)
        offsets = [np.full(len(self._features), centre)]
        if self._predicted is not None:
            offsets.insert(0, self._predicted)
        fits = []
        for place, (scales, offset) in enumerate(zip(self._scales, offsets, strict=True)):
            targets = values - offset[rows]
            process = Process.fit(scales, self._features[rows], targets, self._starts[place])
            self._starts[place] = process.fitted
            fits.append(process)
        if len(fits) == 2:
            odds = TRUST + fits[0].evidence() - fits[1].evidence()
            self.weight = float(1 / (1 + np.exp(-np.clip(odds, -50.0, 50.0))))
        shares = np.array([self.weight, 1 - self.weight] if len(fits) == 2 else [1.0])
        found = [process.predict(self._features) for process in fits]
        means = [mean + offset for (mean, _), offset in zip(found, offsets, strict=True)]
        return Expectation(shares, np.array(means), np.array([width for _, width in found]))

    def _centre(self, values: Array) -> float:
        if len(values):
            return float(values.mean())
        return 0.0 if self._predicted is None else float(self._predicted.mean())


class Expectation(NamedTuple):
    """A mixture of normal distributions for each config.

    Attributes:
        shares: Of each part, 1 in all: (parts,).
        means: (parts, configs).
        widths: Standard deviations: (parts, configs).
    """

    shares: Array
    means: Array
    widths: Array

    @property
    def mean(self) -> Array:
        """Mean of each config: (configs,)."""
        return np.asarray(self.shares @ self.means)

    def below(self, limit: float) -> Array:
        """Return the probability of each config to stay below a limit: (configs,)."""
        scores = (limit - self.means) / self.widths
        return np.asarray(self.shares @ np.array([normal_cdf(row) for row in scores]))

    def draws(self, normals: Array) -> Array:
        """Return equally likely values of each config, from standard normals: (draws, configs).

        The parts have their share of the draws, to the nearest.
        """
        ends = np.rint(np.cumsum(self.shares) * len(normals)).astype(int)
        part = np.searchsorted(ends, np.arange(len(normals)), side="right")
        part = np.minimum(part, len(self.shares) - 1)
        return self.means[part] + normals * self.widths[part]
