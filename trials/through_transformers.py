"""Hugging Face's Trainer under an exported ``TrainingArguments`` file, as a target."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments

from trials.handed import Handed, LossModel
from trials.workload import Batch

FILE = "transformers.json"


def train(handed: Handed) -> None:
    """See Target."""
    model = _Model(handed.workload)
    trainer = _Trainer(handed, model=model, args=_arguments(handed))
    trainer.add_callback(_Clock(handed))
    trainer.train()
    handed.saved(Path(trainer.args.output_dir))


def _arguments(handed: Handed) -> TrainingArguments:
    """Read the file by the parser that scripts use, and ask for one evaluation and one save."""
    parser = HfArgumentParser([TrainingArguments])
    (arguments,) = parser.parse_json_file(str(handed.path(FILE)))
    arguments.output_dir = str(handed.path("trainer"))
    arguments.max_steps = handed.steps
    arguments.set_evaluate(strategy="steps", steps=handed.steps, delay=0)
    arguments.set_save(strategy="steps", steps=handed.steps)
    arguments.set_lr_scheduler(name="constant", max_steps=handed.steps)
    arguments.report_to, arguments.disable_tqdm = [], True
    arguments.logging_steps = arguments.max_steps + 1
    arguments.seed = arguments.data_seed = handed.seed
    return arguments


class _Model(LossModel):
    """Answers where the Trainer asks a model of its own kind to recompute."""

    def activation_checkpointing_enable(
        self, activation_checkpointing_kwargs: Any = None, every_n_layers: int = 1, **_: Any
    ) -> None:
        """See ``PreTrainedModel``."""
        self.recompute(every_n_layers)


class _Batches(IterableDataset[dict[str, Batch]]):
    def __init__(self, handed: Handed) -> None:
        super().__init__()
        self._handed = handed

    def __iter__(self) -> Iterator[dict[str, Batch]]:
        return ({"batch": batch} for batch in self._handed.batches())


class _Trainer(Trainer):  # type: ignore[misc]
    """Takes the workload's own micro-batches and evaluation; everything else is the Trainer's."""

    def __init__(self, handed: Handed, **arguments: Any) -> None:
        data = _Batches(handed)
        super().__init__(train_dataset=data, eval_dataset=data, **arguments)
        self._handed = handed

    def get_train_dataloader(self) -> Any:
        """Return micro-batches as they come."""
        return DataLoader(self.train_dataset, batch_size=None)

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        """Return a micro-batch's mean loss."""
        loss = model(inputs["batch"])
        self._handed.lost(float(loss.detach()), inputs["batch"])
        return loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Evaluate as the workload does, under the Trainer's precision."""
        with self.accelerator.autocast():
            self._handed.evaluate(self.model.trained)
        return {}

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save weights that may share memory, which the Trainer's own format refuses."""
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state_dict or self.model.state_dict(), folder / "model.pt")


class _Clock(TrainerCallback):  # type: ignore[misc]
    def __init__(self, handed: Handed) -> None:
        self._handed = handed

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Take note of a step."""
        self._handed.stepped()
