"""A device that a timed trial has for itself: one lock per GPU, idle before, alone during."""

import fcntl
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from trials import nvml
from trials.errors import TrialSetupError

PATIENCE_SECONDS = 60.0
"""How long a trial waits for its device to become free and idle."""
_IDLE_SHARE = 0.02
"""A GPU with no more than this share of its memory in use is idle: driver and display."""
_FOREIGN_BYTES = 256 * 2**20
_LOOK_SECONDS = 0.2


class GpuGuard:
    """Holds a GPU for the life of a trial process.

    The lock is the kernel's, on a file named after the GPU's identity: it holds across Ray
    clusters that do not know of each other, and is gone when the process is.
    """

    def __init__(
        self,
        *,
        name: str,
        used_bytes: Callable[[], int],
        total_bytes: int,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Guard a GPU.

        Args:
            name: The same for every process on the machine.
            used_bytes: Reads the memory in use on it, whoever uses it.
            total_bytes: Its memory.
            patience_seconds: How long to wait for others.
        """
        self._name = name
        self._used_bytes = used_bytes
        self._total_bytes = total_bytes
        self._until = time.monotonic() + patience_seconds
        self._lock: IO[str] | None = None
        self._idle_bytes = 0

    def acquire(self) -> None:
        """Lock the GPU and wait until it is idle.

        Raises:
            TrialSetupError: Another holds it, or something uses it, for longer than the patience.
        """
        self._lock = self._open_lock()
        try:
            while not self._try_lock(self._lock):
                self._wait(f"GPU {self._name} is taken by another trial")
            self._idle_bytes = self._wait_until_idle()
        except TrialSetupError:
            self.release()
            raise

    def release(self) -> None:
        """Let others have the GPU. The end of the process does the same."""
        if self._lock is not None:
            self._lock.close()

    def settle(self, own_bytes: int) -> None:
        """Count what this process holds beside its tensors, its CUDA context, as idle use."""
        self._idle_bytes = max(self._idle_bytes, self._used_bytes() - own_bytes)

    def foreign_bytes(self, own_bytes: int) -> int:
        """Return the memory that others use now, given what this process holds; 0 if little."""
        foreign = self._used_bytes() - self._idle_bytes - own_bytes
        return foreign if foreign > _FOREIGN_BYTES else 0

    def _wait_until_idle(self) -> int:
        while (used := self._used_bytes()) > _IDLE_SHARE * self._total_bytes:
            share = used / self._total_bytes
            self._wait(f"device dirty: {share:.0%} of GPU {self._name} is used by other processes")
        return used

    def _open_lock(self) -> IO[str]:
        folder = Path(tempfile.gettempdir()) / "autotune-gpu-locks"
        path = folder / self._name
        try:
            _make_for_all(folder, path)
            return path.open("r+")
        except OSError as error:
            raise TrialSetupError(
                f"GPU lock {path} cannot be opened: {error.strerror}; remove it or ask its owner"
            ) from error

    @staticmethod
    def _try_lock(lock: IO[str]) -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(self, trouble: str) -> None:
        if time.monotonic() >= self._until:
            raise TrialSetupError(f"{trouble}; end those or choose another device")
        time.sleep(_LOOK_SECONDS)


def _make_for_all(folder: Path, path: Path) -> None:
    """Make a lock that every user of the machine can take, whatever the first one's umask."""
    if not folder.exists():
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
    if not path.exists():
        path.touch()
        path.chmod(0o666)


def guard_gpu(index: int) -> GpuGuard:
    """Return the guard of a GPU of this machine, as NVML sees it.

    Args:
        index: As torch counts them; ``CUDA_VISIBLE_DEVICES`` maps it to NVML's.
    """
    physical = physical_index(index, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return GpuGuard(
        name=nvml.gpu_uuid(physical),
        used_bytes=lambda: nvml.used_bytes(physical),
        total_bytes=nvml.total_bytes(physical),
    )


def physical_index(index: int, visible: str | None) -> int:
    """Map torch's index of a GPU to the driver's.

    Raises:
        TrialSetupError: The index is not among the visible ones.
    """
    if not visible:
        return index
    entries = [entry.strip() for entry in visible.split(",")]
    if index >= len(entries) or not entries[index].isdigit():
        raise TrialSetupError(
            f"GPU {index} is not among CUDA_VISIBLE_DEVICES={visible!r}; list GPU indices there"
        )
    return int(entries[index])
