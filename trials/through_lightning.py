"""Lightning's Trainer under its exported arguments, as a target."""

from collections.abc import Iterator
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.core.saving import load_hparams_from_yaml
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from search_spaces import Switch
from trials.engines import after_step
from trials.handed import Handed, LossModel
from trials.optimizers import build_optimizer
from trials.workload import Batch

FILE = "lightning.yaml"


def train(handed: Handed) -> None:
    """See Target. The one evaluation and the one save are those of the epoch's end."""
    folder = handed.path("lightning")
    trainer = Trainer(
        **_arguments(handed),
        default_root_dir=folder,
        max_epochs=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        _Module(handed),
        train_dataloaders=DataLoader(_Batches(handed), batch_size=None),
        val_dataloaders=DataLoader(TensorDataset(torch.zeros(1))),
    )
    handed.saved(folder)


def _arguments(handed: Handed) -> dict[str, Any]:
    """Return the file's arguments, by Lightning's own reader of YAML."""
    document = load_hparams_from_yaml(str(handed.path(FILE)), use_omegaconf=False)
    arguments: dict[str, Any] = document["trainer"]
    return arguments


class _Batches(IterableDataset[Batch]):
    def __init__(self, handed: Handed) -> None:
        super().__init__()
        self._handed = handed

    def __iter__(self) -> Iterator[Batch]:
        return self._handed.batches()


class _Module(LightningModule):  # type: ignore[misc]
    """Takes the workload's loss and evaluation, and sets what the Trainer has no key for."""

    def __init__(self, handed: Handed) -> None:
        super().__init__()
        self._handed = handed
        self._num_steps = 0
        self.model = LossModel(handed.workload)
        self.model.follow(handed.config, handed.device)
        if handed.config.compile == Switch.ON:
            self.model.trained.compile()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer that was measured, which counts its steps."""
        handed = self._handed
        rate = handed.workload.learning_rate
        optimizer = build_optimizer(self.parameters(), handed.config, handed.device, rate)
        after_step(optimizer, self._count_step)
        return optimizer

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Return a micro-batch's mean loss."""
        loss: Tensor = self.model(batch)
        self._handed.lost(float(loss.detach()), batch)
        return loss

    def on_train_batch_end(self, *_: Any) -> None:
        """Take note of a step, once the Trainer has come to one."""
        if self.trainer.global_step > len(self._handed.readings):
            is_skipped, self._num_steps = self._num_steps == 0, 0
            self._handed.stepped(is_skipped=is_skipped)

    def validation_step(self, *_: Any) -> None:
        """Evaluate as the workload does, under the Trainer's precision."""
        self._handed.evaluate(self.model.trained)

    def _count_step(self) -> None:
        self._num_steps += 1
