"""Which configs cannot run, each with its reason. Those of a device, and those of any."""

from collections.abc import Callable
from dataclasses import dataclass

from search_spaces.config import (
    ActivationOffload,
    AmpDtype,
    OffloadTarget,
    Optimizer,
    Switch,
    TrainingConfig,
)

TECHNIQUES: dict[str, Callable[[TrainingConfig], bool]] = {
    "8-bit": lambda config: config.optimizer_bits == 8 or config.optimizer == Optimizer.LION,
    "4-bit": lambda config: config.optimizer_bits == 4,
    "zero": lambda config: config.zero_stage > 0,
    "offload-cpu": lambda config: config.offload_target == OffloadTarget.CPU,
    "offload-nvme": lambda config: config.offload_target == OffloadTarget.NVME,
    "compile": lambda config: config.compile == Switch.ON,
}
"""What needs more than torch, and which configs use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What the rules must know of a device.

    Attributes:
        kind: ``cpu`` or ``cuda``.
        compute_capability: (major, minor) on CUDA, else None.
        missing: Those of ``TECHNIQUES`` that cannot be used there, and why.
    """

    kind: str = "cpu"
    compute_capability: tuple[int, int] | None = None
    missing: tuple[tuple[str, str], ...] = ()

    def why_missing(self, technique: str) -> str | None:
        """Return why a technique cannot be used here; None if it can."""
        return dict(self.missing).get(technique)


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


def _tf32_needs_hardware(config: TrainingConfig, device: DeviceFacts) -> str | None:
    capability = device.compute_capability
    if config.amp_dtype != AmpDtype.TF32 or (capability is not None and capability >= (8, 0)):
        return None
    if capability is None:
        return "tf32 needs a GPU of compute capability 8.0; a CPU has none"
    return f"tf32 needs compute capability 8.0; this GPU has {capability[0]}.{capability[1]}"


def _technique_must_be_there(config: TrainingConfig, device: DeviceFacts) -> str | None:
    used = (name for name, is_used in TECHNIQUES.items() if is_used(config))
    return next(filter(None, map(device.why_missing, used)), None)


def _offload_needs_stage(config: TrainingConfig, device: DeviceFacts) -> str | None:
    """Source: DeepSpeed's schema accepts both pairs, and then offloads nothing or fails."""
    if config.offload_target == OffloadTarget.CPU and config.zero_stage < 1:
        return "offload_target=cpu needs zero_stage 1 or more: DeepSpeed ignores it at stage 0"
    if config.offload_target == OffloadTarget.NVME and config.zero_stage < 3:
        return "offload_target=nvme needs zero_stage=3: DeepSpeed swaps to disk at no other"
    return None


def _offload_steps_on_the_cpu(config: TrainingConfig, device: DeviceFacts) -> str | None:
    """DeepSpeed's own optimizer steps where the state lives; it has AdamW in 32 bits alone."""
    if config.offload_target == OffloadTarget.NONE:
        return None
    if config.optimizer_bits != 32:
        return (
            f"offload_target={config.offload_target} needs optimizer_bits=32: the state is "
            "stepped on the CPU, by DeepSpeed's AdamW"
        )
    if config.optimizer != Optimizer.ADAMW:
        return (
            f"offload_target={config.offload_target} needs optimizer=adamw: the state is stepped "
            "on the CPU, by DeepSpeed's AdamW"
        )
    return None


def _zero_never_lowers_its_loss_scale(config: TrainingConfig, device: DeviceFacts) -> str | None:
    """Measured on DeepSpeed 0.19.8: after an overflow it does not call its scaler's ``update``.

    Its other way, the ``fp16`` section, trains 16-bit weights, which is another training.
    """
    if config.zero_stage == 0 or config.amp_dtype != AmpDtype.FP16:
        return None
    return (
        "fp16 under ZeRO: DeepSpeed's autocast never lowers its loss scale, so that after the "
        "first overflow every step is skipped; take bf16"
    )


def _zero_is_not_compiled(config: TrainingConfig, device: DeviceFacts) -> str | None:
    if config.zero_stage == 0 or config.compile == Switch.OFF:
        return None
    return "compile=on with ZeRO is not measured: trials compile plain PyTorch alone"


def _optimizer_has_bits(config: TrainingConfig, device: DeviceFacts) -> str | None:
    if config.optimizer_bits == 4 and config.optimizer != Optimizer.ADAMW:
        return f"optimizer_bits=4 exists for adamw alone, not for {config.optimizer}"
    if config.optimizer_bits == 4 and config.zero_stage > 0:
        return "optimizer_bits=4 keeps state per tensor, and ZeRO flattens tensors; take 8 or 32"
    return None


def _deepest_needs_interval(config: TrainingConfig, device: DeviceFacts) -> str | None:
    if config.checkpoint_deepest == 0 or config.checkpoint_interval > 0:
        return None
    return "checkpoint_deepest does nothing while checkpoint_interval=0"


def _activations_move_on_cuda(config: TrainingConfig, device: DeviceFacts) -> str | None:
    if config.activation_offload == ActivationOffload.NONE or device.kind != "cpu":
        return None
    return "activation_offload=cpu moves nothing where the CPU is the device itself"


RULES: tuple[Rule, ...] = (
    Rule(name="bf16-hardware", refuse=_bf16_needs_hardware),
    Rule(name="tf32-hardware", refuse=_tf32_needs_hardware),
    Rule(name="offload-stage", refuse=_offload_needs_stage),
    Rule(name="offload-optimizer", refuse=_offload_steps_on_the_cpu),
    Rule(name="zero-loss-scaling", refuse=_zero_never_lowers_its_loss_scale),
    Rule(name="zero-compile", refuse=_zero_is_not_compiled),
    Rule(name="optimizer-bits", refuse=_optimizer_has_bits),
    Rule(name="deepest-interval", refuse=_deepest_needs_interval),
    Rule(name="activation-offload-device", refuse=_activations_move_on_cuda),
    Rule(name="technique", refuse=_technique_must_be_there),
)
