"""Which configs a device cannot run, each with its reason."""

from collections.abc import Callable
from dataclasses import dataclass

from search_spaces.config import AmpDtype, OffloadTarget, TrainingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What the rules must know of a device.

    Attributes:
        kind: ``cpu`` or ``cuda``.
        compute_capability: (major, minor) on CUDA, else None.
        has_8bit_optimizer: Whether bitsandbytes can be imported there.
    """

    kind: str = "cpu"
    compute_capability: tuple[int, int] | None = None
    has_8bit_optimizer: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One reason to refuse configs before any of them runs.

    Attributes:
        name: Short, stable word for the rule.
        refuse: Returns the reason, or None where the rule has nothing against the config.
    """

    name: str
    refuse: Callable[[TrainingConfig, DeviceFacts], str | None]


def refusal(config: TrainingConfig, device: DeviceFacts) -> str | None:
    """Return the reason of the first rule that refuses a config, or None."""
    for rule in RULES:
        reason = rule.refuse(config, device)
        if reason is not None:
            return reason
    return None


def _bf16_needs_hardware(config: TrainingConfig, device: DeviceFacts) -> str | None:
    capability = device.compute_capability
    if config.amp_dtype != AmpDtype.BF16 or capability is None or capability >= (8, 0):
        return None
    major, minor = capability
    return f"bf16 needs compute capability 8.0; this GPU has {major}.{minor} and only emulates it"


def _8bit_needs_bitsandbytes(config: TrainingConfig, device: DeviceFacts) -> str | None:
    if config.optimizer_bits != 8 or device.has_8bit_optimizer:
        return None
    return "optimizer_bits=8 needs bitsandbytes, which cannot be imported here"


def _offload_needs_backend(config: TrainingConfig, device: DeviceFacts) -> str | None:
    if config.offload_target == OffloadTarget.NONE:
        return None
    return (
        f"offload_target={config.offload_target} has no backend in this version; "
        "only offload_target=none runs"
    )


RULES: tuple[Rule, ...] = (
    Rule(name="bf16-hardware", refuse=_bf16_needs_hardware),
    Rule(name="8bit-backend", refuse=_8bit_needs_bitsandbytes),
    Rule(name="offload-backend", refuse=_offload_needs_backend),
)
