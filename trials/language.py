"""What language workloads share: windows of a text, and the loss of the next id in them."""

import random
from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.corpus import Corpus
from trials.workload import Batch, Workload


class LanguageWorkload(Workload):
    """Next-id prediction; quality is the held-out loss in nats per id.

    Attributes:
        corpus: The text, as ids.
        sequence: Ids that the model sees of a sample; a sample has one more.
        evaluation_windows: Held-out samples, evenly spread.
        evaluation_batch_size: Of them, how many at once. See Workload.
    """

    corpus: Corpus
    sequence: int
    unit = "tokens"
    quality_name = "held_out_loss"
    quality_samples = 48
    evaluation_windows = 64
    evaluation_batch_size: int = 8

    @abstractmethod
    def logits(self, model: nn.Module, ids: Tensor) -> Tensor:
        """Map ids (batch, sequence) to logits (batch, sequence, vocabulary)."""

    def batches(self, micro_batch_size: int, seed: int) -> Iterator[Batch]:
        """See Workload."""
        order = random.Random(seed)
        last = len(self.corpus.training) - self.sequence - 1
        while True:
            starts = [order.randrange(last) for _ in range(micro_batch_size)]
            yield self._windows(self.corpus.training, starts)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """See Workload."""
        logits = self.logits(model, batch[:, :-1])
        return functional.cross_entropy(
            logits.float().flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
        )

    def count(self, batch: Batch) -> int:
        """See Workload."""
        samples, length = batch.shape
        return int(samples * (length - 1))

    def evaluate(self, model: nn.Module, device: torch.device) -> float:
        """See Workload."""
        text, size = self.corpus.held_out, self.evaluation_batch_size
        stride = (len(text) - self.sequence - 1) // self.evaluation_windows
        total, units = 0.0, 0
        for first in range(0, self.evaluation_windows, size):
            last = min(first + size, self.evaluation_windows)
            starts = [stride * index for index in range(first, last)]
            batch = self._windows(text, starts).to(device)
            total += float(self.loss(model, batch))
            units += self.count(batch)
        return total / units

    def _windows(self, text: Tensor, starts: list[int]) -> Tensor:
        length = self.sequence + 1
        return torch.stack([text[start : start + length] for start in starts]).long()
