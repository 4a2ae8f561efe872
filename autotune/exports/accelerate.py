"""A config as the YAML of ``accelerate launch``: plain, FSDP, or DeepSpeed by file or by keys."""

from typing import Any

from autotune.errors import UnsupportedExportError
from autotune.exports.accelerate_fsdp import KEY, NOTES, fsdp_keys
from autotune.exports.base import (
    Exported,
    Handover,
    beyond_launchers,
    commented,
    require_deepspeed,
)
from autotune.exports.yaml_text import to_yaml
from search_spaces import AmpDtype, OffloadTarget, Sharding, Switch

MIXED_PRECISION = {AmpDtype.BF16: "bf16", AmpDtype.FP16: "fp16"}
NEVER_CLIPPED = 1e9
"""A gradient norm that is not reached: 0 would leave DeepSpeed its own 1.0."""


def export_accelerate(handover: Handover) -> Exported:
    """See Exporter."""
    config = handover.config
    is_fsdp = config.zero_stage > 0 and config.sharding == Sharding.FSDP
    if not is_fsdp or handover.partner is not None:
        require_deepspeed(config)
    is_sharded = handover.partner is not None or (config.zero_stage > 0 and not is_fsdp)
    kind = "FSDP" if is_fsdp else _distributed_type(handover)
    document: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "DEEPSPEED" if is_sharded else kind,
        "downcast_bf16": "no",
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": 1,
        "num_processes": handover.num_devices,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": not handover.is_on_cuda,
    }
    if handover.config.compile == Switch.ON:
        document["dynamo_config"] = {"dynamo_backend": "INDUCTOR"}
    if handover.partner is not None:
        document["deepspeed_config"] = {
            "deepspeed_config_file": handover.partner,
            "zero3_init_flag": False,
        }
        notes = _script_notes(handover, ())
    else:
        document["mixed_precision"] = MIXED_PRECISION.get(handover.config.amp_dtype, "no")
        if is_sharded:
            document["deepspeed_config"] = _inline_keys(handover)
        if is_fsdp:
            document[KEY] = fsdp_keys(config)
        notes = _script_notes(handover, _inline_notes(handover) if is_sharded else ())
        notes += NOTES if is_fsdp else ()
    return Exported(text=commented(handover, notes) + to_yaml(document), notes=notes)


def _distributed_type(handover: Handover) -> str:
    if handover.num_devices == 1:
        return "NO"
    return "MULTI_GPU" if handover.is_on_cuda else "MULTI_CPU"


def _inline_keys(handover: Handover) -> dict[str, Any]:
    config = handover.config
    if config.amp_dtype in MIXED_PRECISION:
        raise UnsupportedExportError(
            f"amp_dtype={config.amp_dtype} with zero_stage={config.zero_stage}: accelerate's own "
            "keys have DeepSpeed train weights in 16 bits, which is not what was measured; write "
            "both files with --pair deepspeed --to FILE"
        )
    target = str(config.offload_target)
    parameters = target if config.zero_stage == 3 else str(OffloadTarget.NONE)
    keys: dict[str, Any] = {
        "gradient_accumulation_steps": config.accumulation_steps,
        "gradient_clipping": NEVER_CLIPPED,
        "offload_optimizer_device": target,
        "offload_param_device": parameters,
        "zero3_init_flag": False,
        "zero3_save_16bit_model": False,
        "zero_stage": config.zero_stage,
    }
    if config.offload_target == OffloadTarget.NVME:
        path = handover.study.spec.nvme_path
        keys |= {"offload_optimizer_nvme_path": path, "offload_param_nvme_path": path}
    return keys


def _inline_notes(handover: Handover) -> tuple[str, ...]:
    notes = {
        "inline keys leave bucket and buffer sizes to DeepSpeed's defaults, which take more "
        "memory for a small model: --pair deepspeed writes what was measured": True,
        "accelerate turns torch's AdamW into DeepSpeed's CPUAdam for the offload": (
            handover.config.offload_target != OffloadTarget.NONE
        ),
    }
    return tuple(text for text, is_so in notes.items() if is_so)


def _script_notes(handover: Handover, others: tuple[str, ...]) -> tuple[str, ...]:
    """Say what an accelerate file has no key for, which the training script must set."""
    config = handover.config
    said = {
        f"micro_batch_size={config.micro_batch_size}": True,
        f"accumulation_steps={config.accumulation_steps}": (
            handover.partner is None
            and (config.zero_stage == 0 or config.sharding == Sharding.FSDP)
        ),
        f"optimizer={config.optimizer}": True,
        f"optimizer_bits={config.optimizer_bits}": True,
    }
    names = [*(name for name, is_so in said.items() if is_so), *beyond_launchers(config)]
    return (f"your script sets what accelerate has no key for: {', '.join(names)}", *others)
