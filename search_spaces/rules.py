"""Which configs cannot run, each with its reason. Those of a device, and those of any."""

from collections.abc import Callable
from dataclasses import dataclass

from search_spaces.config import (
    ActivationOffload,
    AmpDtype,
    OffloadTarget,
    Optimizer,
    Sharding,
    Switch,
    TrainingConfig,
)
from search_spaces.deepspeed_document import steps_8bit_on_the_cpu
from search_spaces.zero_memory import JobFacts, too_little_for_disk, too_much_for_host

TECHNIQUES: dict[str, Callable[[TrainingConfig], bool]] = {
    "8-bit": lambda config: (
        config.optimizer_bits == 8
        or config.optimizer == Optimizer.LION
        or config.weight_bits < 32
        or config.offload_target == OffloadTarget.PAGED
    ),
    "4-bit": lambda config: config.optimizer_bits == 4 or _is_offloaded_by_torchao(config),
    "8-bit-on-cpu": steps_8bit_on_the_cpu,
    "lora": lambda config: config.lora_rank > 0,
    "zero": lambda config: config.is_zero,
    "offload-cpu": lambda config: config.offload_target == OffloadTarget.CPU and config.is_zero,
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
        num_devices: Data-parallel devices of one training job.
        job: What is to be trained there; None where that does not matter yet.
    """

    kind: str = "cpu"
    compute_capability: tuple[int, int] | None = None
    missing: tuple[tuple[str, str], ...] = ()
    num_devices: int = 1
    job: JobFacts | None = None

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


def _is_offloaded_by_torchao(config: TrainingConfig) -> bool:
    return config.offload_target == OffloadTarget.CPU and config.zero_stage == 0


def _offload_needs_stage(config: TrainingConfig, device: DeviceFacts) -> str | None:
    """Source: DeepSpeed's schema accepts both pairs, and then offloads nothing or fails."""
    if _is_offloaded_by_torchao(config) and device.kind == "cpu":
        return (
            "offload_target=cpu needs zero_stage 1 or more on a CPU: DeepSpeed ignores it at "
            "stage 0, where torchao offloads from GPUs alone"
        )
    if _is_offloaded_by_torchao(config) and device.num_devices > 1:
        return (
            "offload_target=cpu at zero_stage=0 is for one device: torchao moves gradients before "
            "devices average them; take zero_stage 1 or more"
        )
    if config.offload_target == OffloadTarget.NVME and config.zero_stage < 3:
        return "offload_target=nvme needs zero_stage=3: DeepSpeed swaps to disk at no other"
    return None


def _offload_steps_on_the_cpu(config: TrainingConfig, device: DeviceFacts) -> str | None:
    """DeepSpeed's update for CPUs is AdamW in 32 bits, and it takes bitsandbytes' if told to."""
    if config.offload_target not in (OffloadTarget.CPU, OffloadTarget.NVME):
        return None
    needs = f"offload_target={config.offload_target} needs"
    if steps_8bit_on_the_cpu(config):
        return None
    if config.optimizer_bits != 32:
        return f"{needs} optimizer_bits=32: the state is stepped on the CPU, by 32-bit AdamW"
    if config.optimizer != Optimizer.ADAMW:
        return f"{needs} optimizer=adamw: the state is stepped on the CPU, by AdamW alone"
    if config.amp_dtype == AmpDtype.FP16 and not config.is_zero:
        return f"{needs} bf16: fp16 gradients leave for the CPU before they are unscaled"
    return None


def _pages_need_cuda(config: TrainingConfig, device: DeviceFacts) -> str | None:
    """Source: bitsandbytes' paged optimizers lie in CUDA's unified memory."""
    if config.offload_target != OffloadTarget.PAGED:
        return None
    if device.kind != "cuda":
        return "offload_target=paged needs a GPU: its memory is shared by GPU and host"
    if config.zero_stage > 0:
        return "offload_target=paged keeps state per tensor; with zero_stage take cpu or nvme"
    if config.optimizer == Optimizer.SGD or config.optimizer_bits == 4:
        return "offload_target=paged exists for adamw and lion in 32 and 8 bits"
    return None


def _offload_fits_the_host(config: TrainingConfig, device: DeviceFacts) -> str | None:
    return None if device.job is None else too_much_for_host(config, device.job)


def _offload_reaches_the_disk(config: TrainingConfig, device: DeviceFacts) -> str | None:
    return None if device.job is None else too_little_for_disk(config, device.job)


def _zero_never_lowers_its_loss_scale(config: TrainingConfig, device: DeviceFacts) -> str | None:
    """Measured on DeepSpeed 0.19.8: after an overflow it does not call its scaler's ``update``.

    Its other way, the ``fp16`` section, trains 16-bit weights, which is another training.
    """
    if not config.is_zero or config.amp_dtype != AmpDtype.FP16:
        return None
    return (
        "fp16 under ZeRO: DeepSpeed's autocast never lowers its loss scale, so that after the "
        "first overflow every step is skipped; take bf16"
    )


def _zero_is_not_compiled(config: TrainingConfig, device: DeviceFacts) -> str | None:
    if config.zero_stage == 0 or config.compile == Switch.OFF:
        return None
    return "compile=on with zero_stage is not measured: trials compile plain PyTorch alone"


def _fsdp_has_stages(config: TrainingConfig, device: DeviceFacts) -> str | None:
    """Source: ``fully_shard`` frees gradients, and parameters too if they are resharded."""
    if config.sharding == Sharding.DEEPSPEED:
        return None
    if config.zero_stage < 2:
        return "sharding=fsdp needs zero_stage 2 or 3: fully_shard shards gradients at least"
    if config.offload_target == OffloadTarget.NVME:
        return "offload_target=nvme needs sharding=deepspeed: fully_shard has no disk"
    if config.optimizer_bits == 8 or config.optimizer == Optimizer.LION:
        return "sharding=fsdp shards no state of bitsandbytes; take optimizer_bits 32 or 4"
    if config.weight_bits < 32:
        return "sharding=fsdp is not measured with quantized weights; take weight_bits=32"
    return None


def _optimizer_has_bits(config: TrainingConfig, device: DeviceFacts) -> str | None:
    if config.optimizer_bits == 4 and config.optimizer != Optimizer.ADAMW:
        return f"optimizer_bits=4 exists for adamw alone, not for {config.optimizer}"
    if config.optimizer_bits == 4 and config.is_zero:
        return "optimizer_bits=4 keeps state per tensor, and ZeRO flattens tensors; take 8 or 32"
    return None


def _backward_steps_once(config: TrainingConfig, device: DeviceFacts) -> str | None:
    """Source: a gradient that is used at once can be neither added to, unscaled nor averaged."""
    if config.optimizer_in_backward == Switch.OFF:
        return None
    cannot = "optimizer_in_backward=on uses each gradient at once, so"
    if config.accumulation_steps > 1:
        return f"{cannot} accumulation_steps must be 1"
    if config.amp_dtype == AmpDtype.FP16:
        return f"{cannot} fp16 cannot unscale all of them before a step; take bf16"
    if config.zero_stage > 0 or device.num_devices > 1:
        return f"{cannot} devices cannot average it; one device and zero_stage=0 alone"
    if config.offload_target == OffloadTarget.CPU:
        return f"{cannot} it is not for state that is stepped on the CPU"
    return None


def _weights_are_frozen(config: TrainingConfig, device: DeviceFacts) -> str | None:
    if config.weight_bits == 32:
        return None
    if config.lora_rank == 0:
        return f"weight_bits={config.weight_bits} needs lora_rank: such weights are frozen"
    if config.zero_stage == 3:
        return f"weight_bits={config.weight_bits} cannot be sharded; take zero_stage 2 or less"
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
    Rule(name="paged-device", refuse=_pages_need_cuda),
    Rule(name="offload-host-memory", refuse=_offload_fits_the_host),
    Rule(name="offload-disk", refuse=_offload_reaches_the_disk),
    Rule(name="zero-loss-scaling", refuse=_zero_never_lowers_its_loss_scale),
    Rule(name="zero-compile", refuse=_zero_is_not_compiled),
    Rule(name="fsdp-stage", refuse=_fsdp_has_stages),
    Rule(name="optimizer-bits", refuse=_optimizer_has_bits),
    Rule(name="deepest-interval", refuse=_deepest_needs_interval),
    Rule(name="backward-step", refuse=_backward_steps_once),
    Rule(name="weight-bits", refuse=_weights_are_frozen),
    Rule(name="activation-offload-device", refuse=_activations_move_on_cuda),
    Rule(name="technique", refuse=_technique_must_be_there),
)
