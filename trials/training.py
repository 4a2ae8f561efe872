"""The training loop of a trial: one optimizer step over an accumulation window."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from search_spaces import AmpDtype, TrainingConfig
from trials.checkpointing import checkpoint_blocks
from trials.contract import checked_loss, counted_units
from trials.optimizers import build_optimizer
from trials.outcomes import DivergedError
from trials.timing import StepReading
from trials.workload import Batch, Workload, to_device

AUTOCAST_DTYPES = {AmpDtype.BF16: torch.bfloat16, AmpDtype.FP16: torch.float16}

REHEARSED_PARAMETERS = 50_000_000
"""Of a larger model no step is rehearsed before a study: it would take seconds, and memory that
only some config of the study may bring down to what there is."""


@dataclass(slots=True)
class TrainingState:
    """A model in training under one config. Not frozen: training changes it.

    Attributes:
        workload: What is trained.
        config: How.
        device: Where.
        model: The workload's model, checkpointed as the config says.
        optimizer: As wide as the config says.
        scaler: Scales the loss under fp16, and passes it through otherwise.
        optimizer_steps: Steps that the optimizer really took.
    """

    workload: Workload
    config: TrainingConfig
    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    optimizer_steps: int = 0

    def autocast(self) -> torch.autocast:
        """Return the context of the forward pass."""
        dtype = AUTOCAST_DTYPES.get(self.config.amp_dtype)
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)


def begin_training(
    workload: Workload, config: TrainingConfig, device: torch.device
) -> TrainingState:
    """Build the model and everything that trains it.

    Raises:
        WorkloadError: Checkpointing without blocks.
    """
    model = workload.build().to(device)
    checkpoint_blocks(workload.blocks(model), config.checkpoint_interval)
    model.train()
    optimizer = build_optimizer(
        model.parameters(), bits=config.optimizer_bits, learning_rate=workload.learning_rate
    )
    is_scaled = config.amp_dtype == AmpDtype.FP16
    state = TrainingState(
        workload=workload,
        config=config,
        device=device,
        model=model,
        optimizer=optimizer,
        scaler=torch.amp.GradScaler(device.type, enabled=is_scaled),
    )

    def count_step(*_: object) -> None:
        state.optimizer_steps += 1

    optimizer.register_step_post_hook(count_step)
    return state


def train_step(
    state: TrainingState,
    batches: Iterator[Batch],
    observe: Callable[[str], None] | None = None,
) -> StepReading:
    """Take one optimizer step over ``accumulation_steps`` micro-batches.

    The loss is the mean over all trained units of the window, not the mean of means: each
    micro-batch's summed loss is divided by the window's count.

    Args:
        state: Changed in place.
        batches: The window is taken from here.
        observe: Called with ``forward`` and ``backward`` after the window's last of each, when
            most is alive.

    Raises:
        DivergedError: The loss is not finite.
        WorkloadError: The workload returns no loss or no count that can be trained by.
    """
    waited = time.perf_counter()
    window = [next(batches) for _ in range(state.config.accumulation_steps)]
    synchronise(state.device)
    started = time.perf_counter()
    units = counted_units(state.workload, window)
    total = torch.zeros((), device=state.device)
    for index, batch in enumerate(window):
        with state.autocast():
            summed = state.workload.loss(state.model, to_device(batch, state.device))
        loss = checked_loss(summed) / units
        del summed
        total += loss.detach()
        is_watched = observe is not None and index == len(window) - 1
        if observe is not None and is_watched:
            observe("forward")
        state.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if observe is not None and is_watched:
            observe("backward")
        del loss
    is_skipped = _apply_gradients(state)
    mean_loss = float(total)
    synchronise(state.device)
    ended = time.perf_counter()
    if not math.isfinite(mean_loss):
        raise DivergedError(f"the loss is {mean_loss} after {state.optimizer_steps} steps")
    return StepReading(
        seconds=ended - started,
        data_wait_seconds=started - waited,
        units=units,
        is_skipped=is_skipped,
        loss=mean_loss,
    )


def rehearse_step(
    workload: Workload, model: nn.Module, batch: Batch, device: torch.device
) -> None:
    """Take a batch through the loss and backward as a step does, in fp32.

    There is no optimizer, and nothing is measured: it shows whether the workload trains at all.

    Args:
        workload: What is rehearsed.
        model: Its model; moved to the device, and left there with gradients.
        batch: One of the workload's, of one sample.
        device: Where.

    Raises:
        WorkloadError: The workload returns no loss or no count that can be trained by.
    """
    model.to(device).train()
    units = counted_units(workload, [batch])
    loss = checked_loss(workload.loss(model, to_device(batch, device))) / units
    loss.backward()  # type: ignore[no-untyped-call]
    synchronise(device)


def synchronise(device: torch.device) -> None:
    """Wait until a device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _apply_gradients(state: TrainingState) -> bool:
    before = state.optimizer_steps
    state.scaler.step(state.optimizer)
    state.scaler.update()
    state.optimizer.zero_grad(set_to_none=True)
    return state.optimizer_steps == before
