"""LoRA adapters beside frozen weights, of 32 bits or quantized (QLoRA). The only door to peft."""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from search_spaces import TrainingConfig
from search_spaces.adapters import ALPHA_PER_RANK
from trials.engines import AUTOCAST_DTYPES
from trials.errors import TrialSetupError, WorkloadError
from trials.low_bit import quantized_linear


def add_adapters(model: nn.Module, blocks: Sequence[nn.Module], config: TrainingConfig) -> None:
    """Freeze a model and train adapters beside the linear layers of its blocks instead.

    A model without blocks gets them beside all of its linear layers. The second matrix of an
    adapter begins at zero, so that the model first computes what it did (Hu et al. 2021).

    Args:
        model: On CPU; changed in place.
        blocks: Of the model.
        config: With ``lora_rank`` 1 or more.

    Raises:
        TrialSetupError: peft or bitsandbytes cannot be imported.
        WorkloadError: There is no linear layer.
    """
    names = linear_names(model, blocks)
    if not names:
        raise WorkloadError(
            f"lora_rank={config.lora_rank} needs linear layers, and the model has none; "
            "use --set lora_rank=0"
        )
    model.requires_grad_(False)
    if config.weight_bits < 32:
        _quantize(model, names, config)
    peft = _peft()
    adapters = peft.LoraConfig(
        r=config.lora_rank,
        lora_alpha=ALPHA_PER_RANK * config.lora_rank,
        target_modules=names,
        lora_dropout=0.0,
    )
    peft.inject_adapter_in_model(adapters, model)


def missing_lora() -> str | None:
    """Return why adapters cannot be used here; None if they can."""
    if importlib.util.find_spec("peft") is not None:  # importing it takes seconds
        return None
    return "lora_rank needs peft, which is not installed; pip install 'autotune[lora]'"


def linear_names(model: nn.Module, blocks: Sequence[nn.Module]) -> list[str]:
    """Return the linear layers that adapters stand beside, by name."""
    inside = {id(module) for block in blocks for module in block.modules()}
    return [
        name
        for name, module in model.named_modules()
        if _is_linear(module) and (not inside or id(module) in inside)
    ]


def _is_linear(module: nn.Module) -> bool:
    """Tell a linear layer, the transposed one of GPT-2 in transformers included."""
    return type(module) is nn.Linear or type(module).__name__ == "Conv1D"


def _quantize(model: nn.Module, names: Sequence[str], config: TrainingConfig) -> None:
    dtype = AUTOCAST_DTYPES.get(config.amp_dtype, torch.float32)
    for name in names:
        parent, _, own = name.rpartition(".")
        linear = _as_linear(model.get_submodule(name))
        layer = quantized_linear(linear, config.weight_bits, dtype)
        setattr(model.get_submodule(parent), own, layer)


def _as_linear(module: nn.Module) -> nn.Linear:
    if isinstance(module, nn.Linear):
        return module
    weight, bias = module.weight, module.bias  # of Conv1D: (inputs, outputs)
    assert isinstance(weight, nn.Parameter)
    inputs, outputs = weight.shape
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = nn.Parameter(weight.data.t().contiguous(), requires_grad=False)
    linear.bias = bias  # type: ignore[assignment]
    return linear


def _peft() -> Any:
    try:
        return importlib.import_module("peft")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise TrialSetupError(
            f"lora_rank needs peft, which cannot be imported: {error}"
        ) from error
