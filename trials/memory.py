"""Peak memory of a trial and the limit it must keep, on CPU and on CUDA."""

import ctypes
import gc
import resource
from abc import ABC, abstractmethod
from pathlib import Path

import torch

from trials.errors import TrialSetupError
from trials.machine import host_free_bytes

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_EXACT_BYTES = 128 * 1024
"""glibc's own first threshold: larger blocks are mapped one by one, and unmapped when freed."""
_FAST_BYTES = 32 * 1024**2
"""The threshold to which glibc raises it by itself as a program frees large blocks."""


class MemoryMeter(ABC):
    """Reads one device's memory for one trial. Call ``start`` before the model is built."""

    @abstractmethod
    def start(self, budget_bytes: int | None) -> None:
        """Take the baseline, forget earlier peaks, and enforce the budget from now on."""

    @abstractmethod
    def restart(self, budget_bytes: int | None) -> None:
        """Forget earlier peaks and enforce a budget from now on; the baseline stays."""

    @abstractmethod
    def hurry(self) -> None:
        """Let the allocator be fast where it was told to be exact."""

    @abstractmethod
    def settle(self) -> None:
        """Take the peak so far as the peak where measuring it costs time, before that is timed."""

    @abstractmethod
    def lift(self) -> None:
        """Stop enforcing the budget, so that the trial can report. Safe to call twice."""

    @abstractmethod
    def allocated_bytes(self) -> int:
        """Return what is allocated now, over the baseline."""

    @abstractmethod
    def peak_bytes(self) -> int:
        """Return the largest use since ``start``, over the baseline."""

    @abstractmethod
    def look(self) -> None:
        """Take note of what is in use at a step's fullest moment, its last forward pass's end."""

    @abstractmethod
    def peak_reserved_bytes(self) -> int | None:
        """Return the allocator's largest holding, or None where there is no such thing."""

    @abstractmethod
    def peak_host_bytes(self) -> int:
        """Return host memory beside the device's."""

    @abstractmethod
    def allocator_retries(self) -> int:
        """Return how often the allocator had to empty its cache to go on."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Return what the budget leaves to allocate, whether or not it is lifted by now."""


class CpuMeter(MemoryMeter):
    """The process itself as the device.

    The peak is the kernel's high-water mark of the resident set, reset at the start, less the
    resident set then and less the file pages (code, mostly) that came in since. The budget is
    ``RLIMIT_DATA``: the kernel refuses memory beyond it. Only the soft limit is lowered, because
    reporting must be able to lift it again.

    glibc keeps most of what is freed for later, and how much depends on what the process did
    before: up to 70 % on top of what is in use. So it is told to give large blocks back, as
    long as memory is measured. That costs time, up to half as much again; ``settle`` tells it to
    be fast again, and what it holds from then on does not count. A step that then uses more than
    those before it, at the moment of ``look``, raises the peak by the difference.
    """

    _settled_peak: int | None = None
    _settled_use = 0
    _largest_use = 0

    def start(self, budget_bytes: int | None) -> None:
        """See MemoryMeter."""
        gc.collect()
        _tune_malloc(_EXACT_BYTES)
        _give_back_freed()
        self._baseline_data = _status_bytes("VmData")
        self._baseline_resident = _status_bytes("VmRSS")
        self._baseline_files = _status_bytes("RssFile")
        self._baseline_heap = _heap_bytes()
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_DATA)
        self._watch(budget_bytes)

    def restart(self, budget_bytes: int | None) -> None:
        """See MemoryMeter."""
        gc.collect()
        _give_back_freed()
        self._watch(budget_bytes)

    def _watch(self, budget_bytes: int | None) -> None:
        _CLEAR_REFS.write_text(_RESET_PEAK)
        self._limit: int | None = None
        if budget_bytes is not None:
            self._limit = self._baseline_data + budget_bytes
            resource.setrlimit(resource.RLIMIT_DATA, (self._limit, self._hard))

    def settle(self) -> None:
        """See MemoryMeter."""
        self._settled_peak = self.peak_bytes()
        self._settled_use = self._largest_use
        self.lift()
        self.hurry()

    def hurry(self) -> None:
        """See MemoryMeter."""
        _tune_malloc(_FAST_BYTES)

    def lift(self) -> None:
        """See MemoryMeter."""
        resource.setrlimit(resource.RLIMIT_DATA, (self._soft, self._hard))

    def allocated_bytes(self) -> int:
        """See MemoryMeter."""
        return max(0, _heap_bytes() - self._baseline_heap)

    def peak_bytes(self) -> int:
        """See MemoryMeter."""
        if self._settled_peak is None:
            return self._high_water_bytes()
        return self._settled_peak + self._largest_use - self._settled_use

    def look(self) -> None:
        """See MemoryMeter."""
        self._largest_use = max(self._largest_use, self.allocated_bytes())

    def peak_reserved_bytes(self) -> int | None:
        """See MemoryMeter."""
        return None

    def _high_water_bytes(self) -> int:
        files = _status_bytes("RssFile") - self._baseline_files
        return max(0, _status_bytes("VmHWM") - self._baseline_resident - files)

    def peak_host_bytes(self) -> int:
        """See MemoryMeter."""
        return self._baseline_resident

    def allocator_retries(self) -> int:
        """See MemoryMeter."""
        return 0

    def free_bytes(self) -> int:
        """See MemoryMeter."""
        if self._limit is None:
            return host_free_bytes()
        return max(0, min(host_free_bytes(), self._limit - _status_bytes("VmData")))


