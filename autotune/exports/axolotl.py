"""A config as keys of an axolotl YAML, and read back from one."""

from collections.abc import Mapping
from typing import Any

from autotune.errors import UnsupportedExportError
from autotune.exports.base import Exported, Handover, commented
from autotune.exports.findings import Findings
from autotune.exports.transformers import optimizer_arguments, precision_arguments, require_trainer
from autotune.exports.transformers_reading import (
    adapter_knobs,
    amp_dtype_knob,
    batch_knobs,
    deepspeed_knobs,
    optimizer_knobs,
)
from autotune.exports.yaml_text import to_yaml
from search_spaces import AmpDtype, Switch, TrainingConfig
from search_spaces.adapters import ALPHA_PER_RANK, DEFAULT_RANK

ADAPTERS = {32: "lora", 8: "lora", 4: "qlora"}
"""By bits of the frozen weights."""
OLDER_KEYS = {"flash_attention": "attn_implementation", "bfloat16": "bf16", "float16": "fp16"}
"""That axolotl still reads, and what stands for each."""
SHARDED = ("fsdp", "fsdp_config")
MERGE = "these keys go into your own axolotl file, beside its base_model and datasets"
IN_16_BITS = (
    "under bf16 and fp16 axolotl loads the weights themselves in 16 bits, where they were "
    "measured in 32: it takes less memory, and may train otherwise"
)


def export_axolotl(handover: Handover) -> Exported:
    """See Exporter."""
    config = handover.config
    require_trainer(handover)
    require_every_block(config, "axolotl")
    optimizer = optimizer_arguments(handover)
    document = {
        "micro_batch_size": config.micro_batch_size,
        "gradient_accumulation_steps": config.accumulation_steps,
        **precision_arguments(handover),
        "gradient_checkpointing": config.checkpoint_interval == 1,
        **_recomputing(config),
        "optimizer": optimizer.pop("optim"),
        **optimizer,
        **_adapters(config),
        **({"torch_compile": True} if config.compile == Switch.ON else {}),
        **({} if handover.partner is None else {"deepspeed": handover.partner}),
        **({} if handover.steps is None else {"max_steps": handover.steps}),
    }
    is_low = config.amp_dtype in (AmpDtype.BF16, AmpDtype.FP16)
    notes = (MERGE, *((IN_16_BITS,) if is_low else ()))
    return Exported(text=commented(handover, notes) + to_yaml(document), notes=notes)


def require_every_block(config: TrainingConfig, program: str) -> None:
    """Refuse checkpointing of some blocks for a program that can only recompute all.

    Raises:
        UnsupportedExportError: The config checkpoints some.
    """
    if config.checkpoint_interval > 1 or config.checkpoint_deepest:
        knob = (
            f"checkpoint_deepest={config.checkpoint_deepest}"
            if config.checkpoint_deepest
            else f"checkpoint_interval={config.checkpoint_interval}"
        )
        raise UnsupportedExportError(
            f"{knob}: {program} recomputes every block or none; export another trial, or "
            "--format transformers"
        )


def is_axolotl(document: Mapping[str, Any]) -> bool:
    """Return whether a document is axolotl's."""
    return (
        "base_model" in document
        or {
            "micro_batch_size",
            "gradient_accumulation_steps",
        }
        <= document.keys()
    )


def read_axolotl(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return the knobs of a document; what is wrong goes to the findings."""
    document = findings.with_numbers(document)
    for key in sorted(OLDER_KEYS.keys() & document.keys()):
        findings.note(f"{key} is deprecated: {OLDER_KEYS[key]}")
    for key in SHARDED:
        if document.get(key):
            findings.note(
                f"{key} is not read: say zero_stage, sharding and offload_target by --set"
            )
    arguments = _arguments(document, findings)
    options = findings.block(document, "gradient_checkpointing_kwargs")
    is_checkpointed = _is_checkpointed(document, findings)
    if is_checkpointed and options.get("use_reentrant") is not False:
        findings.note("gradient_checkpointing_kwargs: trials recompute with use_reentrant false")
    return {
        **batch_knobs(arguments, findings),
        "amp_dtype": amp_dtype_knob(arguments, findings),
        "checkpoint_interval": int(is_checkpointed),
        **optimizer_knobs(arguments, findings),
        "compile": document.get("torch_compile") is True,
        **adapter_knobs(
            document,
            findings,
            are_used=document.get("adapter") is not None,
            usual_rank=DEFAULT_RANK,
        ),
        **deepspeed_knobs(arguments, findings),
    }


def _recomputing(config: TrainingConfig) -> dict[str, Any]:
    if config.checkpoint_interval == 0:
        return {}
    return {"gradient_checkpointing_kwargs": {"use_reentrant": False}}


def _adapters(config: TrainingConfig) -> dict[str, Any]:
    if config.lora_rank == 0:
        return {}
    return {
        "adapter": ADAPTERS[config.weight_bits],
        "lora_r": config.lora_rank,
        "lora_alpha": ALPHA_PER_RANK * config.lora_rank,
        "lora_dropout": 0.0,
        "lora_target_linear": True,
        "load_in_8bit": config.weight_bits == 8,
        "load_in_4bit": config.weight_bits == 4,
    }


def _arguments(document: Mapping[str, Any], findings: Findings) -> dict[str, Any]:
    """Return what is said in words of ``TrainingArguments``."""
    if "micro_batch_size" not in document:
        findings.note("micro_batch_size is not set: axolotl takes 1")
    found = {
        "per_device_train_batch_size": document.get("micro_batch_size", 1),
        "gradient_accumulation_steps": document.get("gradient_accumulation_steps", 1),
        "optim": document.get("optimizer", "adamw_torch_fused"),
        "deepspeed": document.get("deepspeed"),
        **{key: document.get(key) for key in ("fp16", "tf32", "learning_rate")},
        "bf16": document.get("bf16"),
    }
    if found["bf16"] in ("auto", "full"):
        findings.note(f"bf16: {found['bf16']} is taken as true")
        found["bf16"] = True
    return {key: value for key, value in found.items() if value is not None}


def _is_checkpointed(document: Mapping[str, Any], findings: Findings) -> bool:
    said = document.get("gradient_checkpointing")
    if said in ("offload", "offload_disk"):
        findings.note(
            f"gradient_checkpointing: {said} moves a checkpoint's inputs, as no knob does"
        )
        return True
    return findings.switch(document, "gradient_checkpointing")
