"""Ends a cluster of ours with its driver, however that ends: python -m autotune.workers.janitor.

The driver starts this process first, and holds the other end of its standard input.
"""

import shutil
import sys
from pathlib import Path

from trials.processes import end_all, tagged

CLUSTER_VARIABLE = "AUTOTUNE_CLUSTER"
"""Marks every process of a cluster of ours; its value is the cluster's folder."""
_PATIENCE_SECONDS = 3.0


def clean_up(folder: Path) -> None:
    """End what still runs of a cluster, and remove its folder. Quiet when there is nothing."""
    end_all(tagged(CLUSTER_VARIABLE, str(folder)), _PATIENCE_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.read()
    clean_up(Path(sys.argv[1]))
