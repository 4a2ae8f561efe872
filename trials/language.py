"""What language workloads share: samples of a text, and the loss of the ids to be told."""

import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.samples import Samples
from trials.workload import Batch, Workload

IGNORED = -100
"""The label of a place that is not trained."""
Examples = dict[str, Tensor]
"""What a model is given, by name, and under ``labels`` what it shall tell, place by place."""


class LanguageWorkload(Workload):
    """Telling ids from others; quality is the held-out loss in nats per id told.

    Attributes:
        training: What is trained on.
        held_out: What is evaluated on.
        is_padded: Samples differ in length: they are padded, and the model is told where.
        padding_id: What they are padded with.
        evaluation_windows: Held-out samples at most, evenly spread.
        evaluation_batch_size: Of them, how many at once. See Workload.
    """

    training: Samples
    held_out: Samples
    is_padded: bool = False
    padding_id: int = 0
    unit = "tokens"
    quality_name = "held_out_loss"
    quality_samples = 48
    evaluation_windows = 64
    evaluation_batch_size: int = 8

    @abstractmethod
    def logits(self, model: nn.Module, given: Examples) -> Tensor:
        """Map what the model is given (batch, length) to logits (batch, labels, vocabulary)."""

    def example(self, ids: Tensor, order: random.Random) -> Examples:
        """Return what is trained of one sample: each id is told from those before it.

        Args:
            ids: Of the sample, shape (length,).
            order: Whatever is drawn is drawn from here.
        """
        return {"input_ids": ids[:-1], "labels": ids[1:]}

    def batches(self, micro_batch_size: int, seed: int) -> Iterator[Batch]:
        """See Workload."""
        order = random.Random(seed)
        while True:
            yield self._batch([self._drawn(order) for _ in range(micro_batch_size)])

    def worst_batch(self, micro_batch_size: int) -> Batch:
        """See Workload."""
        return self._examples(self.training, self.training.longest(micro_batch_size))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """See Workload."""
        given = {name: tensor for name, tensor in batch.items() if name != "labels"}
        logits = self.logits(model, given)
        return functional.cross_entropy(
            logits.float().flatten(0, 1),
            batch["labels"].flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )

    def count(self, batch: Batch) -> int:
        """See Workload."""
        return int((batch["labels"] != IGNORED).sum())

    def evaluate(self, model: nn.Module, device: torch.device) -> float:
        """See Workload."""
        windows = min(self.evaluation_windows, len(self.held_out))
        stride, size = len(self.held_out) // windows, self.evaluation_batch_size
        total, units = 0.0, 0
        for first in range(0, windows, size):
            places = [stride * index for index in range(first, min(first + size, windows))]
            batch = self._examples(self.held_out, places)
            units += self.count(batch)
            moved = {name: tensor.to(device) for name, tensor in batch.items()}
            total += float(self.loss(model, moved))
        return total / units

    def _drawn(self, order: random.Random) -> Examples:
        place = order.randrange(len(self.training))
        return self.example(self.training[place], order)

    def _examples(self, samples: Samples, places: Sequence[int]) -> Batch:
        return self._batch(
            [self.example(samples[place], random.Random(place)) for place in places]
        )

    def _batch(self, examples: Sequence[Examples]) -> Batch:
        """Stack examples, each padded at its end to the longest."""
        batch = {name: self._stacked(name, examples) for name in examples[0]}
        if self.is_padded:
            lengths = torch.tensor([len(example["input_ids"]) for example in examples])
            places = torch.arange(batch["input_ids"].shape[1])
            batch["attention_mask"] = (places < lengths[:, None]).long()
        return batch

    def _stacked(self, name: str, examples: Sequence[Examples]) -> Tensor:
        fill = IGNORED if name == "labels" else self.padding_id
        return nn.utils.rnn.pad_sequence(
            [example[name] for example in examples], batch_first=True, padding_value=fill
        )
