"""Optimizers by update rule and width of their state. The only door to bitsandbytes and torchao.

32 bits are torch's own, except Lion; 8 bits are bitsandbytes' block-wise kind, which keeps tensors
under 4,096 elements in 32 bits; 4 bits are torchao's, which does the same, and bitsandbytes has
none. torchao compiles its update on CUDA. On a CPU it runs uncompiled here: compiling takes tens
of seconds and memory that would count as the trial's.
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from search_spaces import Optimizer
from search_spaces.update_rules import UPDATE_RULES
from trials.errors import TrialSetupError

_CLASSES = {
    (Optimizer.ADAMW, 32): ("torch.optim", "AdamW"),
    (Optimizer.SGD, 32): ("torch.optim", "SGD"),
    (Optimizer.LION, 32): ("bitsandbytes.optim", "Lion"),
    (Optimizer.ADAMW, 8): ("bitsandbytes.optim", "AdamW8bit"),
    (Optimizer.SGD, 8): ("bitsandbytes.optim", "SGD8bit"),
    (Optimizer.LION, 8): ("bitsandbytes.optim", "Lion8bit"),
    (Optimizer.ADAMW, 4): ("torchao.optim", "AdamW4bit"),
}
_BROKEN = (ImportError, OSError, RuntimeError, AttributeError)
"""What an import of a package raises whose libraries do not fit this machine."""


def build_optimizer(
    parameters: Iterable[nn.Parameter],
    *,
    kind: Optimizer,
    bits: int,
    learning_rate: float,
) -> torch.optim.Optimizer:
    """Return an optimizer over the trained parameters.

    Args:
        parameters: Frozen ones are left out.
        kind: Update rule.
        bits: Per value of state.
        learning_rate: As for AdamW; see ``UPDATE_RULES``.

    Raises:
        TrialSetupError: The package that has it cannot be imported.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    rule = UPDATE_RULES[kind]
    options: dict[str, Any] = {"lr": learning_rate * rule.relative_rate}
    if rule.momentum is not None:
        options["momentum"] = rule.momentum
    optimizer: torch.optim.Optimizer = _optimizer_class(kind, bits)(trained, **options)
    return optimizer


def step_uncompiled(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Keep a CPU trial's optimizer from compiling its update; does nothing to most."""
    if device.type != "cpu" or not type(optimizer).__module__.startswith("torchao"):
        return
    step = optimizer.step

    def uncompiled(*args: Any, **kwargs: Any) -> Any:
        with torch.compiler.set_stance("force_eager"):
            return step(*args, **kwargs)

    optimizer.step = uncompiled  # type: ignore[method-assign]


def missing_8bit() -> str | None:
    """Return why 8-bit optimizers cannot be used here; None if they can."""
    try:
        importlib.import_module("bitsandbytes.optim")
    except _BROKEN as error:  # being installed is not enough
        reason = " ".join(str(error).split())[:200]
        return (
            f"8-bit optimizers and lion need bitsandbytes, which cannot be imported here: {reason}"
        )
    return None


def missing_4bit() -> str | None:
    """Return why 4-bit optimizers cannot be used here; None if they can."""
    if importlib.util.find_spec("torchao") is not None:  # importing it takes seconds
        return None
    return (
        "optimizer_bits=4 needs torchao, which is not installed: pip install 'autotune[low-bit]'"
    )


def state_bytes(optimizer: torch.optim.Optimizer, device: torch.device | None = None) -> int:
    """Return the bytes that the optimizer's state tensors really take, each storage once.

    Args:
        optimizer: That has stepped.
        device: Whose memory is meant; None for all.
    """
    return tensor_bytes(
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor) and (device is None or value.device.type == device.type)
    )


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes behind tensors, shared storage counted once."""
    storages = {
        part.untyped_storage().data_ptr(): part.untyped_storage().nbytes()
        for tensor in tensors
        for part in _plain_parts(tensor)
    }
    return sum(storages.values())


def _plain_parts(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that hold the values of one; a quantized one has several."""
    flatten: Callable[[], tuple[list[str], Any]] | None
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return [tensor]
    names, _ = flatten()
    return [part for name in names for part in _plain_parts(getattr(tensor, name))]


def _optimizer_class(kind: Optimizer, bits: int) -> Callable[..., Any]:
    module, name = _CLASSES[kind, bits]
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except _BROKEN as error:
        package = module.partition(".")[0]
        raise TrialSetupError(
            f"optimizer={kind} with optimizer_bits={bits} needs {package}, which cannot be "
            f"imported: {error}"
        ) from error
    return found
