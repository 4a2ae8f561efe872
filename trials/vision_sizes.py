"""The sizes of vision. No torch: a size that there is not is refused before it is loaded."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class VitSize:
    """Shape of a model: embedding width, blocks, heads, and pixels of a patch's side."""

    width: int
    num_blocks: int
    num_heads: int
    patch: int = 2


SIZES = {
    "tiny": VitSize(width=64, num_blocks=4, num_heads=4),
    "small": VitSize(width=128, num_blocks=6, num_heads=4),
    "base": VitSize(width=256, num_blocks=8, num_heads=8),
}
