"""Which config to try next: the gain expected of each, weighed with its risk and its cost."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.optimizer.frontier.gain import hypervolume, improvement, is_beaten

Array = NDArray[np.float64]
MARGIN = 0.1
"""Of the front's range, by which the reference point is beyond it."""
NARROWEST = 0.1
"""Least range of the front, relative to its best: of one point it would be none."""
CAUTION = 2.0
"""Power of the probability of fitting."""
THRIFT = 0.2
"""Power of a trial's time: 1 would count seconds alone, 0 trials alone."""
LEADING = 2.0
"""What a relative gain in the first objective counts for, beside that in hypervolume."""
LIKELY = (0.6, 0.85, 0.95)
"""Least probability of fitting of what is tried: before any trial ran out of memory, after one,
after more. Those that did say that the probabilities promise too much."""


class Outlook(NamedTuple):
    """What is expected of every config; less is better.

    Attributes:
        draws: Equally likely objectives: (draws, configs, objectives).
        means: (configs, objectives).
        fits: Probability to keep to the memory budget: (configs,).
        seconds: Expected of a trial: (configs,), or None if unknown.
        is_open: Whether a config may be asked: (configs,).
        overruns: Trials that ran out of memory so far.
    """

    draws: Array
    means: Array
    fits: Array
    seconds: Array | None
    is_open: NDArray[np.bool_]
    overruns: int

    @property
    def is_likely(self) -> NDArray[np.bool_]:
        """Whether a config is likely enough to fit to be tried: (configs,)."""
        return self.fits >= LIKELY[min(self.overruns, len(LIKELY) - 1)]


class Choice(NamedTuple):
    """A config to try.

    Attributes:
        row: Of the config.
        gain: Expected gain in hypervolume, relative to what is there; None before anything is.
        best_gain: The largest that any open config has, likewise.
        fits: Probability to keep to the memory budget.
        losses: Expected objectives, less being better.
    """

    row: int
    gain: float | None
    best_gain: float | None
    fits: float
    losses: tuple[float, ...]


def best_choice(outlook: Outlook, front: Array, running: Sequence[int]) -> Choice:
    """Return the open config with the best expected gain.

    Args:
        outlook: Of every config.
        front: Objectives of what was measured and fits: (trials, objectives).
        running: Rows of the trials under way: they count as what is expected of them.
    """
    expected = [row for row in running if outlook.is_likely[row]]
    have = np.concatenate([front, outlook.means[expected]])
    low, scale = _range(outlook, have)
    reference = np.full(len(low), 1 + MARGIN)
    scaled = (have - low) / scale
    scaled = scaled[~is_beaten(scaled)]
    open_rows = np.flatnonzero(outlook.is_open)
    draws = (outlook.draws[:, open_rows] - low) / scale
    flat = draws.reshape(-1, draws.shape[2])
    gains = improvement(flat, scaled, reference).reshape(draws.shape[:2]).mean(axis=0)
    present = hypervolume(scaled, reference)
    best = min([float(reference[0]), *scaled[:, 0]])
    leads = np.maximum(best - draws[:, :, 0], 0.0).mean(axis=0)
    fits, is_likely = outlook.fits[open_rows], outlook.is_likely[open_rows]
    worth = (gains + LEADING * leads) * fits**CAUTION
    if outlook.seconds is not None:
        worth = worth / outlook.seconds[open_rows] ** THRIFT
    if is_likely.any():
        worth = np.where(is_likely, worth, worth * 1e-3)
    place = int(worth.argmax())
    if worth[place] <= 0:
        place = int((fits - 1e-3 * draws.mean(axis=(0, 2))).argmax())
    row = int(open_rows[place])
    relative = gains * fits / present if present > 0 else None
    return Choice(
        row=row,
        gain=None if relative is None else float(relative[place]),
        best_gain=None if relative is None else float(relative.max()),
        fits=float(fits[place]),
        losses=tuple(float(value) for value in outlook.means[row]),
    )


def _range(outlook: Outlook, have: Array) -> tuple[Array, Array]:
    """Return where the front begins and how far it goes, by measurements and expectations."""
    points = np.concatenate([have, outlook.means[outlook.is_open & outlook.is_likely]])
    if len(points) == 0:
        points = outlook.means
    front = points[~is_beaten(points)]
    low, high = front.min(axis=0), front.max(axis=0)
    scale = np.maximum(high - low, NARROWEST * np.abs(low))
    return low, np.where(scale > 0, scale, 1.0)
