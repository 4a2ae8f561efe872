"""How good a study was: what of the front it had after each trial, and what that took."""

from collections.abc import Sequence
from dataclasses import dataclass

import moocore
import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.replay.table import Table

SHARES = (0.9, 0.95, 0.99)
GAP_TRIALS = (5, 8, 10, 20)
STUDY_TRIALS = max(GAP_TRIALS)
"""That every study has, however soon it has the front."""
REFERENCE_MARGIN = 0.1
"""Of the front's range, by which the reference point is worse than the worst of the front."""
RESAMPLES = 2000
CONFIDENCE = 0.95
_TOLERANCE = 1e-9


class Yardstick:
    """The true front of a table, and what a set of its configs has of it.

    Each objective is scaled so that the front goes from 0 to 1; the reference point lies a tenth
    beyond the worst of the front. A share is a hypervolume over that of the whole table.
    """

    def __init__(self, table: Table) -> None:
        """Find the front."""
        losses = table.losses
        feasible = losses[table.is_feasible]
        front = feasible[moocore.is_nondominated(feasible)]
        low, high = front.min(axis=0), front.max(axis=0)
        scale = np.where(high > low, high - low, 1.0)
        self.front_size = len(np.unique(front, axis=0))
        self._scaled = (losses - low) / scale
        self._reference = np.full(losses.shape[1], 1 + REFERENCE_MARGIN)
        self._whole = self._hypervolume(np.arange(len(losses)))
        self._first = losses[:, 0]
        self._best = float(np.min(self._first))

    def share(self, places: Sequence[int]) -> float:
        """Return what configs have of the whole hypervolume."""
        return self._hypervolume(np.asarray(places, dtype=int)) / self._whole

    def shares(self, places: Sequence[int]) -> NDArray[np.float64]:
        """Return the share after each trial of a study: (trials,)."""
        found, best, kept = [], 0.0, []
        for place in places:
            if np.all(self._scaled[place] < self._reference):
                kept.append(place)
                best = self.share(kept)
            found.append(best)
        return np.array(found)

    def gap(self, places: Sequence[int]) -> float:
        """Return by how much the chosen config falls short of the best of the table.

        It is the best seen in the first objective. Relative to the best; 1 where none fitted.
        """
        seen = self._first[list(places)]
        if not np.isfinite(seen).any():
            return 1.0
        return float(abs(np.min(seen) - self._best) / max(abs(self._best), abs(np.min(seen))))

    def _hypervolume(self, places: NDArray[np.int_]) -> float:
        points = self._scaled[places]
        points = points[np.isfinite(points).all(axis=1)]
        if len(points) == 0:
            return 0.0
        return float(moocore.hypervolume(points, ref=self._reference))


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One study, measured.

    Attributes:
        trials_to: Trials until each of ``SHARES`` was had; infinite if never.
        seconds_to: The same in seconds of trials.
        gap_at: Gap of the chosen config after each of ``GAP_TRIALS``.
        out_of_memory: Of the first ``STUDY_TRIALS``, those that did not fit.
    """

    trials_to: tuple[float, ...]
    seconds_to: tuple[float, ...]
    gap_at: tuple[float, ...]
    out_of_memory: int


def scored(table: Table, yardstick: Yardstick, places: Sequence[int]) -> Score:
    """Measure a study by the configs it tried, in order."""
    shares = yardstick.shares(places)
    seconds = np.cumsum([table.entries[place].trial_seconds for place in places])
    reached = [np.flatnonzero(shares >= share - _TOLERANCE) for share in SHARES]
    firsts = [int(found[0]) if len(found) else None for found in reached]
    tried = [table.entries[place] for place in places[:STUDY_TRIALS]]
    return Score(
        trials_to=tuple(float("inf") if f is None else f + 1.0 for f in firsts),
        seconds_to=tuple(float("inf") if f is None else float(seconds[f]) for f in firsts),
        gap_at=tuple(yardstick.gap(places[:trials]) for trials in GAP_TRIALS),
        out_of_memory=sum(entry.is_out_of_memory for entry in tried),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A median over seeds with its bootstrap interval. Infinite where most never got there."""

    median: float
    low: float
    high: float


def estimated(values: Sequence[float], seed: int = 0) -> Estimate:
    """Return the median of values, and the 95 % interval of it by resampling them."""
    found = np.sort(np.asarray(values, dtype=float))
    order = np.random.default_rng(seed)
    draws = np.sort(order.choice(found, size=(RESAMPLES, len(found))), axis=1)
    tail = (1 - CONFIDENCE) / 2
    medians = np.sort(_medians(draws))
    low, high = (medians[round(q * (RESAMPLES - 1))] for q in (tail, 1 - tail))
    return Estimate(median=float(_medians(found[None])[0]), low=float(low), high=float(high))


def _medians(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return medians of sorted rows; the upper of two middle values, as infinity has no mean."""
    return rows[:, rows.shape[1] // 2]
