"""What a trial found. Bytes and seconds; an outcome is a result, never an error."""

import json
import statistics
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from search_spaces import DeviceFacts, JobFacts, too_much_for_disk
from trials.codec import from_plain, to_plain
from trials.environment import Environment
from trials.profile import Profile
from trials.trace_facts import WorkloadTrace

PRECISE_RELATIVE_HALF_WIDTH = 0.1
"""Above this, half the confidence interval of a mean step time is too wide to compare by."""

DATA_BOUND_SHARE = 0.2
"""Above this share of the wall time, waiting for data is worth a warning."""


class Outcome(StrEnum):
    """How a trial ended.

    running --> completed       measured to the end
            --> out_of_memory   did not fit, on the device or on the host; never retried
            --> invalid         this combination cannot train; never retried
            --> diverged        the loss is not finite; never retried
            --> timed_out       too slow for its deadline; never retried
            --> crashed         the process broke, not the configuration; retried
    """

    COMPLETED = "completed"
    OUT_OF_MEMORY = "out_of_memory"
    INVALID = "invalid"
    DIVERGED = "diverged"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"


class Where(StrEnum):
    """Whose memory ran out."""

    DEVICE = "device"
    HOST = "host"


class Place(StrEnum):
    """Where bytes live; page-locked host memory is what a GPU copies from without help."""

    DEVICE = "device"
    HOST = "host"
    PINNED_HOST = "pinned_host"
    DISK = "disk"


