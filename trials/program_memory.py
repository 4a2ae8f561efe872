"""Peak memory of a user's program and the budget it must keep, seen from outside it."""

import os
import resource
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from trials import nvml
from trials.devices import physical_index
from trials.processes import pids_in_group

_RESET_PEAK = "5"


class ProgramMemory(ABC):
    """Reads the memory of a program's processes while they run."""

    peak_bytes: int = 0
    """Largest use of the device seen so far."""
    baseline_bytes: int = 0
    """What the program used when it was ready; 0 if it never said that it was."""

    @abstractmethod
    def look(self) -> None:
        """Take in what is used now."""

    @abstractmethod
    def begin(self, budget_bytes: int | None, *, is_ready: bool) -> None:
        """Enforce the budget from now on, where that can be done from outside.

        Args:
            budget_bytes: None for no limit.
            is_ready: Whether what is used now is the baseline, and no part of the peak.
        """


class ResidentMemory(ProgramMemory):
    """On CPU: the resident sets of all processes of the program, interpreters included.

    The sum is sampled; for the first process the kernel's own high-water mark is read too, so
    that no peak of it is missed between samples. Pages that processes share count in each.

    With a baseline, the peak is what came on top, less the file pages (code, mostly) that came
    in since. The budget is each process's ``RLIMIT_DATA``, and the sum is compared with it.
    """

    def __init__(self, pid: int) -> None:
        """Read a program by its first process."""
        self._pid = pid
        self._baseline_files: int | None = None

    def look(self) -> None:
        """See ProgramMemory."""
        first = _status(self._pid)
        total = first.get("VmRSS", 0) + sum(_status(p).get("VmRSS", 0) for p in self._others())
        files = 0
        if self._baseline_files is not None:
            files = first.get("RssFile", 0) - self._baseline_files
        used = max(total, first.get("VmHWM", 0)) - self.baseline_bytes - files
        self.peak_bytes = max(self.peak_bytes, used)

    def begin(self, budget_bytes: int | None, *, is_ready: bool) -> None:
        """See ProgramMemory."""
        if is_ready:
            self._take_baseline()
        else:
            self.look()
        if budget_bytes is not None:
            for pid in (self._pid, *self._others()):
                _limit_data(pid, max(0, budget_bytes - self.peak_bytes))

    def _take_baseline(self) -> None:
        # The first process first and at once: it goes on while this reads.
        first = _status(self._pid)
        with suppress(FileNotFoundError, ProcessLookupError):
            Path(f"/proc/{self._pid}/clear_refs").write_text(_RESET_PEAK)
        others = sum(_status(pid).get("VmRSS", 0) for pid in self._others())
        self.baseline_bytes = first.get("VmRSS", 0) + others
        self._baseline_files = first.get("RssFile", 0)
        self.peak_bytes = 0

    def _others(self) -> list[int]:
        own = (os.getpid(), self._pid)
        return [pid for pid in pids_in_group(os.getpgrp()) if pid not in own]


class GpuMemory(ProgramMemory):
    """On CUDA: what the driver says the program holds, its CUDA context included.

    Where the driver does not tell processes apart, what the whole GPU holds over what it held
    at first: the trial has it to itself.
    """

    def __init__(self, index: int) -> None:
        """Read a GPU that is idle but for the program."""
        self._index = index = physical_index(index, os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._idle_bytes = nvml.used_bytes(index)

    def look(self) -> None:
        """See ProgramMemory."""
        held = nvml.held_bytes(self._index, _group())
        used = nvml.used_bytes(self._index) - self._idle_bytes if held is None else held
        self.peak_bytes = max(self.peak_bytes, used)

    def begin(self, budget_bytes: int | None, *, is_ready: bool) -> None:
        """See ProgramMemory. The driver limits no one; the peak is compared at the end."""


def program_memory(pid: int, device: str) -> ProgramMemory:
    """Return the reader of a program's memory on a device, ``cpu`` or ``cuda:INDEX``."""
    kind, _, index = device.partition(":")
    return GpuMemory(int(index or 0)) if kind == "cuda" else ResidentMemory(pid)


def _group() -> Collection[int]:
    return pids_in_group(os.getpgrp())


def _limit_data(pid: int, more_bytes: int) -> None:
    with suppress(ProcessLookupError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        limit = _status(pid).get("VmData", 0) + more_bytes
        resource.prlimit(pid, resource.RLIMIT_DATA, (limit, hard))


def _status(pid: int) -> dict[str, int]:
    """Return the sizes in bytes of a process's status; none for one that ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = (line.partition(":") for line in lines if line.endswith(" kB"))
        return {name: int(value.split()[0]) * 1024 for name, _, value in fields}
    return {}
