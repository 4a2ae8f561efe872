"""Memory of a process and all that it started, as a benchmark sees it from outside."""

from contextlib import suppress
from pathlib import Path

import psutil


def tree_pss_bytes(pid: int) -> int:
    """Return the proportional set size of a process tree, so that shared pages count once."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(OSError):
                total += _pss_bytes(process.pid)
    return total


def _pss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
