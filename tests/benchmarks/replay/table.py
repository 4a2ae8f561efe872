"""A table: every config of a space with what a real trial of it found, in one file.

A table is a file of JSON lines, ``.jsonl`` or gzipped as ``.jsonl.gz``. The first line is the
header, an object with the fields of ``Header``; each other line is one config with the fields of
``Entry``, in which knobs at their default may be left out. Bytes and seconds throughout.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.rates import Rates
from search_spaces import SearchSpace, TrainingConfig, stable_hash
from tests.benchmarks.replay.errors import TableError
from trials.codec import from_plain, to_plain
from trials.environment import Environment
from trials.errors import SpecError
from trials.measurement import Direction, Outcome

FORMAT = 1
FEWEST_FEASIBLE = 2
T = TypeVar("T")


class Axis(StrEnum):
    """What a table's configs are compared by: autotune's objectives, and the peak itself."""

    THROUGHPUT = "throughput"
    PEAK_MEMORY = "peak_memory"
    COST = "cost"
    QUALITY = "quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """First line of a table.

    Attributes:
        format: Of the file; 1.
        name: Of the table.
        workload: Reference, as in ``TrialSpec``.
        space: Of which every config that may run is in the table.
        objectives: The first is what the chosen config is best in.
        quality_direction: Of the workload's metric.
        memory_budget_bytes: Of each trial; None where the device's own limit stood.
        rates: Of the cost objective.
        noise: What differs from one run of a config to the next: relative standard deviation of
            ``step_seconds`` and ``peak_device_bytes``, half width of the 95 % interval of
            ``quality``, and ``runs``, from how many that is known.
        environment: Device and versions.
        date: Of the first trial, YYYY-MM-DD.
        how: How it was recorded, for people.
    """

    format: int
    name: str
    workload: str
    space: SearchSpace
    objectives: tuple[Axis, ...]
    quality_direction: Direction
    memory_budget_bytes: int | None
    rates: Rates
    noise: dict[str, float]
    environment: Environment
    date: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is predicted of a config without any trial.

    Attributes:
        peak_device_bytes: Of device memory.
        step_seconds: Of an optimizer step.
        trial_seconds: Of a whole trial.
        peak_errors: How the logarithm of the peak may be off for causes that configs share: one
            standard deviation of each cause, in the same order in every line; may be left out.
        step_errors: The same of the step.
    """

    peak_device_bytes: float
    step_seconds: float
    trial_seconds: float
    peak_errors: tuple[float, ...] = ()
    step_errors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One config of a table.

    Attributes:
        config: The config.
        outcome: How its trial ended.
        trial_seconds: Wall time that the trial cost.
        peak_device_bytes: Measured; None unless completed.
        step_seconds: Of an optimizer step; None unless completed.
        samples_per_second: None unless completed.
        cost_usd_per_million_samples: At the header's rates; None unless completed.
        quality: Of its numerics class; None where it is no objective.
        constraints: As a sampler is told them, feasible when none is above 0; memory is
            attempted over budget, less 1.
        prior: Predicted.
    """

    config: TrainingConfig
    outcome: Outcome
    trial_seconds: float
    peak_device_bytes: int | None = None
    step_seconds: Span | None = None
    samples_per_second: float | None = None
    cost_usd_per_million_samples: float | None = None
    quality: float | None = None
    constraints: dict[str, float]
    prior: Prior

    @property
    def is_feasible(self) -> bool:
        """Whether the trial completed within every limit."""
        is_kept = max(self.constraints.values()) <= 0
        return self.outcome == Outcome.COMPLETED and is_kept

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the config did not fit."""
        return self.outcome == Outcome.OUT_OF_MEMORY

    def value(self, objective: Axis) -> float | None:
        """Return a measured objective, in its own direction."""
        return {
            Axis.COST: self.cost_usd_per_million_samples,
            Axis.THROUGHPUT: self.samples_per_second,
            Axis.PEAK_MEMORY: self.peak_device_bytes,
            Axis.QUALITY: self.quality,
        }[objective]


