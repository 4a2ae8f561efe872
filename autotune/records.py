"""Values that the store keeps and the rest of the service passes around. All frozen."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from autotune.rates import Rates
from search_spaces import DeviceFacts, SearchSpace, TrainingConfig
from trials.environment import Environment
from trials.measurement import Measurement, Outcome, WorkloadFacts
from trials.spec import TimingPolicy


class Objective(StrEnum):
    """What a study weighs against each other."""

    COST = "cost"
    THROUGHPUT = "throughput"
    QUALITY = "quality"


class StudyState(StrEnum):
    """Life of a study.

    running --> finished      budget spent or space exhausted
            --> interrupted   stopped by a person; resume goes on
            --> failed        could not go on: broken workload, no slots, nothing fits
    """

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class TrialState(StrEnum):
    """Life of a trial in the store.

    leased --> measured   its measurement is stored, its quality may still be on the way
                    --> told   objectives and constraints are set, the sampler knows
           --> lost       no result came under its lease; its config may be tried again
    """

    LEASED = "leased"
    MEASURED = "measured"
    TOLD = "told"
    LOST = "lost"


class Source(StrEnum):
    """Where a trial's result comes from."""

    RUN = "run"
    CACHED = "cached"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When a study ends. Each limit is off when None.

    Attributes:
        trials: Trials that really run; answers from the store are free.
        seconds: Wall time of the study, over all its sessions.
        device_seconds: Time of trial processes together.
        usd: Device time at the device rate.
        planned_seconds: Training that the config is for: a study ends once another trial is
            expected to save less of it than it takes.
    """

    trials: int | None = None
    seconds: float | None = None
    device_seconds: float | None = None
    usd: float | None = None
    planned_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """Everything that a study is begun with, and that resuming it must agree to.

    Attributes:
        name: Unique in the store.
        workload: Reference, as in ``TrialSpec``.
        space: What may be tried.
        objectives: In this order in Optuna.
        memory_budget_bytes: Device memory of each trial.
        budget: When to stop.
        rates: Prices of the cost objective.
        sampler: Name of the sampler.
        seed: Of the sampler and of every trial.
        deadline_seconds: Of each trial.
        timing: When a trial has timed enough.
        quality_repeats: Seeds over which the noise of quality is measured.
        nvme_path: Folder that trials may offload to.
        num_ranks: Devices that one trial trains on together.
        baseline: The user's configuration of today.
        confirms: Whether the recommended config is run a second time.
        missing: Techniques that could not be used where it was begun, as in ``DeviceFacts``.
        host_memory_bytes: Memory of the machine where it was begun; None if not known.
    """

    name: str
    workload: str
    space: SearchSpace
    objectives: tuple[Objective, ...] = (Objective.COST, Objective.THROUGHPUT, Objective.QUALITY)
    memory_budget_bytes: int
    budget: Budget = field(default_factory=Budget)
    rates: Rates
    sampler: str = "frontier"
    seed: int = 0
    deadline_seconds: float = 120.0
    timing: TimingPolicy = field(default_factory=TimingPolicy)
    quality_repeats: int = 3
    nvme_path: str | None = None
    num_ranks: int = 1
    baseline: TrainingConfig | None = None
    confirms: bool = True
    missing: tuple[tuple[str, str], ...] = ()
    host_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTime:
    """How long a study was worked on.

    Attributes:
        wall_seconds: By its drivers.
        device_seconds: By its trial processes together, quality runs included; what a lost slot
            took is not known.
    """

    wall_seconds: float = 0.0
    device_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """A study as the store has it.

    Attributes:
        spec: What it was begun with.
        facts: What its workload is.
        environment: On what its trials run.
        created_at: UTC.
        state: Where in its life it is.
        stop_reason: Why it stopped, for people.
        worked: So far.
    """

    spec: StudySpec
    facts: WorkloadFacts
    environment: Environment
    created_at: datetime
    state: StudyState = StudyState.RUNNING
    stop_reason: str = ""
    worked: WorkTime = field(default_factory=WorkTime)

    @property
    def device_facts(self) -> DeviceFacts:
        """What the rules knew of the device when the study was begun."""
        begun_on = replace(
            self.environment,
            missing=self.spec.missing,
            host_memory_bytes=self.spec.host_memory_bytes,
        )
        return self.facts.rules_facts(begun_on, self.spec.num_ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySummary:
    """One line of ``autotune studies``.

    Attributes:
        name: Of the study.
        workload: Its reference.
        state: Where in its life it is.
        created_at: UTC.
        num_trials: Trials told.
        num_completed: Of those, the ones that completed.
        num_out_of_memory: Of those, the ones that did not fit.
        stop_reason: Why it stopped.
    """

    name: str
    workload: str
    state: StudyState
    created_at: datetime
    num_trials: int
    num_completed: int
    num_out_of_memory: int
    stop_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The driver that runs a study; the pid and its start tell a dead driver from a slow one.

    Attributes:
        host: Name of the machine.
        pid: Process id there.
        started_at: Start of that process, seconds since the epoch.
    """

    host: str
    pid: int
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementKey:
    """What a measurement is of. Two trials of one key may share it, budget permitting.

    Attributes:
        workload: Fingerprint of the workload.
        config: The point.
        environment: Hash of the environment.
        protocol: Hash of how it was measured.
    """

    workload: str
    config: TrainingConfig
    environment: str
    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMeasurement:
    """A measurement in the store.

    Attributes:
        id: Row.
        memory_budget_bytes: Device memory that the trial was allowed.
        measurement: What it found.
    """

    id: int
    memory_budget_bytes: int | None
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityKey:
    """What a quality reading is of, its seed aside.

    Attributes:
        workload: Fingerprint of the workload.
        numerics: ``str`` of the numerics class.
        environment: Hash of the environment.
        samples: Samples trained before evaluation.
    """

    workload: str
    numerics: str
    environment: str
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQuality:
    """A quality run in the store: its seed, and what came of it."""

    key: QualityKey
    seed: int
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Objective values of a told trial; None for an objective that has no measured value.

    Attributes:
        cost_usd_per_million_samples: At the study's rates.
        cost_half_width: Half of its 95 % interval.
        throughput_samples_per_second: Of the devices of one trial together.
        throughput_half_width: Half of its 95 % interval.
        quality: The workload's metric, shared by the numerics class.
        quality_half_width: Half of its 95 % interval, from repeats over seeds.
    """

    cost_usd_per_million_samples: float | None = None
    cost_half_width: float = 0.0
    throughput_samples_per_second: float | None = None
    throughput_half_width: float = 0.0
    quality: float | None = None
    quality_half_width: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """A trial as the store has it.

    Attributes:
        study: Name of the study.
        number: Optuna's number of the trial.
        config: The point tried.
        state: Where in its life it is.
        source: Run, answered from the store, or predicted.
        attempt: 1, or more after a lost or broken run of the same config in this study.
        lease: Identity of the permission to run it; a result under another is late.
        slot: Where it runs or ran.
        outcome: How it ended, once measured or told.
        reason: Why it did not complete, or what lost it.
        measurement_id: Row of its measurement, unless predicted.
        measurement: What it found, unless predicted.
        scores: Objective values, once told.
        violation: Largest constraint violation told; 0 or less for a feasible trial.
    """

    study: str
    number: int
    config: TrainingConfig
    state: TrialState
    source: Source = Source.RUN
    attempt: int = 1
    lease: str = ""
    slot: str = ""
    outcome: Outcome | None = None
    reason: str = ""
    measurement_id: int | None = None
    measurement: Measurement | None = None
    scores: Scores = field(default_factory=Scores)
    violation: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether a real trial process stands behind the outcome."""
        return self.source != Source.PREDICTED and self.measurement is not None

    @property
    def is_feasible(self) -> bool:
        """Whether the trial completed within every limit and was told so."""
        has_ended_well = self.state == TrialState.TOLD and self.outcome == Outcome.COMPLETED
        return has_ended_well and self.violation is not None and self.violation <= 0
