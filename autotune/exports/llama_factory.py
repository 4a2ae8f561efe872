"""A config as arguments of LLaMA-Factory, in YAML, and read back from them."""

from collections.abc import Mapping
from typing import Any

from autotune.exports.axolotl import require_every_block
from autotune.exports.base import Exported, Handover, commented
from autotune.exports.findings import Findings
from autotune.exports.transformers import (
    batch_arguments,
    optimizer_arguments,
    precision_arguments,
    require_trainer,
)
from autotune.exports.transformers_reading import (
    amp_dtype_knob,
    batch_knobs,
    deepspeed_knobs,
    optimizer_knobs,
)
from autotune.exports.yaml_text import to_yaml
from search_spaces import Switch, TrainingConfig
from search_spaces.adapters import ALPHA_PER_RANK, DEFAULT_RANK

OWN_KEYS = {"finetuning_type", "disable_gradient_checkpointing", "use_reentrant_gc"}
"""By which a document of LLaMA-Factory is told from plain ``TrainingArguments``."""
SAVERS = ("use_badam", "use_galore", "use_apollo", "use_unsloth")
"""Ways to save memory of LLaMA-Factory that are no knob here."""
MERGE = (
    "these keys go into your own file for llamafactory-cli train, beside its model_name_or_path, "
    "stage, template and dataset"
)


def export_llama_factory(handover: Handover) -> Exported:
    """See Exporter."""
    config = handover.config
    require_trainer(handover)
    require_every_block(config, "LLaMA-Factory")
    document = {
        **batch_arguments(handover),
        **precision_arguments(handover),
        "pure_bf16": False,
        "disable_gradient_checkpointing": config.checkpoint_interval == 0,
        "use_reentrant_gc": False,
        **optimizer_arguments(handover),
        **_tuning(config),
        **({"torch_compile": True} if config.compile == Switch.ON else {}),
        **({} if handover.partner is None else {"deepspeed": handover.partner}),
        **({} if handover.is_on_cuda else {"use_cpu": True}),
    }
    return Exported(text=commented(handover, (MERGE,)) + to_yaml(document), notes=(MERGE,))


def is_llama_factory(document: Mapping[str, Any]) -> bool:
    """Return whether a document is of LLaMA-Factory."""
    return not OWN_KEYS.isdisjoint(document)


def read_llama_factory(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return the knobs of a document; what is wrong goes to the findings."""
    document = findings.with_numbers(document)
    is_disabled = findings.switch(document, "disable_gradient_checkpointing")
    if not is_disabled and document.get("use_reentrant_gc") is not False:
        findings.note("use_reentrant_gc is true unless set: trials recompute with it false")
    for key in SAVERS:
        if findings.switch(document, key):
            findings.note(f"{key} is no knob here: it is left out")
    if findings.switch(document, "pure_bf16"):
        findings.note("pure_bf16 trains weights in 16 bits, which trials do not: taken as bf16")
        document["bf16"] = True
    knobs = {
        **batch_knobs(document, findings),
        "amp_dtype": amp_dtype_knob(document, findings),
        "checkpoint_interval": int(not is_disabled),
        **optimizer_knobs(document, findings),
        "compile": findings.switch(document, "torch_compile"),
        **_read_tuning(document, findings),
        **deepspeed_knobs(document, findings),
    }
    if document.get("pure_bf16") and knobs.get("zero_stage") == 3:
        findings.fault("pure_bf16 and ZeRO stage 3: LLaMA-Factory refuses the two together")
    return knobs


def _tuning(config: TrainingConfig) -> dict[str, Any]:
    if config.lora_rank == 0:
        return {"finetuning_type": "full"}
    quantized = {"quantization_bit": config.weight_bits, "quantization_method": "bnb"}
    return {
        "finetuning_type": "lora",
        "lora_rank": config.lora_rank,
        "lora_alpha": ALPHA_PER_RANK * config.lora_rank,
        "lora_dropout": 0.0,
        "lora_target": "all",
        **(quantized if config.weight_bits < 32 else {}),
    }


def _read_tuning(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    kind, bits = document.get("finetuning_type", "lora"), document.get("quantization_bit")
    if kind == "lora":
        return {
            "lora_rank": document.get("lora_rank", DEFAULT_RANK),
            "weight_bits": 32 if bits is None else bits,
        }
    if kind != "full":
        findings.note(f"finetuning_type {kind} is no knob here: taken as full")
    if bits is not None:
        findings.fault(f"quantization_bit with finetuning_type {kind}: it needs lora")
    return {}
