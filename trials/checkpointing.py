"""Activation checkpointing of every Nth block, or of the deepest ones alone."""

from collections.abc import Sequence
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from trials.errors import WorkloadError


def checkpoint_blocks(blocks: Sequence[nn.Module], interval: int = 1, deepest: int = 0) -> int:
    """Make every Nth block recompute its activations in the backward pass.

    Non-reentrant, so that frozen inputs keep their gradients, and with the random state
    preserved, so that dropout draws the same mask twice.

    Args:
        blocks: In order of the forward pass.
        interval: N; 0 leaves every block as it is.
        deepest: How many of the last blocks may recompute, all if there are fewer; 0 for all.

    Returns:
        How many blocks recompute.

    Raises:
        WorkloadError: N is set and there are no blocks.
    """
    if interval == 0:
        return 0
    if not blocks:
        raise WorkloadError(
            f"checkpoint_interval={interval} needs blocks, and the workload names none; "
            "return them from blocks(), or use --set checkpoint_interval=0"
        )
    chosen = blocks[-deepest:][::interval]
    for block in chosen:
        block.forward = partial(
            checkpoint, block.forward, use_reentrant=False, preserve_rng_state=True
        )
    return len(chosen)
