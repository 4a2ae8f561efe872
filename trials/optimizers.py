"""Optimizers by the width of their state. The only door to bitsandbytes."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from trials.errors import TrialSetupError


def build_optimizer(
    parameters: Iterable[nn.Parameter], *, bits: int, learning_rate: float
) -> torch.optim.Optimizer:
    """Return AdamW over the trained parameters, with 32- or 8-bit state.

    8-bit is bitsandbytes' block-wise AdamW; it keeps tensors under 4,096 elements in 32 bits.

    Raises:
        TrialSetupError: 8-bit without bitsandbytes.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if bits == 32:
        return torch.optim.AdamW(trained, lr=learning_rate)
    try:
        from bitsandbytes.optim.adamw import AdamW8bit
    except ImportError as error:
        raise TrialSetupError(
            f"optimizer_bits=8 needs bitsandbytes, which cannot be imported: {error}"
        ) from error
    optimizer: torch.optim.Optimizer = AdamW8bit(  # type: ignore[no-untyped-call]
        trained, lr=learning_rate
    )
    return optimizer


def has_8bit_optimizer() -> bool:
    """Tell whether bitsandbytes can really be imported here; being installed is not enough."""
    try:
        import bitsandbytes.optim  # noqa: F401
    except (ImportError, OSError, RuntimeError, AttributeError):
        return False
    return True


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes that the optimizer's state tensors really take, each storage once."""
    tensors = [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]
    return tensor_bytes(tensors)


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes behind tensors, shared storage counted once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in tensors
    }
    return sum(storages.values())
