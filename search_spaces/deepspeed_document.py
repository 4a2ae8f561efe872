"""What DeepSpeed is told of a config: one document, for our own trials and for exports."""

from typing import Any

from search_spaces.config import AmpDtype, OffloadTarget, TrainingConfig
from search_spaces.update_rules import UPDATE_RULES

NVME_BUFFERS = 5
"""Of the largest parameter's size; DeepSpeed's own default."""
LARGEST_BUCKET = 500_000_000
"""Elements; DeepSpeed's own default, which alone is 2 GB."""
LARGEST_GATHERED = 1_000_000_000
"""Elements that stage 3 keeps of weights it has gathered; DeepSpeed's own default."""
AIO = {"block_size": 2**20, "queue_depth": 8, "single_submit": False, "overlap_events": True}
TORCH_DTYPES = {AmpDtype.BF16: "bfloat16", AmpDtype.FP16: "float16"}
"""Names of torch's data types under autocast."""

DeepSpeedDocument = dict[str, Any]


def steps_8bit_on_the_cpu(config: TrainingConfig) -> bool:
    """Tell whether DeepSpeed steps 8-bit state in host memory, by bitsandbytes' optimizer."""
    is_8bit = config.optimizer_bits == 8
    return config.is_zero and is_8bit and config.offload_target == OffloadTarget.CPU


def deepspeed_document(
    config: TrainingConfig,
    *,
    largest_parameter: int,
    num_parameters: int,
    learning_rate: float,
    nvme_path: str | None = None,
    is_pinned: bool = False,
) -> DeepSpeedDocument:
    """Return what DeepSpeed is told of a config: its JSON document.

    Gradients are neither clipped (DeepSpeed clips at 1.0 unless told otherwise) nor reduced in a
    lower precision, so that a step equals one of plain PyTorch.

    Args:
        config: Any; at ``zero_stage`` 0 DeepSpeed shards nothing.
        largest_parameter: Elements of the model's largest parameter: what a swap buffer holds.
        num_parameters: Of the model: DeepSpeed makes its communication buckets as large as it is
            told, whatever the model needs of them.
        learning_rate: Of AdamW where DeepSpeed builds it, for state that is offloaded.
        nvme_path: Where an offload to disk puts its files.
        is_pinned: Whether what is offloaded lies in page-locked memory, which a GPU copies faster.
    """
    bucket = min(num_parameters, LARGEST_BUCKET)
    zero: DeepSpeedDocument = {
        "stage": config.zero_stage,
        "reduce_bucket_size": bucket,
        "allgather_bucket_size": bucket,
    }
    document: DeepSpeedDocument = {
        "train_micro_batch_size_per_gpu": config.micro_batch_size,
        "gradient_accumulation_steps": config.accumulation_steps,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zero,
    }
    if config.amp_dtype in TORCH_DTYPES:
        document["torch_autocast"] = {
            "enabled": True,
            "dtype": TORCH_DTYPES[config.amp_dtype],
            "lower_precision_safe_modules": [],
        }
    if config.offload_target == OffloadTarget.NONE:
        return document
    if steps_8bit_on_the_cpu(config):
        document["zero_force_ds_cpu_optimizer"] = False
    else:
        rule = UPDATE_RULES[config.optimizer]
        rates = {"lr": learning_rate, "weight_decay": rule.weight_decay}
        document["optimizer"] = {"type": "AdamW", "params": rates}
    place: DeepSpeedDocument = {"device": str(config.offload_target), "pin_memory": is_pinned}
    if config.offload_target == OffloadTarget.NVME:
        place |= {"nvme_path": nvme_path, "buffer_count": NVME_BUFFERS}
        document["aio"] = AIO
    zero["offload_optimizer"] = place
    if config.zero_stage == 3:
        has_buffers = config.offload_target == OffloadTarget.NVME
        zero["offload_param"] = place | ({"buffer_size": largest_parameter} if has_buffers else {})
    return document
