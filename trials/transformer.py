"""The transformer block that the built-in workloads share."""

from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Pre-norm attention and feed-forward, each with a residual."""

    def __init__(self, width: int, num_heads: int, *, is_causal: bool) -> None:
        """Make the layers of one block."""
        super().__init__()
        self.num_heads = num_heads
        self.is_causal = is_causal
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, context, width) to the same shape."""
        batch, context, width = hidden.shape
        projected: Tensor = self.query_key_value(self.attention_norm(hidden))
        heads = projected.view(batch, context, 3, self.num_heads, width // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.is_causal
        )
        hidden = hidden + self.attention_out(attended.transpose(1, 2).reshape(hidden.shape))
        out: Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden))
        return out
