"""Bring a fresh process to where a training process is, before its memory is counted."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from search_spaces import TrainingConfig
from trials.ranks import Ranks
from trials.training import begin_training, train_step
from trials.workload import Batch, Workload


class TinyWorkload(Workload):
    """One small layer: its only purpose is to run every kind of code that a trial runs."""

    def build(self) -> nn.Module:
        """See Workload."""
        return nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64))

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        """See Workload."""
        return list(model.children())

    def batches(self, micro_batch_size: int, seed: int) -> Iterator[Batch]:
        """See Workload."""
        while True:
            yield torch.ones(micro_batch_size, 64)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """See Workload."""
        out: Tensor = model(batch).float().square().sum()
        return out

    def evaluate(self, model: nn.Module, device: torch.device) -> float:
        """See Workload."""
        return 0.0


def warm_up_process(
    config: TrainingConfig,
    device: torch.device,
    nvme_folder: Path | None = None,
    ranks: Ranks | None = None,
) -> None:
    """Take two optimizer steps of a tiny model under a config.

    What a process needs once, and not because of its model, is then there: compute threads,
    lazily imported modules, code pages, library handles. It would else count as the trial's.
    """
    tiny = config.with_knobs({"micro_batch_size": 2, "accumulation_steps": 1})
    workload = TinyWorkload()
    state = begin_training(workload, tiny, device, nvme_folder, ranks)
    for _ in range(2):
        train_step(state, workload.batches(2, seed=0))
