"""What a profile of a few optimizer steps found. Bytes and seconds, per step."""

from dataclasses import dataclass, field
from enum import StrEnum


class Wait(StrEnum):
    """What a device may wait for instead of computing.

    data  the workload's next batch
    host  copies between host and device, the optimizer's step on the host's processor, and
          work that is not handed over fast enough; on CPU nothing, host and device being one
    disk  what DeepSpeed reads from a disk, or writes to it, before it can go on
    """

    DATA = "data"
    HOST = "host"
    DISK = "disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorUse:
    """What one operator of torch took in a step, what it called left out.

    Attributes:
        name: As torch names it.
        calls: In a step.
        seconds: On the device.
        allocated_bytes: That it allocated on the device, less what it freed.
    """

    name: str
    calls: float
    seconds: float
    allocated_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A few optimizer steps under torch's profiler, which slows them down.

    Attributes:
        files: What was written, as absolute paths.
        num_steps: Steps that were profiled.
        step_seconds: Mean wall time of one, waiting for its data included.
        wait_seconds: Seconds of a step by ``Wait``, in which the device computed nothing.
        peak_bytes: Largest use of the device's memory in the last step, as the picture has it.
        by_time: Operators that took most time, longest first.
        by_memory: Operators that allocated most memory, largest first.
    """

    files: tuple[str, ...]
    num_steps: int
    step_seconds: float
    wait_seconds: dict[str, float] = field(default_factory=dict)
    peak_bytes: int = 0
    by_time: tuple[OperatorUse, ...] = ()
    by_memory: tuple[OperatorUse, ...] = ()
