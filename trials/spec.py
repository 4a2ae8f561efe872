"""What one trial is to do: workload, config, device, budget, limits. JSON both ways."""

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Self

from search_spaces import OffloadTarget, TrainingConfig, stable_hash
from trials.codec import from_plain, to_plain
from trials.errors import SpecError

PROTOCOL_VERSION = 2
"""Counts changes to how a trial measures; measurements of another version are not comparable."""
SWAP_FOLDER = "autotune-swap-folder"
"""Stands in a handed file for the run's own folder on the disk that state is offloaded to."""


class Task(StrEnum):
    """What the trial process is for.

    measure      memory and time of one config
    quality      train a fixed number of samples, then evaluate
    profile      take a few steps of one config under torch's profiler
    describe     build the workload once and say what it is
    trace        say what it is, and what its passes take, without memory for either
    environment  say what the device and its software are; needs no workload
    verify       train as an exported file says, through the program that it is for
    """

    MEASURE = "measure"
    QUALITY = "quality"
    PROFILE = "profile"
    DESCRIBE = "describe"
    TRACE = "trace"
    ENVIRONMENT = "environment"
    VERIFY = "verify"


class Through(StrEnum):
    """Who trains as an exported file says; ``trial`` is a trial's own loop."""

    TRIAL = "trial"
    TORCH = "torch"
    TRANSFORMERS = "transformers"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"
    LIGHTNING = "lightning"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPolicy:
    """When a trial has timed enough optimizer steps.

    Attributes:
        warm_up_steps: Optimizer steps on the worst-case batch before any is timed; at least 2,
            since optimizer state is made by the first.
        min_steps: Fewest timed steps.
        max_steps: Most timed steps.
        max_seconds: Stop timing after this long, once ``min_steps`` are done.
        relative_half_width: Stop once the 95 % confidence interval of the mean is this narrow.
    """

    warm_up_steps: int = 2
    min_steps: int = 3
    max_steps: int = 200
    max_seconds: float = 1.5
    relative_half_width: float = 0.02

    def __post_init__(self) -> None:
        """Reject a policy that could call an unmeasured config measured."""
        if self.warm_up_steps < 2:
            raise SpecError(f"warm_up_steps={self.warm_up_steps}: at least 2, state is lazy")
        if not 2 <= self.min_steps <= self.max_steps:
            raise SpecError(f"min_steps={self.min_steps}: from 2 to max_steps={self.max_steps}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """One trial.

    Attributes:
        workload: ``byte-gpt[:SIZE]``, ``path/to/file.py:Name`` or ``package.module:Name``.
        config: The point of the space to try.
        task: What to do with it.
        trial_id: Tags the process, its log and its children.
        device: ``cpu`` or ``cuda:INDEX``.
        memory_budget_bytes: Device memory the trial may use; None leaves the device's own limit.
        num_threads: Compute threads of the process on CPU.
        cores: CPU cores the process may use; empty for any.
        num_devices: Data-parallel devices of the real job, for the effective batch.
        num_ranks: Processes that really train together, a device each, to measure or to profile.
        rank: Of this process among them.
        rendezvous: File by which they find each other.
        seed: Of weights, dropout and data order.
        nvme_path: Folder on a local disk that optimizer state may be offloaded to.
        deadline_seconds: The process is ended after this long.
        timing: When enough steps are timed.
        beaten_seconds: Of a step, beyond which the config cannot matter: timing ends early once
            the mean is surely longer. None for never; no part of how the trial measures.
        quality_samples: Samples trained before evaluation, under ``Task.QUALITY``.
        profile_folder: Where ``Task.PROFILE`` puts its files, on the machine that runs it.
        traced: Configs whose data type and adapters ``Task.TRACE`` traces.
        through: Who trains under ``Task.VERIFY``.
        handed: Text of the files that it reads, by name.
        handed_steps: Optimizer steps that it takes.
    """

    workload: str
    config: TrainingConfig = field(default_factory=TrainingConfig)
    task: Task = Task.MEASURE
    trial_id: str = "trial"
    device: str = "cpu"
    memory_budget_bytes: int | None = None
    num_threads: int = 1
    cores: tuple[int, ...] = ()
    num_devices: int = 1
    num_ranks: int = 1
    rank: int = 0
    rendezvous: str | None = None
    seed: int = 0
    nvme_path: str | None = None
    deadline_seconds: float = 120.0
    timing: TimingPolicy = field(default_factory=TimingPolicy)
    beaten_seconds: float | None = None
    quality_samples: int = 0
    profile_folder: str | None = None
    traced: tuple[TrainingConfig, ...] = ()
    through: Through | None = None
    handed: dict[str, str] = field(default_factory=dict)
    handed_steps: int = 10

    def __post_init__(self) -> None:
        """Reject limits under which nothing could run."""
        if self.memory_budget_bytes is not None and self.memory_budget_bytes <= 0:
            raise SpecError(f"memory_budget_bytes={self.memory_budget_bytes}: must be positive")
        if self.deadline_seconds <= 0:
            raise SpecError(f"deadline_seconds={self.deadline_seconds}: must be positive")
        if self.num_threads < 1 or self.num_devices < 1:
            raise SpecError("num_threads and num_devices must be at least 1")
        if not 0 <= self.rank < self.num_ranks:
            raise SpecError(f"rank={self.rank}: from 0 to num_ranks={self.num_ranks}, less 1")
        if self.task == Task.PROFILE and self.profile_folder is None:
            raise SpecError("task=profile: needs profile_folder, where its files go")
        if self.task == Task.VERIFY and self.through is None:
            raise SpecError("task=verify: needs through, the program that trains")

    @property
    def device_kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.device.partition(":")[0]

    @property
    def is_cuda(self) -> bool:
        """Whether the trial runs on a GPU."""
        return self.device_kind == "cuda"

    @property
    def swaps_to_disk(self) -> bool:
        """Whether the trial offloads to a disk."""
        return self.config.offload_target == OffloadTarget.NVME

    @property
    def nvme_folder(self) -> Path | None:
        """The trial's own folder on that disk, made when it is needed and removed at its end."""
        return None if self.nvme_path is None else Path(self.nvme_path) / self.trial_id

    @property
    def protocol(self) -> str:
        """Identity of how the trial measures: code version, timing policy, seed, devices."""
        world = [self.num_devices, self.num_ranks]
        return stable_hash([PROTOCOL_VERSION, to_plain(self.timing), self.seed, world])

    @property
    def is_group(self) -> bool:
        """Whether several processes do the trial, and this is not one of them yet."""
        is_shared = self.task in (Task.MEASURE, Task.PROFILE)
        return is_shared and self.num_ranks > 1 and self.rendezvous is None

    def of_rank(self, rank: int, rendezvous: str) -> Self:
        """Return what one process of a group does: its share of the slot's devices and cores."""
        size = len(self.cores) // self.num_ranks
        kind, _, first = self.device.partition(":")
        device = f"{kind}:{int(first or 0) + rank}" if self.is_cuda else self.device
        return replace(
            self,
            trial_id=f"{self.trial_id}-{rank}",
            rank=rank,
            rendezvous=rendezvous,
            device=device,
            cores=self.cores[rank * size : (rank + 1) * size],
            num_threads=max(1, self.num_threads // self.num_ranks),
        )

    def placed(self, *, device: str, num_threads: int, cores: tuple[int, ...]) -> Self:
        """Return the spec bound to a slot's device and cores."""
        return replace(self, device=device, num_threads=num_threads, cores=cores)

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(to_plain(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a spec; keys left out keep their defaults.

        Raises:
            SpecError: No JSON, an unknown key or a bad value; the message names it.
        """
        try:
            document = json.loads(text)
        except json.JSONDecodeError as error:
            raise SpecError(f"the spec is no JSON: {error}") from error
        if not isinstance(document, dict) or "workload" not in document:
            raise SpecError('a spec is a JSON object with at least {"workload": NAME}')
        return from_plain(cls, document)
