"""Who a driver is, and whether the driver of a lease is still alive."""

import os
import socket

from autotune.errors import StudyBusyError
from autotune.records import Owner

CLOCK_TOLERANCE_SECONDS = 2.0
"""The start of a process is told from the boot time, which moves when the clock is set."""


def this_process() -> Owner:
    """Return the owner that this process is."""
    import psutil

    process = psutil.Process()
    return Owner(host=socket.gethostname(), pid=os.getpid(), started_at=process.create_time())


def is_dead(owner: Owner) -> bool:
    """Return whether a driver is known to be gone; of other machines nothing is known."""
    if owner.host != socket.gethostname():
        return False
    import psutil

    try:
        process = psutil.Process(owner.pid)
        has_same_start = abs(process.create_time() - owner.started_at) < CLOCK_TOLERANCE_SECONDS
        return not has_same_start or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_held(owner: Owner, seconds_left: float) -> bool:
    """Return whether a driver still has its study: it may live, and its lease lasts."""
    return seconds_left > 0 and not is_dead(owner)


def require_free(study: str, owner: Owner, seconds_left: float) -> None:
    """Let a study's next driver pass.

    Args:
        study: Name, for the message.
        owner: Its driver so far.
        seconds_left: Until that one's lease ends; negative once it has.

    Raises:
        StudyBusyError: The driver lives and its lease lasts.
    """
    if is_held(owner, seconds_left):
        raise StudyBusyError(
            f"study {study!r} is run by process {owner.pid} on {owner.host}, whose lease lasts "
            f"another {seconds_left:.0f} s; wait for it, stop it there, or name another study"
        )
