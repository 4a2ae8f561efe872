"""What DeepSpeed has swapped to a disk, told by its files. Pure."""

from collections.abc import Iterator
from pathlib import Path


def swapped_sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield kind and bytes of each file below a folder that DeepSpeed swaps to."""
    for path in folder.rglob("*.swp"):
        yield _kind_of(path), path.stat().st_size


def _kind_of(path: Path) -> str:
    """Return what is in ``.../optimizer/rank0/exp_avg-0.tensor.swp`` and its like."""
    if path.parent.parent.name != "optimizer":
        return "parameters"
    return "gradients" if "_gradient_" in path.name else "optimizer_state"
