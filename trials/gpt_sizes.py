"""The sizes of byte-gpt. No torch: a size that there is not is refused before it is loaded."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GptSize:
    """Shape of a model: embedding width, blocks, heads, and bytes of context."""

    width: int
    num_blocks: int
    num_heads: int
    context: int


SIZES = {
    "1m": GptSize(width=128, num_blocks=4, num_heads=4, context=32),
    "5m": GptSize(width=256, num_blocks=6, num_heads=8, context=128),
    "25m": GptSize(width=512, num_blocks=8, num_heads=8, context=256),
    "85m": GptSize(width=768, num_blocks=12, num_heads=12, context=512),
    "350m": GptSize(width=1024, num_blocks=28, num_heads=16, context=1024),
}
