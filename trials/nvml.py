"""NVIDIA's management library: who else uses a GPU. The only door to pynvml."""

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
