"""A small exact Gaussian process, fitted by its own evidence. Pure numpy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LENGTH = 0.25
_STEPS = 12
MANY = 100
"""Observations from which a fit goes on from the last one in few steps."""
_STEPS_OF_MANY = 3
_FIRST_STEP = 0.3
_LARGEST_STEP = 0.6
_SMALLEST_STEP = 0.01
_JITTER = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """What is believed of a function before it was seen, in natural logarithms.

    Attributes:
        median: Of each fitted scale, in the order amplitude, noise, one length per feature.
        width: Standard deviation of the same.
    """

    median: Array
    width: Array

    @classmethod
    def of(cls, num_features: int, *, amplitude: float, noise: float) -> Self:
        """Return scales for features in the unit box.

        Lengths grow with the square root of the number of features, as in Hvarfner, Hellsten and
        Nardi, "Vanilla Bayesian optimization performs great in high dimensions" (2024).
        """
        length = LENGTH * np.sqrt(max(1, num_features))
        lengths = np.full(num_features, np.log(length))
        median = np.concatenate([[np.log(amplitude), np.log(noise)], lengths])
        width = np.concatenate([[0.6, 0.7], np.full(num_features, 0.8)])
        return cls(median=median, width=width)


class Places(NamedTuple):
    """Where a function is looked at.

    Attributes:
        features: In the unit box; the function is smooth over them: (places, features).
        causes: Of what it adds to that: one standard deviation of each cause, of any sign, by
            which it is linear: (places, causes).
    """

    features: Array
    causes: Array

    def at(self, rows: Sequence[int]) -> "Places":
        """Return some of the places."""
        return Places(self.features[rows], self.causes[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A Gaussian process with some observations.

    Attributes:
        scales: What it started from.
        fitted: Logarithms of amplitude, noise and lengths.
        inputs: Observed places.
        targets: What was observed there.
    """

    scales: Scales
    fitted: Array
    inputs: Places
    targets: Array

    @classmethod
    def fit(
        cls, scales: Scales, inputs: Places, targets: Array, start: Array | None = None
    ) -> Self:
        """Fit scales to observations by resilient steps along the gradient of the evidence.

        Args:
            scales: What is believed before.
            inputs: Where it was observed.
            targets: Observations.
            start: Fitted scales of an earlier fit, to go on from.
        """
        first = scales.median if start is None else start
        process = cls(scales=scales, fitted=first, inputs=inputs, targets=targets)
        return process._climbed() if len(targets) > 1 else process

    def predict(self, places: Places) -> tuple[Array, Array]:
        """Return mean and standard deviation of the function at places, without noise."""
        variance = np.exp(2 * self.fitted[0]) + (places.causes**2).sum(axis=1)
        if len(self.targets) == 0:
            return np.zeros(len(places.features)), np.sqrt(variance)
        inverse = np.linalg.inv(self._covariance()[0])
        between = places.causes @ self.inputs.causes.T
        between = between + self._similarity(places.features, self.inputs.features)
        mean = between @ (inverse @ self.targets)
        explained = np.einsum("ij,ij->i", between @ inverse, between)
        return mean, np.sqrt(np.maximum(variance - explained, 1e-10))

    def evidence(self) -> float:
        """Return the logarithm of the density of the observations and the scales together."""
        if len(self.targets) == 0:
            return 0.0
        covariance, _ = self._covariance()
        _, log_determinant = np.linalg.slogdet(covariance)
        fit = self.targets @ np.linalg.solve(covariance, self.targets)
        constant = len(self.targets) * np.log(2 * np.pi)
        off = (self.fitted - self.scales.median) / self.scales.width
        return float(-(fit + log_determinant + constant) / 2 - (off @ off) / 2)

    def _climbed(self) -> Self:
        process, step, last = self, np.full(len(self.fitted), _FIRST_STEP), None
        for _ in range(_STEPS if len(self.targets) < MANY else _STEPS_OF_MANY):
            gradient = process._gradient()
            if last is not None:
                grown = np.where(gradient * last > 0, 1.3, 0.5)
                step = np.clip(step * grown, _SMALLEST_STEP, _LARGEST_STEP)
            last = gradient
            process = replace(process, fitted=process.fitted + step * np.sign(gradient))
        return process

    def _gradient(self) -> Array:
        covariance, similarity = self._covariance()
        inverse = np.linalg.inv(covariance)
        weights = inverse @ self.targets
        pull = np.outer(weights, weights) - inverse
        pulled = pull * similarity
        lengths = np.exp(self.fitted[2:])
        slopes = [pulled.sum(), np.trace(pull) * np.exp(2 * self.fitted[1])]
        for column, length in zip(self.inputs.features.T, lengths, strict=True):
            apart = (column[:, None] - column[None, :]) / length
            slopes.append(float(np.sum(pulled * apart**2)) / 2)
        return np.array(slopes) - (self.fitted - self.scales.median) / self.scales.width**2

    def _covariance(self) -> tuple[Array, Array]:
        features, causes = self.inputs
        similarity = self._similarity(features, features)
        own = np.exp(2 * self.fitted[1]) + _JITTER
        return causes @ causes.T + similarity + own * np.eye(len(causes)), similarity

    def _similarity(self, left: Array, right: Array) -> Array:
        lengths = np.exp(self.fitted[2:])
        a, b = left / lengths, right / lengths
        apart = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T
        return np.asarray(np.exp(2 * self.fitted[0] - np.maximum(apart, 0.0) / 2))
