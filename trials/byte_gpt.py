"""A decoder-only transformer on the bytes of Python's own standard library."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.corpus import NUM_BYTES, read_corpus
from trials.gpt_sizes import SIZES, GptSize
from trials.language import Examples, LanguageWorkload
from trials.samples import Windows, byte_ids
from trials.transformer import Block


class Gpt(nn.Module):
    """Byte-level language model; the output layer shares the embedding's weights."""

    def __init__(self, size: GptSize) -> None:
        """Make embeddings and blocks, initialised as GPT-2 is."""
        super().__init__()
        self.bytes_embedding = nn.Embedding(NUM_BYTES, size.width)
        self.position_embedding = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(
            Block(size.width, size.num_heads, is_causal=True) for _ in range(size.num_blocks)
        )
        self.norm = nn.LayerNorm(size.width)
        self.apply(_initialise)

    def forward(self, text: Tensor) -> Tensor:
        """Map bytes (batch, context) to logits (batch, context, 256)."""
        positions = torch.arange(text.shape[1], device=text.device)
        hidden = self.bytes_embedding(text) + self.position_embedding(positions)
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.norm(hidden), self.bytes_embedding.weight)


class ByteGpt(LanguageWorkload):
    """Next-byte prediction; quality is the held-out loss in nats per byte."""

    def __init__(self, size_name: str = "") -> None:
        """Read the corpus for a size, 1m unless named.

        Raises:
            WorkloadError: No sources beside the interpreter.
        """
        self.size = SIZES[size_name or "1m"]
        corpus = read_corpus()
        length = self.size.context + 1
        self.training = Windows(byte_ids(corpus.training), length)
        self.held_out = Windows(byte_ids(corpus.held_out), length)

    def build(self) -> nn.Module:
        """See Workload."""
        return Gpt(self.size)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """See Workload."""
        assert isinstance(model, Gpt)
        return list(model.blocks)

    def logits(self, model: nn.Module, given: Examples) -> Tensor:
        """See LanguageWorkload."""
        out: Tensor = model(given["input_ids"])
        return out


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
