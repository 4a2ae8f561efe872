"""Private temporary folders that do not outlive their owner by long."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LONGEST_PARENT = 10
"""A Unix socket's whole path has 107 bytes; Ray's lie 97 below the parent."""


class PrivateFolder:
    """A folder for this user alone, removed by its owner or, if that dies, by the next one's.

    The owner holds the kernel's lock on it for life; its process id is part of the name.

    Attributes:
        path: Where it is.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        """Make a folder, and remove those of the same kind whose owners are dead.

        Args:
            prefix: Names the kind; ends in a dash.
            parent: Where to make it; None for the temporary folder.
        """
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        for stale in parent.glob(f"{prefix}*"):
            if _is_abandoned(stale, prefix):
                shutil.rmtree(stale, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._is_open = True

    def remove(self) -> None:
        """Remove the folder and what is in it. Safe to call twice."""
        if self._is_open:
            self._is_open = False
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)


def short_temporary_folder() -> Path:
    """Return the temporary folder, or /tmp where the way to it is too long for sockets."""
    folder = tempfile.gettempdir()
    return Path(folder if len(folder) <= _LONGEST_PARENT else "/tmp")


def _is_abandoned(folder: Path, prefix: str) -> bool:
    """Return whether a folder's owner is dead.

    A live process of that id may not have locked its new folder yet; a dead one may be alive
    in another container, out of sight, and hold the lock.
    """
    pid = folder.name.removeprefix(prefix).partition("-")[0]
    if not pid.isdigit() or Path("/proc", pid).exists():
        return False
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