class Direction(StrEnum):
    """Which way a metric gets better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial has no timing.

    Attributes:
        reason: Exception type and message, or what the parent saw; for people.
        phase: What the trial was doing: load, build, train, warm_up, timing, quality, evaluate,
            profile.
        where: Whose memory ran out, for out-of-memory.
        attempted_bytes: Device memory that the config would have needed at least.
        is_suspect: The evidence does not settle the cause, so one more run is worth it.
        is_users_fault: The workload itself is broken, whatever the config.
        rank: Which process of a group failed first; None where there was one process.
        log_tail: The last lines that the process wrote.
    """

    reason: str
    phase: str
    where: Where | None = None
    attempted_bytes: int | None = None
    is_suspect: bool = False
    is_users_fault: bool = False
    rank: int | None = None
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """Times of the optimizer steps of one trial, device-synchronised.

    Attributes:
        step_seconds: One entry per timed optimizer step, waiting for data excluded.
        low_seconds: Lower end of the 95 % confidence interval of the mean.
        high_seconds: Upper end.
        samples_per_step: Samples of one optimizer step on this device.
        units_per_step: Mean trained units (tokens, or samples) of one optimizer step.
        warm_up_seconds: First steps, not part of ``step_seconds``.
        data_wait_seconds: Mean wait for data per step, but for the first, which starts the loader.
        optimizer_steps: Steps that the optimizer really took, warm-up included.
        skipped_steps: Steps that the gradient scaler skipped.
        is_beaten: Whether timing ended early, the config being surely too slow to matter.
    """

    step_seconds: tuple[float, ...]
    low_seconds: float
    high_seconds: float
    samples_per_step: int
    units_per_step: float
    warm_up_seconds: float
    data_wait_seconds: float
    optimizer_steps: int
    skipped_steps: int = 0
    is_beaten: bool = False

    @property
    def mean_seconds(self) -> float:
        """Mean seconds of one optimizer step."""
        return statistics.fmean(self.step_seconds)

    @property
    def samples_per_second(self) -> float:
        """Samples trained per second on this device."""
        return self.samples_per_step / self.mean_seconds

    @property
    def relative_half_width(self) -> float:
        """Half the width of the confidence interval of the mean, over the mean."""
        return (self.high_seconds - self.low_seconds) / 2 / self.mean_seconds

    @property
    def data_wait_share(self) -> float:
        """Share of the time from one step to the next that is spent waiting for data."""
        return self.data_wait_seconds / (self.data_wait_seconds + self.mean_seconds)

    @property
    def is_data_bound(self) -> bool:
        """Whether the loader, and not the config, decides how fast a job of this kind runs."""
        return self.data_wait_share > DATA_BOUND_SHARE

    @property
    def is_precise(self) -> bool:
        """Whether the mean is known well enough to compare configs by it."""
        return self.relative_half_width <= PRECISE_RELATIVE_HALF_WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Peak memory of one trial.

    Attributes:
        peak_device_bytes: Largest use of device memory. On CPU, the growth of the process's
            peak resident set over its size before the model was built.
        peak_reserved_bytes: What the CUDA allocator held at its peak; None on CPU.
        peak_host_bytes: Host memory beside the device's. On CPU, the resident set before the
            model was built: interpreter, libraries and data set.
        by_kind: Bytes of ``parameters`` (buffers included), ``gradients``, ``optimizer_state``
            and ``activations``, each where it is largest. They are not all alive at once:
            ``temporary`` is what the peak holds beyond the larger of a forward pass's end
            (parameters, state, activations, and gradients while accumulating) and an optimizer
            step (parameters, state, gradients).
        elsewhere: Bytes by kind and ``Place`` that lie outside the device's memory, and so count
            in neither ``peak_device_bytes`` nor ``by_kind``. On CPU the host's memory is the
            device's.
        allocator_retries: Times that the CUDA allocator had to free its cache to go on.
    """

    peak_device_bytes: int
    peak_reserved_bytes: int | None = None
    peak_host_bytes: int
    by_kind: dict[str, int] = field(default_factory=dict)
    elsewhere: dict[str, dict[str, int]] = field(default_factory=dict)
    allocator_retries: int = 0

    @property
    def places(self) -> dict[str, dict[str, int]]:
        """Bytes of each kind by ``Place``, those on the device first."""
        return {
            kind: {str(Place.DEVICE): size, **self.elsewhere.get(kind, {})}
            for kind, size in self.by_kind.items()
        }

    @property
    def disk_bytes(self) -> int:
        """Bytes of all kinds that live on disk."""
        return sum(places.get(Place.DISK, 0) for places in self.elsewhere.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReading:
    """A workload's metric after training a fixed number of samples.

    Attributes:
        value: The metric; finite.
        samples: Samples trained.
        seed: Of weights and data order.
        train_seconds: Wall time of the training.
        evaluation_batch_size: Samples evaluated at once, where more ran out of memory.
    """

    value: float
    samples: int
    seed: int
    train_seconds: float
    evaluation_batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a training through another program did beside taking time and memory.

    Attributes:
        through: The program.
        losses: Mean loss of each optimizer step, the first ones on the worst-case batch.
        quality: What the evaluation after them said.
        checkpoint_bytes: What saving after them wrote.
    """

    through: str
    losses: tuple[float, ...]
    quality: float
    checkpoint_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """What a workload is, read from one real build of it.

    Attributes:
        fingerprint: Changes whenever the workload's name, arguments or source change.
        num_parameters: Parameters, each tied one once.
        num_trainable: Of those, the trained ones.
        num_blocks: Blocks that checkpointing can cover.
        unit: What ``units`` counts: ``samples`` or ``tokens``.
        quality_name: Of the metric.
        quality_direction: Of the metric.
        global_batch_size: The effective batch that the workload suggests.
        quality_samples: Samples to train before evaluating.
        largest_parameter: Elements of the largest one; None where it is not known.
        learning_rate: Of AdamW; None where it is not known.
    """

    fingerprint: str
    num_parameters: int
    num_trainable: int
    num_blocks: int
    unit: str
    quality_name: str
    quality_direction: Direction
    global_batch_size: int
    quality_samples: int
    largest_parameter: int | None = None
    learning_rate: float | None = None

    def missing_on(self, environment: Environment) -> tuple[tuple[str, str], ...]:
        """Return what cannot be used on a machine, for lack of disk for this workload too."""
        known = dict(environment.missing)
        free = environment.nvme_free_bytes
        why = None if free is None else too_much_for_disk(self.num_parameters, free_bytes=free)
        if why is not None:
            known.setdefault("offload-nvme", why)
        return tuple(known.items())

    def rules_facts(self, environment: Environment, num_ranks: int = 1) -> DeviceFacts:
        """Return what the rules of a space need where this workload is to be trained.

        Args:
            environment: On what.
            num_ranks: Devices that one trial trains on together.
        """
        device = replace(environment.device_facts(), missing=self.missing_on(environment))
        host_bytes = environment.host_memory_bytes
        if host_bytes is None:
            return device
        job = JobFacts(
            num_parameters=self.num_parameters,
            num_trainable=self.num_trainable,
            num_ranks=num_ranks,
            host_bytes=host_bytes,
        )
        return replace(device, job=job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Everything one trial process found. Each part is None unless the task asks for it.

    Attributes:
        outcome: How the trial ended.
        failure: Why it did not complete.
        timing: Under ``Task.MEASURE`` and ``Task.VERIFY``, completed.
        memory: Under ``Task.MEASURE`` and ``Task.VERIFY``; with a failure, as far as it came.
        quality: Under ``Task.QUALITY``, completed.
        facts: Under ``Task.DESCRIBE`` and ``Task.TRACE``, completed.
        trace: Under ``Task.TRACE``, completed.
        profile: Under ``Task.PROFILE``, completed.
        environment: Under ``Task.ENVIRONMENT``, completed.
        verification: Under ``Task.VERIFY``, completed.
        process_seconds: Wall time of the trial process, start to end.
        start_seconds: From the request to the first line of code in the process.
        num_ranks: Processes that trained together: the timing is of all, memory of the fullest.
    """

    outcome: Outcome
    failure: Failure | None = None
    timing: StepTiming | None = None
    memory: MemoryUse | None = None
    quality: QualityReading | None = None
    facts: WorkloadFacts | None = None
    trace: WorkloadTrace | None = None
    profile: Profile | None = None
    environment: Environment | None = None
    verification: Verification | None = None
    process_seconds: float = 0.0
    start_seconds: float = 0.0
    num_ranks: int = 1

    @property
    def is_worth_another_run(self) -> bool:
        """Whether the config is not to blame, as far as the evidence goes."""
        is_suspect = self.failure is not None and self.failure.is_suspect
        return self.outcome == Outcome.CRASHED or is_suspect

    @property
    def reason(self) -> str:
        """Why the trial did not complete, or an empty string."""
        return "" if self.failure is None else self.failure.reason

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(to_plain(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote."""
        return from_plain(cls, json.loads(text))
