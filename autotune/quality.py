"""Quality once per numerics class: what is known, what is under way, what to run next."""

import statistics
import uuid
from collections import deque
from dataclasses import dataclass, replace

from autotune.objective import Quality
from autotune.records import QualityKey, StoredQuality, StudyRecord, TrialRecord
from autotune.store.base import StudyStore
from search_spaces import NumericsClass, TrainingConfig
from trials.measurement import Measurement, Outcome
from trials.spec import Task, TrialSpec
from trials.timing import t_quantile

MAX_ATTEMPTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityJob:
    """One quality run: of a config that is known to fit, from one seed."""

    config: TrainingConfig
    seed: int
    deadline_seconds: float
    attempt: int = 1


class QualityDesk:
    """Orders a study's quality runs and answers with what they found.

    The first class seen is the reference: it is trained over several seeds, and their spread is
    the noise of every class. The others are trained once, from the same weights and in the same
    data order as the reference's first run.
    """

    def __init__(self, store: StudyStore, record: StudyRecord) -> None:
        """Start from what the store knows of the workload in this environment."""
        self._store = store
        self._record = record
        self._seeds = [record.spec.seed + repeat for repeat in range(record.spec.quality_repeats)]
        known = store.qualities(
            record.facts.fingerprint, record.environment.hash, record.facts.quality_samples
        )
        self._found: dict[tuple[str, int], Measurement] = {
            (stored.key.numerics, stored.seed): stored.measurement
            for stored in known
            if not stored.measurement.is_worth_another_run
            and stored.measurement.outcome != Outcome.INVALID  # may be mended by now
        }
        self._reference = next((n for n, _ in self._found if len(self._values(n)) > 1), None)
        self._under_way: set[tuple[str, int]] = set()
        self._queue: deque[QualityJob] = deque()

    @property
    def has_work(self) -> bool:
        """Whether a run waits to be started."""
        return bool(self._queue)

    @property
    def knows_any(self) -> bool:
        """Whether any class has a quality."""
        return any(found.quality is not None for found in self._found.values())

    def order(self, trial: TrialRecord) -> None:
        """Order the runs that a completed trial's class still lacks."""
        assert trial.measurement is not None and trial.measurement.timing is not None
        numerics = self._numerics(trial.config)
        self._reference = self._reference or numerics
        wanted = self._seeds if numerics == self._reference else self._seeds[:1]
        timing = trial.measurement.timing
        steps = self._record.facts.quality_samples / timing.samples_per_step
        deadline = self._record.spec.deadline_seconds + 3 * steps * timing.mean_seconds
        for seed in wanted:
            run = (numerics, seed)
            if run not in self._found and run not in self._under_way:
                self._under_way.add(run)
                self._queue.append(
                    QualityJob(config=trial.config, seed=seed, deadline_seconds=deadline)
                )

    def next_run(self) -> tuple[QualityJob, TrialSpec]:
        """Return the next run to start, and its spec."""
        job = self._queue.popleft()
        spec = TrialSpec(
            workload=self._record.spec.workload,
            config=job.config,
            task=Task.QUALITY,
            trial_id=uuid.uuid4().hex,
            num_devices=self._record.spec.space.num_devices,
            seed=job.seed,
            nvme_path=self._record.spec.nvme_path,
            deadline_seconds=job.deadline_seconds,
            quality_samples=self._record.facts.quality_samples,
        )
        return job, spec

    def take(self, job: QualityJob, measurement: Measurement | None) -> bool:
        """Take in how a run ended; None stands for a lost slot.

        Returns:
            Whether the class has an answer now; False when the run is ordered again.
        """
        is_broken = measurement is None or measurement.is_worth_another_run
        if is_broken and job.attempt < MAX_ATTEMPTS:
            self._queue.append(replace(job, attempt=job.attempt + 1))
            return False
        numerics = self._numerics(job.config)
        self._under_way.discard((numerics, job.seed))
        if measurement is None:
            return False
        self._found[numerics, job.seed] = measurement
        if measurement.outcome == Outcome.INVALID:
            self._drop_repeats(numerics)
        key = QualityKey(
            workload=self._record.facts.fingerprint,
            numerics=numerics,
            environment=self._record.environment.hash,
            samples=self._record.facts.quality_samples,
        )
        self._store.record_quality(StoredQuality(key=key, seed=job.seed, measurement=measurement))
        self._drop_failed_reference()
        return True

    def quality(self, config: TrainingConfig) -> Quality | None:
        """Return the quality of a config's class, or None while it or the noise is unknown."""
        numerics = self._numerics(config)
        if any(name in (numerics, self._reference) for name, _ in self._under_way):
            return None
        first = self._found.get((numerics, self._seeds[0]))
        if first is None:
            return Quality(value=None, reason="its quality run was lost with its slot, twice")
        if first.quality is None:
            return self.lost_quality(first)
        return Quality(value=first.quality.value, half_width=self._half_width())

    def has_no_room(self, config: TrainingConfig) -> bool:
        """Tell whether the quality of a config's class was lost for want of memory."""
        first = self._found.get((self._numerics(config), self._seeds[0]))
        return first is not None and first.outcome == Outcome.OUT_OF_MEMORY

    @staticmethod
    def lost_quality(measurement: Measurement) -> Quality:
        """Return what a run that failed says of its class."""
        assert measurement.failure is not None
        outcome = str(measurement.outcome).replace("_", " ")
        where = f"{outcome} in phase {measurement.failure.phase}"
        return Quality(value=None, reason=f"quality run {where}: {measurement.reason}")

    def _drop_repeats(self, numerics: str) -> None:
        """Leave the other seeds of a class that cannot be evaluated: they would fail alike."""
        repeats = [
            job
            for job in self._queue
            if self._numerics(job.config) == numerics and job.seed != self._seeds[0]
        ]
        for job in repeats:
            self._queue.remove(job)
            self._under_way.discard((numerics, job.seed))

    def _drop_failed_reference(self) -> None:
        """Let the next class show the noise, once the reference's runs have failed to."""
        is_under_way = any(name == self._reference for name, _ in self._under_way)
        has_noise = len(self._values(self._reference)) >= min(2, len(self._seeds))
        if not is_under_way and not has_noise:
            self._reference = None

    def _half_width(self) -> float | None:
        """Return half the 95 % interval of a single run; None from fewer than two runs.

        Source: Student's t interval for one draw, s * t(0.975, n - 1).
        """
        values = self._values(self._reference)
        if len(values) < 2:
            return None
        return statistics.stdev(values) * t_quantile(len(values) - 1)

    def _values(self, numerics: str | None) -> list[float]:
        return [
            found.quality.value
            for (name, seed), found in self._found.items()
            if name == numerics and seed in self._seeds and found.quality is not None
        ]

    def _numerics(self, config: TrainingConfig) -> str:
        numerics: NumericsClass = config.numerics_class(self._record.spec.space.num_devices)
        return str(numerics)
