"""Where trials of a command run: its workers, how much memory each has, one trial by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.errors import WorkersError
from autotune.settings import Settings
from autotune.workers import open_workers
from autotune.workers.base import Workers, WorkersRequest
from trials.environment import Environment
from trials.measurement import Measurement
from trials.nvml import num_gpus
from trials.references import preloads
from trials.spec import TrialSpec

DEFAULT_CPU_BUDGET_BYTES = 512 * 2**20
"""A CPU has no memory of its own to fill; this much lets a small model run out of it."""
CUDA_BUDGET_SHARE = 0.95
"""Of a GPU's memory; the rest is the driver's and other libraries'."""
COLLECT_SECONDS = 1.0


@contextmanager
def opened_workers(settings: Settings) -> Iterator[Workers]:
    """Open the workers that settings ask for, and close them in the end."""
    request = WorkersRequest(
        device_kind=settings.device or ("cuda" if num_gpus() else "cpu"),
        num_slots=settings.slots,
        ray_address=settings.ray_address,
        nvme_path=nvme_folder(settings),
        num_devices=settings.trial_devices,
        preload=preloads(settings.workload),
    )
    workers = open_workers(request, is_local=settings.local)
    try:
        yield workers
    finally:
        workers.close()


def nvme_folder(settings: Settings) -> str | None:
    """Return the folder that trials may offload to, whatever the working directory."""
    return None if settings.nvme_path is None else str(Path(settings.nvme_path).resolve())


def memory_budget(settings: Settings, environment: Environment) -> int:
    """Return the device memory of a trial: as asked, or what its kind of device usually has."""
    if settings.memory_budget is not None:
        return settings.memory_budget
    if environment.device_kind == "cpu":
        return min(DEFAULT_CPU_BUDGET_BYTES, environment.device_memory_bytes)
    return int(CUDA_BUDGET_SHARE * environment.device_memory_bytes)


def run_one(workers: Workers, spec: TrialSpec) -> Measurement:
    """Run one trial and wait for it.

    Raises:
        WorkersError: Its slot was lost.
    """
    workers.submit(spec)
    while True:
        for finished in workers.collect(COLLECT_SECONDS):
            if finished.measurement is None:
                raise WorkersError(f"the slot was lost: {finished.lost_reason}")
            return finished.measurement
