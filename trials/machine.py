"""The host as the kernel tells of it, without torch: memory, kills, cores, the processor."""

import os
import shutil
from pathlib import Path

from trials.errors import TrialSetupError


def host_free_bytes() -> int:
    """Return the host memory that could be had without swapping."""
    return _meminfo_bytes("MemAvailable")


def host_memory_bytes() -> int:
    """Return the memory of the machine."""
    return _meminfo_bytes("MemTotal")


def free_disk_bytes(folder: Path) -> int:
    """Return what may still be written to a folder's filesystem."""
    return shutil.disk_usage(folder).free


def kernel_kills() -> int | None:
    """Return how many processes the kernel has killed for memory since boot, or None."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def usable_cores() -> tuple[int, ...]:
    """Return the cores that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def processor_name() -> str:
    """Return the processor's own name for itself."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.lower().startswith(("model name", "hardware")):
            return line.partition(":")[2].strip()
    return os.uname().machine


def _meminfo_bytes(field: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise TrialSetupError(f"/proc/meminfo has no {field}; trials need Linux")
