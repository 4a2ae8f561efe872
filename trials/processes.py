"""Ending processes of ours, all of them and no others. The only door to psutil."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

TRIAL_ID_VARIABLE = "AUTOTUNE_TRIAL_ID"
_LOOK_SECONDS = 0.02
_KILL_SECONDS = 10.0


def end_group(pid: int) -> None:
    """Kill the process group that a trial process leads. Quiet when it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def in_group(group: int) -> set[psutil.Process]:
    """Return the processes of a group, dying ones included."""
    return living(pids_in_group(group))


def pids_in_group(group: int) -> list[int]:
    """Return the ids of a group's processes, dying ones included."""
    return [pid for pid in psutil.pids() if _group_of(pid) == group]


def end_strays(trial_id: str) -> None:
    """Kill processes that carry a trial's id in their environment, and wait until they are gone.

    Such are programs that the trial started in a session of their own: they outlive its group.
    """
    end_all(tagged(TRIAL_ID_VARIABLE, trial_id), patience_seconds=0.0)


def tagged(name: str, value: str) -> set[psutil.Process]:
    """Return the processes whose environment, as they were started, holds a variable."""
    tag = f"\0{name}={value}\0".encode()
    return living(pid for pid in psutil.pids() if tag in b"\0" + _environment(pid))


def living(pids: Iterable[int]) -> set[psutil.Process]:
    """Return those of some processes that there are."""
    found = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.add(psutil.Process(pid))
    return found


def end_all(processes: Iterable[psutil.Process], patience_seconds: float) -> None:
    """Wait until processes are gone, and kill those that take longer than the patience."""
    remaining = _wait_gone(processes, patience_seconds)
    for process in remaining:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _wait_gone(remaining, _KILL_SECONDS)


def _wait_gone(processes: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    until = time.monotonic() + seconds
    while (alive := [p for p in processes if _is_alive(p)]) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return alive


def _is_alive(process: psutil.Process) -> bool:
    """Return whether a process still runs; a zombie only waits for its parent to notice."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def _environment(pid: int) -> bytes:
    # Read here, not through psutil, whose dictionaries make this scan five times as slow.
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
        return file.read()
    return b""
