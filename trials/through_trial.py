"""The trial's own loop, as a target: what the others are held against."""

import torch

from trials.handed import Handed
from trials.training import begin_training, train_step


def train(handed: Handed) -> None:
    """See Target."""
    state = begin_training(handed.workload, handed.config, handed.device, handed.nvme_folder)
    window, batches = handed.config.accumulation_steps, handed.batches()
    for _ in range(handed.steps):
        batch_window = [next(batches) for _ in range(window)]
        reading = train_step(state, iter(batch_window))
        for batch in batch_window:
            handed.lost(reading.loss, batch)
        handed.stepped(is_skipped=reading.is_skipped)
    with state.engine.forward():
        handed.evaluate(state.model)
    path = handed.path("checkpoint.pt")
    torch.save(state.model.state_dict(), path)
    handed.saved(path)
