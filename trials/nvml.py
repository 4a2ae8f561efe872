"""NVIDIA's management library: who else uses a GPU. The only door to pynvml."""

from collections.abc import Collection

import pynvml

from trials.errors import TrialSetupError


def driver_version() -> str:
    """Return the NVIDIA driver's version."""
    with _Session():
        return str(pynvml.nvmlSystemGetDriverVersion())


def num_gpus() -> int:
    """Return how many GPUs the driver sees; 0 without a driver."""
    try:
        with _Session():
            return int(pynvml.nvmlDeviceGetCount())
    except TrialSetupError:
        return 0


def gpu_uuid(index: int) -> str:
    """Return a GPU's identity, the same for every process on the machine."""
    with _Session():
        return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))


def used_bytes(index: int) -> int:
    """Return the memory in use on a GPU, whoever uses it."""
    with _Session():
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def held_bytes(index: int, pids: Collection[int]) -> int | None:
    """Return the memory that some processes hold on a GPU, or None where the driver hides it.

    It does in most containers, whose process ids are not the driver's.
    """
    with _Session():
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        held = [user.usedGpuMemory for user in found if user.pid in pids]
    known = [int(count) for count in held if count is not None]
    return sum(known) if known else None


def total_bytes(index: int) -> int:
    """Return the memory of a GPU."""
    with _Session():
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)


class _Session:
    """Opens the library for one question, with its errors as ours."""

    def __enter__(self) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise TrialSetupError(f"the NVIDIA driver does not answer: {error}") from error

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pynvml.nvmlShutdown()
        if isinstance(error, pynvml.NVMLError):
            raise TrialSetupError(f"the NVIDIA driver refused: {error}") from error
