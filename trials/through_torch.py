"""Plain PyTorch through ``autotune.apply``, as a target of what is handed over."""

import torch

from trials.applying import apply
from trials.handed import DOCUMENT, Handed
from trials.workload import to_device


def train(handed: Handed) -> None:
    """See Target."""
    workload = handed.workload
    model = workload.build().to(handed.device)
    rate, blocks = workload.learning_rate, workload.blocks(model)
    applied = apply(handed.path(DOCUMENT), model, learning_rate=rate, blocks=blocks)
    for batch in handed.batches():
        moved = to_device(batch, handed.device)
        with applied.forward():
            loss = workload.loss(model, moved) / workload.count(batch)
        handed.lost(float(loss.detach()), batch)
        if applied.backward(loss):
            handed.stepped(is_skipped=not applied.step())
    with applied.forward():
        handed.evaluate(model)
    path = handed.path("checkpoint.pt")
    torch.save(model.state_dict(), path)
    handed.saved(path)
