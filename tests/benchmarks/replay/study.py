"""One replayed study: a sampler asks, the table answers. And those that were replayed before."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.replay.metrics import SHARES, STUDY_TRIALS, Score, Yardstick, scored
from tests.benchmarks.replay.samplers import Sampler, sampler_maker
from tests.benchmarks.replay.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A study that was replayed.

    Attributes:
        places: Of the configs tried, in order.
        score: How good it was.
        sampler_seconds: Wall time of asking and telling.
    """

    places: tuple[int, ...]
    score: Score
    sampler_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyKey:
    """Which study: of what table, by what sampler, from which seed, of how many trials at most."""

    table: str
    sampler: str
    seed: int
    trials: int


def study_of(key: StudyKey, table: Table, yardstick: Yardstick) -> Replayed:
    """Replay a study."""
    sampler = sampler_maker(key.sampler)(table, key.seed)
    return replay(table, yardstick, sampler, key.trials)


def replay(table: Table, yardstick: Yardstick, sampler: Sampler, max_trials: int) -> Replayed:
    """Let a sampler search a table until it has the last share, ends, or has had its trials."""
    places: list[int] = []
    spent = 0.0
    while len(places) < max_trials:
        began = time.perf_counter()
        place = sampler.ask()
        if place is None:
            break
        sampler.tell(place, table.entries[place])
        spent += time.perf_counter() - began
        places.append(place)
        if len(places) >= STUDY_TRIALS and yardstick.share(places) >= SHARES[-1]:
            break
    return replayed(table, yardstick, places, spent)


def replayed(table: Table, yardstick: Yardstick, places: list[int], seconds: float) -> Replayed:
    """Return a study by the configs that it tried."""
    score = scored(table, yardstick, places)
    return Replayed(places=tuple(places), score=score, sampler_seconds=seconds)


class KeptStudies:
    """Studies in a file of JSON lines, so that none is replayed twice."""

    def __init__(self, path: Path | None) -> None:
        """Read what is there; without a path, keep nothing."""
        self._path = path
        self._known: dict[StudyKey, tuple[list[int], float]] = {}
        if path is not None and path.exists():
            whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
            for line in whole.splitlines():
                document = json.loads(line)
                key = StudyKey(**document["study"])
                self._known[key] = document["places"], document["sampler_seconds"]

    def get_or(
        self,
        key: StudyKey,
        table: Table,
        yardstick: Yardstick,
        run: Callable[[StudyKey, Table, Yardstick], Replayed],
    ) -> Replayed:
        """Return a study that is kept, or run it and keep it."""
        if key in self._known:
            places, seconds = self._known[key]
            return replayed(table, yardstick, places, seconds)
        study = run(key, table, yardstick)
        if self._path is not None:
            document = {
                "study": {name: getattr(key, name) for name in StudyKey.__slots__},
                "places": list(study.places),
                "sampler_seconds": study.sampler_seconds,
            }
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(document, separators=(",", ":")) + "\n")
        return study
