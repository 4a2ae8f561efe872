"""Ctrl-C before anything runs: answered at once, also while libraries are still being loaded."""

import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""Exit code of a command that a person stopped."""
STOPPING = "stopping...\n"


def leave_on_interrupt() -> None:
    """From here on let Ctrl-C end the command at once: it has begun nothing that needs an end."""
    signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.stderr.write(STOPPING)
    raise SystemExit(INTERRUPTED)