@dataclass(frozen=True)
class Table:
    """A header and every config, in the order of the file."""

    header: Header
    entries: tuple[Entry, ...]

    @cached_property
    def configs(self) -> list[TrainingConfig]:
        """Every config, by place."""
        return [entry.config for entry in self.entries]

    @cached_property
    def hash(self) -> str:
        """Identity of what the table says."""
        return stable_hash([to_plain(self.header), *map(to_plain, self.entries)])

    @cached_property
    def is_feasible(self) -> NDArray[np.bool_]:
        """Whether each config completed within every limit."""
        return np.array([entry.is_feasible for entry in self.entries], dtype=np.bool_)

    @cached_property
    def signs(self) -> NDArray[np.float64]:
        """Of each objective: 1 where less is better, -1 where more is."""
        directions = self.directions
        return np.array([1.0 if d == Direction.MINIMIZE else -1.0 for d in directions])

    @property
    def directions(self) -> list[Direction]:
        """Which way each objective gets better."""
        known = {
            Axis.THROUGHPUT: Direction.MAXIMIZE,
            Axis.QUALITY: self.header.quality_direction,
        }
        return [known.get(axis, Direction.MINIMIZE) for axis in self.header.objectives]

    @cached_property
    def losses(self) -> NDArray[np.float64]:
        """Objectives of each config turned so that less is better; infinite if infeasible."""
        rows = np.full((len(self.entries), len(self.header.objectives)), np.inf)
        for place in np.flatnonzero(self.is_feasible):
            entry = self.entries[place]
            rows[place] = [entry.value(objective) for objective in self.header.objectives]
        return np.where(np.isinf(rows), np.inf, rows * self.signs)

    def with_inverted_prior(self) -> "Table":
        """Return the table with a prior that is wrong in every comparison it makes.

        The logarithm of each prediction is reflected about the mean of all: what was predicted
        to be the largest is the smallest now.
        """
        logs = np.log([_numbers(entry.prior) for entry in self.entries])
        turned = np.exp(2 * logs.mean(axis=0) - logs)
        entries = [
            replace(
                e, prior=replace(e.prior, peak_device_bytes=p, step_seconds=s, trial_seconds=t)
            )
            for e, (p, s, t) in zip(self.entries, turned.tolist(), strict=True)
        ]
        return Table(self.header, tuple(entries))


def read_table(path: Path) -> Table:
    """Read a table.

    Raises:
        TableError: There is none, or it is broken; the message names the line.
    """
    try:
        lines = _text(path).splitlines()
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise TableError(f"table {str(path)!r} cannot be read: {error}") from error
    if not lines:
        raise TableError(f"table {str(path)!r} is empty; its first line is the header")
    header = _parsed(Header, lines[0], f"{path}, line 1")
    if header.format != FORMAT:
        raise TableError(f"{path}, line 1: format={header.format}; this program reads {FORMAT}")
    entries = [
        _entry(header, line, f"{path}, line {number}")
        for number, line in enumerate(lines[1:], start=2)
    ]
    _require_comparable(entries, path)
    return Table(header, tuple(entries))


def write_table(table: Table, path: Path) -> None:
    """Write a table; gzipped, with the same bytes for the same table, where the name ends so."""
    lines = [to_plain(table.header), *(_compact(entry) for entry in table.entries)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    is_zipped = path.suffix == ".gz"
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if is_zipped else text.encode())


def _text(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()


def _parsed(kind: type[T], line: str, place: str) -> T:
    try:
        return from_plain(kind, json.loads(line))
    except json.JSONDecodeError as error:
        raise TableError(f"{place} is no JSON: {error}") from error
    except (SpecError, ValueError) as error:
        raise TableError(f"{place}: {error}") from error


def _entry(header: Header, line: str, place: str) -> Entry:
    entry = _parsed(Entry, line, place)
    if not entry.constraints:
        raise TableError(f"{place}: constraints is empty; give at least memory")
    lacking = [str(o) for o in header.objectives if entry.value(o) is None]
    if entry.is_feasible and lacking:
        raise TableError(f"{place}: a completed config without {', '.join(lacking)}")
    if min(_numbers(entry.prior)) <= 0 or entry.trial_seconds <= 0:
        raise TableError(f"{place}: trial_seconds and everything in prior must be above 0")
    return entry


def _require_comparable(entries: Sequence[Entry], path: Path) -> None:
    for config, times in Counter(entry.config for entry in entries).items():
        if times > 1:
            raise TableError(f"{path} has {times} lines of {config}; keep one")
    if sum(entry.is_feasible for entry in entries) < FEWEST_FEASIBLE:
        raise TableError(f"{path} has fewer than {FEWEST_FEASIBLE} configs that fit: no front")


def _numbers(prior: Prior) -> list[float]:
    return [prior.peak_device_bytes, prior.step_seconds, prior.trial_seconds]


def _compact(entry: Entry) -> dict[str, Any]:
    """Return an entry without knobs at their default and with numbers of six digits."""
    usual = TrainingConfig().as_dict()
    plain: dict[str, Any] = to_plain(entry)
    plain["config"] = {k: v for k, v in plain["config"].items() if v != usual[k]}
    return dict(_shortened(plain))


def _shortened(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield name, dict(_shortened(value))
        elif isinstance(value, float):
            yield name, float(f"{value:.6g}")
        elif isinstance(value, list):
            yield name, [float(f"{number:.4g}") for number in value]
        elif value is not None:
            yield name, value
