"""The log of a recording: one line for each trial that ended, whatever ends the recorder."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from search_spaces import TrainingConfig
from tests.benchmarks.replay.errors import TableError
from trials.codec import from_plain, to_plain
from trials.environment import Environment
from trials.measurement import Measurement, WorkloadFacts
from trials.spec import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One trial of a recording.

    Attributes:
        config: What is run.
        task: ``measure`` or ``quality``.
        memory_budget_bytes: Under which; None leaves the device's own limit.
        repeat: Which time it is run, from 0; the seed of a quality run.
    """

    config: TrainingConfig
    task: Task = Task.MEASURE
    memory_budget_bytes: int | None = None
    repeat: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A trial that ended.

    Attributes:
        job: What it was.
        measurement: What it found.
        seconds: Wall time from asking for it to its result.
    """

    job: Job
    measurement: Measurement
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """First line of a log: of what and where it is.

    Attributes:
        recipe: Its name.
        facts: Of the workload.
        environment: On what the trials run.
        begun_at: UTC, ISO 8601.
    """

    recipe: str
    facts: WorkloadFacts
    environment: Environment
    begun_at: str


class RunLog:
    """Runs in a file of JSON lines. A last line that was cut short is run again."""

    def __init__(self, path: Path) -> None:
        """Read what is there, and cut off a line without an end."""
        self._path = path
        self.begun: Begun | None = None
        self.by_job: dict[Job, Run] = {}
        if path.exists():
            self._read(path.read_text(encoding="utf-8"))

    def begin(self, recipe: str, facts: WorkloadFacts, environment: Environment) -> None:
        """Write the first line, or make sure that the one there is of the same.

        Raises:
            TableError: The log is of another recipe, workload or environment.
        """
        if self.begun is None:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self.begun = Begun(recipe=recipe, facts=facts, environment=environment, begun_at=now)
            self._append(to_plain(self.begun))
            return
        known = self.begun
        differences = known.environment.differences(environment)
        if (known.recipe, known.facts.fingerprint) != (recipe, facts.fingerprint):
            differences.append(f"recipe: {known.recipe} / {recipe}, or its workload's source")
        if differences:
            raise TableError(
                f"{self._path} was begun with other trials ({'; '.join(differences)}); "
                "give another --log"
            )

    def append(self, run: Run) -> None:
        """Add a run; it is on disk when this returns."""
        self.by_job[run.job] = run
        self._append(to_plain(run))

    def missing(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Yield the jobs that have not been run."""
        yield from (job for job in jobs if job not in self.by_job)

    def _append(self, document: object) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(document, separators=(",", ":")) + "\n")

    def _read(self, text: str) -> None:
        whole, _, rest = text.rpartition("\n")
        if rest:
            self._path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
        for number, line in enumerate(whole.splitlines()):
            document = json.loads(line)
            if number == 0:
                self.begun = from_plain(Begun, document)
            else:
                run = from_plain(Run, document)
                self.by_job[run.job] = run
