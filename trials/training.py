"""The training loop of a trial: one optimizer step over an accumulation window."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from search_spaces import Sharding, Switch, TrainingConfig
from trials.adapters import add_adapters
from trials.checkpointing import checkpoint_blocks
from trials.contract import checked_loss, counted_units
from trials.engines import BackwardEngine, Engine, PlainEngine, set_matmul_precision
from trials.outcomes import DivergedError
from trials.ranks import Ranks, replicated
from trials.timing import StepReading
from trials.workload import Batch, Workload, to_device

REHEARSED_PARAMETERS = 50_000_000
"""Of a larger model no step is rehearsed before a study: it would take seconds, and memory that
only some config of the study may bring down to what there is."""


@dataclass(slots=True)
class TrainingState:
    """A model in training under one config.

    Attributes:
        workload: What is trained.
        config: How.
        device: Where.
        engine: Takes the steps.
        ranks: The group that this process trains in.
    """

    workload: Workload
    config: TrainingConfig
    device: torch.device
    engine: Engine
    ranks: Ranks

    @property
    def model(self) -> nn.Module:
        """The workload's model, as the engine runs it."""
        return self.engine.model

    @property
    def optimizer_steps(self) -> int:
        """Steps that the optimizer really took."""
        return self.engine.optimizer_steps


def begin_training(
    workload: Workload,
    config: TrainingConfig,
    device: torch.device,
    nvme_folder: Path | None = None,
    ranks: Ranks | None = None,
) -> TrainingState:
    """Build the model and everything that trains it.

    Args:
        workload: What is trained.
        config: How.
        device: Where.
        nvme_folder: For the files of an offload to disk.
        ranks: The group that this process trains in; None where there is no group.

    Raises:
        WorkloadError: Checkpointing without blocks.
        TrialSetupError: What the config needs is not there.
    """
    set_matmul_precision(config)
    model = workload.build()
    blocks = workload.blocks(model)
    if config.lora_rank > 0:
        add_adapters(model, blocks, config)
    model = model.to(device)
    checkpoint_blocks(blocks, config.checkpoint_interval, config.checkpoint_deepest)
    model.train()
    ranks = ranks or Ranks(rank=0, count=1, device=device)
    engine = _engine(model, blocks, config, ranks, workload.learning_rate, nvme_folder)
    return TrainingState(
        workload=workload, config=config, device=device, engine=engine, ranks=ranks
    )


def _engine(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    config: TrainingConfig,
    ranks: Ranks,
    learning_rate: float,
    nvme_folder: Path | None,
) -> Engine:
    """Return what takes the steps of a config. Only what shards pays for the imports."""
    if config.zero_stage == 0 and ranks.count > 1:
        return PlainEngine(replicated(model, ranks.device), config, ranks.device, learning_rate)
    if config.optimizer_in_backward == Switch.ON:
        return BackwardEngine(model, config, ranks.device, learning_rate)
    if config.zero_stage == 0:
        return PlainEngine(model, config, ranks.device, learning_rate)
    if config.sharding == Sharding.FSDP:
        from trials.fsdp import FsdpEngine

        return FsdpEngine(model, blocks, config, ranks, learning_rate)
    from trials.zero import ZeroEngine

    return ZeroEngine(
        model, config, ranks.device, learning_rate=learning_rate, nvme_folder=nvme_folder
    )


def train_step(
    state: TrainingState,
    batches: Iterator[Batch],
    observe: Callable[[str], None] | None = None,
) -> StepReading:
    """Take one optimizer step over ``accumulation_steps`` micro-batches.

    The loss is the mean over all trained units of the window on all ranks, not the mean of
    means: each micro-batch's summed loss is divided by the count of the whole window. Engines
    average gradients over the ranks, hence the factor.

    Args:
        state: Changed in place.
        batches: The window is taken from here.
        observe: Called with ``start`` before the window's last forward pass, and with ``forward``
            and ``backward`` after it and its backward pass, when most is alive.

    Raises:
        DivergedError: The loss is not finite.
        WorkloadError: The workload returns no loss or no count that can be trained by.
    """
    waited = time.perf_counter()
    window = [next(batches) for _ in range(state.config.accumulation_steps)]
    synchronise(state.device)
    started = time.perf_counter()
    units = counted_units(state.workload, window)
    share = state.ranks.total(units) / state.ranks.count
    total = torch.zeros((), device=state.device)
    for index, batch in enumerate(window):
        is_last = index == len(window) - 1
        watch = observe if is_last and observe is not None else _ignore
        moved = to_device(batch, state.device)
        watch("start")
        with state.engine.forward(is_last=is_last):
            summed = state.workload.loss(state.model, moved)
        loss = checked_loss(summed) / share
        del summed, moved
        total += loss.detach()
        watch("forward")
        state.engine.backward(loss, is_last=is_last)
        watch("backward")
        del loss
    is_skipped = state.engine.step()
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


def _ignore(moment: str) -> None:
    pass
