"""Optimizers and layers of fewer than 32 bits. The only door to bitsandbytes and torchao."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from search_spaces import Optimizer
from trials.errors import TrialSetupError

_CLASSES = {
    (Optimizer.LION, 32): ("bitsandbytes.optim", "Lion"),
    (Optimizer.ADAMW, 8): ("bitsandbytes.optim", "AdamW8bit"),
    (Optimizer.SGD, 8): ("bitsandbytes.optim", "SGD8bit"),
    (Optimizer.LION, 8): ("bitsandbytes.optim", "Lion8bit"),
    (Optimizer.ADAMW, 4): ("torchao.optim", "AdamW4bit"),
}
_PAGED = {
    (Optimizer.ADAMW, 32): ("bitsandbytes.optim", "PagedAdamW32bit"),
    (Optimizer.ADAMW, 8): ("bitsandbytes.optim", "PagedAdamW8bit"),
    (Optimizer.LION, 32): ("bitsandbytes.optim", "PagedLion32bit"),
    (Optimizer.LION, 8): ("bitsandbytes.optim", "PagedLion8bit"),
}
_BROKEN = (ImportError, OSError, RuntimeError, AttributeError)
"""What an import of a package raises whose libraries do not fit this machine."""


def low_bit_optimizer(
    kind: Optimizer, bits: int, *, is_paged: bool
) -> Callable[..., torch.optim.Optimizer]:
    """Return the class of an optimizer that torch has not.

    Args:
        kind: Update rule.
        bits: Per value of state.
        is_paged: Whether its state lies in memory that a GPU and the host share.

    Raises:
        TrialSetupError: The package that has it cannot be imported.
    """
    found: Callable[..., torch.optim.Optimizer]
    found = _import(*(_PAGED if is_paged else _CLASSES)[kind, bits])
    return found


def offloaded_adamw(parameters: list[nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    """Return an AdamW whose state stays in host memory and is stepped there, from a GPU.

    Gradients are copied and not moved, so that they may be accumulated on the GPU.

    Raises:
        TrialSetupError: torchao cannot be imported.
    """
    kind = _import("torchao.optim", "CPUOffloadOptimizer")
    made: torch.optim.Optimizer = kind(parameters, torch.optim.AdamW, **options)
    return made


def inner_optimizers(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Return those that hold the state: torchao's offload has one per parameter, others are it."""
    per_parameter = getattr(optimizer, "optim_dict", None)
    if per_parameter is None:
        return [optimizer]
    on_device = getattr(optimizer, "d_opt", None)
    return [*per_parameter.values(), *([] if on_device is None else [on_device])]


def host_copies(optimizer: torch.optim.Optimizer) -> dict[str, list[Tensor]]:
    """Return page-locked copies that an optimizer keeps on the host, by kind; torchao's alone."""
    copies = list(getattr(optimizer, "param_d2h_map", {}).values())
    gradients = [copy.grad for copy in copies if copy.grad is not None]
    return {"parameters": copies, "gradients": gradients} if copies else {}


def step_uncompiled(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Keep a CPU trial's optimizer from compiling its update; does nothing to most."""
    if device.type != "cpu" or not type(optimizer).__module__.startswith("torchao"):
        return
    step = optimizer.step

    def uncompiled(*args: Any, **kwargs: Any) -> Any:
        with torch.compiler.set_stance("force_eager"):
            return step(*args, **kwargs)

    optimizer.step = uncompiled  # type: ignore[method-assign]


def quantized_linear(linear: nn.Linear, bits: int, compute_dtype: torch.dtype) -> nn.Module:
    """Return a frozen layer of 8 or 4 bits that computes nearly what a linear one does.

    8 bits are LLM.int8() without outliers kept apart; 4 bits are NF4 with quantized scales, as
    QLoRA has them (Dettmers et al. 2023). The weight is quantized when the layer is moved to a
    device.

    Args:
        linear: On CPU; its weight is let go of.
        bits: 8 or 4.
        compute_dtype: What 4-bit weights are multiplied in.

    Raises:
        TrialSetupError: bitsandbytes cannot be imported.
    """
    shape = (linear.in_features, linear.out_features)
    layers = "bitsandbytes.nn"
    layer: nn.Module
    if bits == 8:
        layer = _import(layers, "Linear8bitLt")(*shape, has_fp16_weights=False, device="meta")
        packed = _import(layers, "Int8Params")
        options: dict[str, Any] = {"has_fp16_weights": False}
    else:
        layer = _import(layers, "Linear4bit")(
            *shape, compute_dtype=compute_dtype, quant_type="nf4", device="meta"
        )
        packed = _import(layers, "Params4bit")
        options = {"quant_type": "nf4"}
    layer.weight = packed(linear.weight.data, requires_grad=False, **options)
    bias = linear.bias
    layer.bias = None if bias is None else nn.Parameter(bias.data, requires_grad=False)
    return layer


def missing_8bit() -> str | None:
    """Return why bitsandbytes cannot be used here; None if it can."""
    try:
        importlib.import_module("bitsandbytes.optim")
    except _BROKEN as error:  # being installed is not enough
        reason = " ".join(str(error).split())[:200]
        return (
            "8-bit optimizers, lion, paged state and quantized weights need bitsandbytes, which "
            f"cannot be imported here: {reason}; pip install --force-reinstall bitsandbytes"
        )
    return None


def missing_8bit_on_cpu() -> str | None:
    """Return why 8-bit state cannot be stepped in host memory; None if it can.

    bitsandbytes has kernels for CPUs in later versions; what counts is whether this one has.
    """
    missing = missing_8bit()
    if missing is not None:
        return missing
    operator = "bitsandbytes::optimizer_update_8bit_blockwise"
    if torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CPU"):
        return None
    return (
        "optimizer_bits=8 with offload_target=cpu needs a bitsandbytes with kernels for CPUs; "
        "pip install --upgrade bitsandbytes"
    )


def missing_4bit() -> str | None:
    """Return why torchao cannot be used here; None if it can."""
    if importlib.util.find_spec("torchao") is not None:  # importing it takes seconds
        return None
    return (
        "optimizer_bits=4, and offload_target=cpu at zero_stage=0, need torchao, which is not "
        "installed; pip install 'autotune[low-bit]'"
    )


def _import(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except _BROKEN as error:
        package = module.partition(".")[0]
        raise TrialSetupError(
            f"{name} needs {package}, which cannot be imported: {error}"
        ) from error
