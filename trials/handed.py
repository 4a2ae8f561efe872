"""A workload trained by another program's loop, as a file that was handed over says: its clock.

What a target must do is ``Target``; the modules ``trials.through_*`` are those.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu

from search_spaces import ActivationOffload, TrainingConfig
from trials.checkpointing import checkpoint_blocks
from trials.contract import checked_quality
from trials.engines import set_matmul_precision
from trials.spec import SWAP_FOLDER
from trials.timing import StepReading
from trials.training import synchronise
from trials.workload import Batch, Workload

WARM_UP_STEPS = 2
"""On the worst-case batch, as a trial takes them: they are not timed."""
DOCUMENT = "config.json"
"""The config itself, which plain PyTorch reads and by which a loop is built."""


class LossModel(nn.Module):
    """A workload's model and loss as one module: what other programs call a model."""

    def __init__(self, workload: Workload) -> None:
        """Build the model, on CPU."""
        super().__init__()
        self.workload = workload
        self.trained = workload.build()
        self._is_offloaded = self._is_pinned = False

    def forward(self, batch: Batch) -> Tensor:
        """Return the mean loss over a micro-batch's trained units."""
        with self._saved_elsewhere():
            return self.workload.loss(self.trained, batch) / self.workload.count(batch)

    def follow(self, config: TrainingConfig, device: torch.device) -> None:
        """Do what launchers' files have no key for, and leave to the script."""
        set_matmul_precision(config)
        self.recompute(config.checkpoint_interval, config.checkpoint_deepest)
        self._is_offloaded = config.activation_offload == ActivationOffload.CPU
        self._is_pinned = device.type == "cuda"

    def recompute(self, interval: int, deepest: int = 0) -> None:
        """Recompute every Nth block."""
        checkpoint_blocks(self.workload.blocks(self.trained), interval, deepest)

    def _saved_elsewhere(self) -> AbstractContextManager[object]:
        return save_on_cpu(pin_memory=self._is_pinned) if self._is_offloaded else nullcontext()


@dataclass(slots=True)
class Handed:
    """A training that another program's loop does, and what was seen of it.

    Attributes:
        workload: What is trained.
        config: The trial's, for what the file has no key for and leaves to the script.
        device: Where.
        folder: Of the files, and of the checkpoint.
        steps: Optimizer steps to take, ``WARM_UP_STEPS`` included.
        seed: Of the data order.
        nvme_folder: For the files of an offload to disk.
        readings: One per step taken.
        num_micro_batches: Trained on so far.
        quality: What the one evaluation said.
        checkpoint_bytes: Size of what the one save wrote.
    """

    workload: Workload
    config: TrainingConfig
    device: torch.device
    folder: Path
    steps: int
    seed: int = 0
    nvme_folder: Path | None = None
    readings: list[StepReading] = field(default_factory=list)
    num_micro_batches: int = 0
    quality: float | None = None
    checkpoint_bytes: int = 0
    _waited: float = 0.0
    _units: int = 0
    _loss: float = 0.0
    _since: float = 0.0

    def path(self, name: str) -> Path:
        """Return where a file lies."""
        return self.folder / name

    def document(self) -> dict[str, Any]:
        """Return the config's document."""
        found: dict[str, Any] = json.loads(self.path(DOCUMENT).read_text(encoding="utf-8"))
        return found

    def batches(self) -> Iterator[Batch]:
        """Yield the micro-batches of all steps, timing how long they take to come."""
        micro, parts = self.config.micro_batch_size, self.config.accumulation_steps
        worst = repeat(self.workload.worst_batch(micro), WARM_UP_STEPS * parts)
        stream = chain(worst, self.workload.batches(micro, self.seed))
        for index in range(self.steps * parts):
            started = time.perf_counter()
            batch = next(stream)
            now = time.perf_counter()
            if index == 0:
                torch.manual_seed(self.seed)  # dropout's masks, whatever the program drew before
                self._since = now
            else:
                self._waited += now - started
            yield batch

    def lost(self, loss: float, batch: Batch) -> None:
        """Take note of a micro-batch's mean loss."""
        units = self.workload.count(batch)
        self._loss += loss * units
        self._units += units
        self.num_micro_batches += 1

    def stepped(self, *, is_skipped: bool = False) -> None:
        """Take note of the end of an optimizer step."""
        synchronise(self.device)
        now = time.perf_counter()
        self.readings.append(
            StepReading(
                seconds=now - self._since - self._waited,
                data_wait_seconds=self._waited,
                units=self._units,
                is_skipped=is_skipped,
                loss=self._loss / max(1, self._units),
            )
        )
        self._since, self._waited, self._units, self._loss = now, 0.0, 0, 0.0

    def evaluate(self, model: nn.Module) -> None:
        """Evaluate the workload's model as a trial of its quality does."""
        model.eval()
        with torch.no_grad():
            self.quality = checked_quality(self.workload.evaluate(model, self.device))
        model.train()

    def saved(self, path: Path) -> None:
        """Take note of a checkpoint: a file, or a folder of files."""
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        self.checkpoint_bytes += sum(file.stat().st_size for file in files)

    def place(self, files: Mapping[str, str]) -> None:
        """Write the files that were handed over; those that name another one find it there."""
        for name, text in files.items():
            text = text.replace(f'"{SWAP_FOLDER}"', f'"{self.nvme_folder}"')
            for other in files:
                text = text.replace(f'"{other}"', f'"{self.folder / other}"')
                text = text.replace(f": {other}\n", f": {self.folder / other}\n")
            self.path(name).write_text(text, encoding="utf-8")


class Target(Protocol):
    """A program that trains, of one name under ``trials.through_*``."""

    def __call__(self, handed: Handed) -> None:
        """Take the steps, evaluate once and save a checkpoint once.

        Raises:
            TrialSetupError: The program is not installed, or refuses the file.
        """
        ...
