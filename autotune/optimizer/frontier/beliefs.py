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
from autotune.optimizer.frontier.gaussian import Places, Process, Scales

Array = NDArray[np.float64]
TRUST = 1.0
"""Logarithm of the odds of the prediction before any trial."""
_SPREAD = 0.5
_UNKNOWN_LEVEL = 1.0


class Usual(NamedTuple):
    """Relative standard deviations.

    Attributes:
        bias: Of predictions, the same for every config, for causes that are not known.
        error: Of predictions, from config to config.
        noise: Of one measurement.
    """

    bias: float
    error: float
    noise: float


class Guess(NamedTuple):
    """Predictions of every config, before any trial.

    Attributes:
        mean: Logarithm of each: (configs,).
        errors: One standard deviation of each cause that may put it off: (configs, causes).
    """

    mean: Array
    errors: Array


class Belief:
    """The logarithm of a quantity, or a quantity of any sign, of every config of a space."""

    def __init__(self, features: Array, guess: Guess | None, usual: Usual) -> None:
        """Believe a prediction, if there is one, within its usual error.

        Args:
            features: Of every config: (configs, features).
            guess: Of every config, before any trial.
            usual: How far off predictions and measurements usually are.
        """
        self._predicted = None if guess is None else guess.mean
        count, width = features.shape
        level = np.ones((count, 1))
        self._scales = [Scales.of(width, amplitude=_SPREAD, noise=usual.noise)]
        self._places = [Places(features, _UNKNOWN_LEVEL * level)]
        if guess is not None:
            causes = np.concatenate([usual.bias * level, guess.errors], axis=1)
            self._scales.insert(0, Scales.of(width, amplitude=usual.error, noise=usual.noise))
            self._places.insert(0, Places(features, causes))
        self._starts: list[Array | None] = [None] * len(self._scales)
        self.weight = 0.0 if guess is None else 1.0

    def expect(self, tried: Sequence[int], measured: Sequence[float]) -> "Expectation":
        """Return what is expected of every config.

        Args:
            tried: Rows of the measured configs.
            measured: Logarithms of what was measured.
        """
        rows, values = list(tried), np.array(measured, dtype=float)
        centre = self._centre(values)
        offsets = [np.full(len(self._places[0].features), centre)]
        if self._predicted is not None:
            offsets.insert(0, self._predicted)
        fits = []
        for place, (scales, offset) in enumerate(zip(self._scales, offsets, strict=True)):
            targets = values - offset[rows]
            observed = self._places[place].at(rows)
            process = Process.fit(scales, observed, targets, self._starts[place])
            self._starts[place] = process.fitted
            fits.append(process)
        if len(fits) == 2:
            odds = TRUST + fits[0].evidence() - fits[1].evidence()
            self.weight = float(1 / (1 + np.exp(-np.clip(odds, -50.0, 50.0))))
        shares = np.array([self.weight, 1 - self.weight] if len(fits) == 2 else [1.0])
        found = [p.predict(places) for p, places in zip(fits, self._places, strict=True)]
        noise = [float(np.exp(process.fitted[1])) for process in fits]
        means = [mean + offset for (mean, _), offset in zip(found, offsets, strict=True)]
        widths = np.array([width for _, width in found])
        return Expectation(shares, np.array(means), widths, np.array(noise)[:, None])

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
        noise: Standard deviation of one measurement beside them: (parts, 1).
    """

    shares: Array
    means: Array
    widths: Array
    noise: Array

    @property
    def mean(self) -> Array:
        """Mean of each config: (configs,)."""
        return np.asarray(self.shares @ self.means)

    def below(self, limit: float) -> Array:
        """Return the probability of each config's measurement to be below a limit: (configs,)."""
        scores = (limit - self.means) / np.hypot(self.widths, self.noise)
        return np.asarray(self.shares @ np.array([normal_cdf(row) for row in scores]))

    def draws(self, normals: Array) -> Array:
        """Return equally likely values of each config, from standard normals: (draws, configs).

        The parts have their share of the draws, to the nearest.
        """
        ends = np.rint(np.cumsum(self.shares) * len(normals)).astype(int)
        part = np.searchsorted(ends, np.arange(len(normals)), side="right")
        part = np.minimum(part, len(self.shares) - 1)
        return self.means[part] + normals * self.widths[part]
