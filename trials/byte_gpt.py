"""A decoder-only transformer on the bytes of Python's own standard library.

Real text that every machine has: the sources beside the interpreter. Every tenth file is held
out for evaluation.
"""

import os
import random
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.errors import WorkloadError
from trials.gpt_sizes import SIZES, GptSize
from trials.workload import Batch, Workload

VOCABULARY = 256
SKIPPED_FOLDERS = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
CORPUS_LIMIT_BYTES = 4 * 2**20
EVALUATION_WINDOWS = 64


class Block(nn.Module):
    """Pre-norm attention and feed-forward, each with a residual."""

    def __init__(self, size: GptSize) -> None:
        """Make the layers of one block."""
        super().__init__()
        self.num_heads = size.num_heads
        self.attention_norm = nn.LayerNorm(size.width)
        self.query_key_value = nn.Linear(size.width, 3 * size.width)
        self.attention_out = nn.Linear(size.width, size.width)
        self.feed_forward_norm = nn.LayerNorm(size.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(size.width, 4 * size.width),
            nn.GELU(),
            nn.Linear(4 * size.width, size.width),
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, context, width) to the same shape."""
        batch, context, width = hidden.shape
        projected: Tensor = self.query_key_value(self.attention_norm(hidden))
        heads = projected.view(batch, context, 3, self.num_heads, width // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.attention_out(attended.transpose(1, 2).reshape(hidden.shape))
        out: Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden))
        return out


class Gpt(nn.Module):
    """Byte-level language model; the output layer shares the embedding's weights."""

    def __init__(self, size: GptSize) -> None:
        """Make embeddings and blocks, initialised as GPT-2 is."""
        super().__init__()
        self.bytes_embedding = nn.Embedding(VOCABULARY, size.width)
        self.position_embedding = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.num_blocks))
        self.norm = nn.LayerNorm(size.width)
        self.apply(_initialise)

    def forward(self, text: Tensor) -> Tensor:
        """Map bytes (batch, context) to logits (batch, context, 256)."""
        positions = torch.arange(text.shape[1], device=text.device)
        hidden = self.bytes_embedding(text) + self.position_embedding(positions)
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.norm(hidden), self.bytes_embedding.weight)


class ByteGpt(Workload):
    """Next-byte prediction; quality is the held-out loss in nats per byte."""

    unit = "tokens"
    quality_name = "held_out_loss"
    quality_samples = 48

    def __init__(self, size_name: str = "") -> None:
        """Read the corpus for a size, 1m unless named.

        Raises:
            WorkloadError: No sources beside the interpreter.
        """
        self.size = SIZES[size_name or "1m"]
        self.training_text, self.held_out_text = _corpus(Path(sysconfig.get_path("stdlib")))

    def build(self) -> nn.Module:
        """See Workload."""
        return Gpt(self.size)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """See Workload."""
        assert isinstance(model, Gpt)
        return list(model.blocks)

    def batches(self, micro_batch_size: int, seed: int) -> Iterator[Batch]:
        """See Workload."""
        order = random.Random(seed)
        last = len(self.training_text) - self.size.context - 1
        while True:
            starts = [order.randrange(last) for _ in range(micro_batch_size)]
            yield self._windows(self.training_text, starts)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """See Workload."""
        logits = model(batch[:, :-1])
        return functional.cross_entropy(
            logits.float().flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
        )

    def count(self, batch: Batch) -> int:
        """See Workload."""
        samples, length = batch.shape
        return int(samples * (length - 1))

    def evaluate(self, model: nn.Module, device: torch.device) -> float:
        """See Workload."""
        stride = (len(self.held_out_text) - self.size.context - 1) // EVALUATION_WINDOWS
        total, units = 0.0, 0
        for first in range(0, EVALUATION_WINDOWS, 8):
            starts = [stride * index for index in range(first, first + 8)]
            batch = self._windows(self.held_out_text, starts).to(device)
            total += float(self.loss(model, batch))
            units += self.count(batch)
        return total / units

    def _windows(self, text: Tensor, starts: list[int]) -> Tensor:
        length = self.size.context + 1
        return torch.stack([text[start : start + length] for start in starts]).long()


def _corpus(folder: Path) -> tuple[Tensor, Tensor]:
    parts: tuple[bytearray, bytearray] = (bytearray(), bytearray())
    for index, path in enumerate(_sources(folder)):
        parts[index % 10 == 9].extend(path.read_bytes())
        if len(parts[0]) > CORPUS_LIMIT_BYTES:
            break
    if min(len(part) for part in parts) < 2**17:
        raise WorkloadError(
            f"byte-gpt trains on Python's own sources, and {str(folder)!r} holds too few; "
            "use an interpreter that ships its standard library as .py files"
        )
    training, held_out = (torch.frombuffer(part, dtype=torch.uint8) for part in parts)
    return training, held_out


def _sources(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        yield from (Path(parent, name) for name in sorted(files) if name.endswith(".py"))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
