"""Optimizers by update rule and width of their state.

32 bits are torch's own, except Lion; 8 bits are bitsandbytes' block-wise kind, which keeps tensors
under 4,096 elements in 32 bits; 4 bits are torchao's, which does the same, and bitsandbytes has
none. torchao compiles its update on CUDA. On a CPU it runs uncompiled here: compiling takes tens
of seconds and memory that would count as the trial's.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from search_spaces import OffloadTarget, Optimizer, TrainingConfig
from search_spaces.update_rules import UPDATE_RULES
from trials.low_bit import (
    inner_optimizers,
    low_bit_optimizer,
    offloaded_adamw,
    step_uncompiled,
)

_TORCH: dict[Optimizer, Callable[..., torch.optim.Optimizer]] = {
    Optimizer.ADAMW: torch.optim.AdamW,
    Optimizer.SGD: torch.optim.SGD,
}


def build_optimizer(
    parameters: Iterable[nn.Parameter],
    config: TrainingConfig,
    device: torch.device,
    learning_rate: float,
) -> torch.optim.Optimizer:
    """Return an optimizer over the trained parameters.

    Args:
        parameters: Frozen ones are left out.
        config: Whose update rule and bits, and at ``zero_stage`` 0 whose offload target, it has.
        device: Where it steps.
        learning_rate: As for AdamW; see ``UPDATE_RULES``.

    Raises:
        TrialSetupError: The package that has it cannot be imported.
    """
    kind, bits = config.optimizer, config.optimizer_bits
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    rule = UPDATE_RULES[kind]
    options: dict[str, Any] = {"lr": learning_rate * rule.relative_rate}
    if rule.momentum is not None:
        options["momentum"] = rule.momentum
    if config.zero_stage == 0 and config.offload_target == OffloadTarget.CPU:
        return offloaded_adamw(trained, **options)
    is_paged = config.offload_target == OffloadTarget.PAGED
    if bits == 32 and kind in _TORCH and not is_paged:
        return _TORCH[kind](trained, **options)
    optimizer = low_bit_optimizer(kind, bits, is_paged=is_paged)(trained, **options)
    step_uncompiled(optimizer, device)
    return optimizer


def state_bytes(optimizer: torch.optim.Optimizer, device: torch.device | None = None) -> int:
    """Return the bytes that the optimizer's state tensors really take, each storage once.

    Args:
        optimizer: That has stepped.
        device: Whose memory is meant; None for all.
    """
    return tensor_bytes(
        tensor
        for tensor in state_tensors(optimizer)
        if device is None or tensor.device.type == device.type
    )


def state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors of an optimizer's state."""
    return [
        value
        for inner in inner_optimizers(optimizer)
        for state in inner.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes behind tensors, shared storage counted once."""
    return sum(tensor_blocks(tensors).values())


def tensor_blocks(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Return the memory behind tensors: bytes by address."""
    return {
        part.untyped_storage().data_ptr(): part.untyped_storage().nbytes()
        for tensor in tensors
        for part in _plain_parts(tensor)
    }


def _plain_parts(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that hold the values of one; a quantized one has several."""
    flatten: Callable[[], tuple[list[str], Any]] | None
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return [tensor]
    names, _ = flatten()
    parts = (getattr(tensor, name) for name in names)
    return [plain for part in parts if isinstance(part, Tensor) for plain in _plain_parts(part)]