class CudaMeter(MemoryMeter):
    """One GPU through torch's caching allocator."""

    def __init__(self, device: torch.device) -> None:
        """Measure a device; the CUDA context is made here, before the baseline."""
        self._device = device
        torch.cuda.set_device(device)
        torch.cuda.synchronize(device)

    def start(self, budget_bytes: int | None) -> None:
        """See MemoryMeter."""
        gc.collect()
        torch.cuda.empty_cache()
        self._baseline = torch.cuda.memory_allocated(self._device)
        self._watch(budget_bytes)

    def restart(self, budget_bytes: int | None) -> None:
        """See MemoryMeter."""
        gc.collect()
        torch.cuda.empty_cache()
        self._watch(budget_bytes)

    def _watch(self, budget_bytes: int | None) -> None:
        self._budget = budget_bytes
        if budget_bytes is not None:
            total = torch.cuda.get_device_properties(self._device).total_memory
            fraction = min(1.0, budget_bytes / total)
            torch.cuda.set_per_process_memory_fraction(fraction, self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        self._retries = self._num_retries()
        _CLEAR_REFS.write_text(_RESET_PEAK)

    def hurry(self) -> None:
        """See MemoryMeter. It always is."""

    def settle(self) -> None:
        """See MemoryMeter. The caching allocator counts what is in use without a cost."""

    def lift(self) -> None:
        """See MemoryMeter."""
        torch.cuda.set_per_process_memory_fraction(1.0, self._device)

    def allocated_bytes(self) -> int:
        """See MemoryMeter."""
        return torch.cuda.memory_allocated(self._device) - self._baseline

    def peak_bytes(self) -> int:
        """See MemoryMeter."""
        return torch.cuda.max_memory_allocated(self._device) - self._baseline

    def look(self) -> None:
        """See MemoryMeter. The peak is known without."""

    def peak_reserved_bytes(self) -> int | None:
        """See MemoryMeter."""
        return torch.cuda.max_memory_reserved(self._device)

    def peak_host_bytes(self) -> int:
        """See MemoryMeter."""
        return _status_bytes("VmHWM")

    def allocator_retries(self) -> int:
        """See MemoryMeter."""
        return self._num_retries() - self._retries

    def free_bytes(self) -> int:
        """See MemoryMeter."""
        free, _ = torch.cuda.mem_get_info(self._device)
        if self._budget is None:
            return free
        return max(0, min(free, self._budget - torch.cuda.memory_reserved(self._device)))

    def _num_retries(self) -> int:
        return int(torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0))


def meter_for(device: torch.device) -> MemoryMeter:
    """Return the meter of a device.

    Raises:
        TrialSetupError: No such device here.
    """
    if device.type == "cpu":
        return CpuMeter()
    if device.type != "cuda" or not torch.cuda.is_available():
        raise TrialSetupError(f"no device {str(device)!r} here; --device cpu always works")
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise TrialSetupError(f"no device {str(device)!r}: this machine has {count} GPU(s)")
    return CudaMeter(device)


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise TrialSetupError(f"/proc/self/status has no {field}; trials need Linux")


class _MallocInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``; all fields are size_t."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _tune_malloc(threshold_bytes: int) -> None:
    """Set glibc's threshold for mapping, and for trimming to twice it; it adapts neither then."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, threshold_bytes)
        mallopt(_M_TRIM_THRESHOLD, 2 * threshold_bytes)


def _give_back_freed() -> None:
    """Return to the kernel what the C library keeps of freed memory, where it can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _heap_bytes() -> int:
    """Return what the process has allocated: exact under glibc, the resident set elsewhere."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return _status_bytes("VmRSS")
    mallinfo.restype = _MallocInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)
