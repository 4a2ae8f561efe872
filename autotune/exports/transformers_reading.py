"""Knobs from ``TrainingArguments``, and what is wrong with a file of them."""

from collections.abc import Mapping
from typing import Any

from autotune.errors import SettingsError
from autotune.exports.deepspeed_reading import AUTO, read_deepspeed
from autotune.exports.documents_beside import document_beside
from autotune.exports.findings import Findings
from autotune.exports.transformers import OPTIMIZERS, PAGED_OPTIMIZERS
from search_spaces import KnobValue, OffloadTarget, Optimizer, did_you_mean

DEFAULT_MICRO_BATCH_SIZE = 8
"""Of transformers."""
TRL_RANK = 16
"""Of adapters in trl's scripts, where a file does not say."""
UNDERSTOOD = {
    *("per_device_train_batch_size", "gradient_accumulation_steps", "auto_find_batch_size"),
    *("bf16", "fp16", "tf32", "optim", "torch_compile", "deepspeed", "max_grad_norm"),
    *("gradient_checkpointing", "gradient_checkpointing_kwargs"),
    *("activation_checkpointing", "activation_checkpointing_kwargs"),
    *("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
}
"""Keys that this reader looks at. Others are the training's own, or its script's."""
OF_TRL = {"use_peft", "lora_r", "load_in_8bit", "load_in_4bit"}
"""Keys of trl's scripts beside them, that this reader looks at too."""
REMOVED_KEYS = {
    "evaluation_strategy": "eval_strategy",
    "no_cuda": "use_cpu",
    "overwrite_output_dir": "nothing: a checkpoint is resumed only when asked",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "warmup_ratio": "warmup_steps, a share if below 1",
}
"""That transformers 5 no longer has, and what stands for each."""
NO_KNOBS = {"fsdp"}
"""Keys of training scripts that change memory and are no knob here."""
SHARED = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.eps": "adam_epsilon",
    "optimizer.params.weight_decay": "weight_decay",
    "fp16.enabled": "fp16",
    "bf16.enabled": "bf16",
}
"""What DeepSpeed's file and ``TrainingArguments`` both say, and must say alike."""
_KINDS = {name: kind for kind, name in OPTIMIZERS.items()}
_PAGED_KINDS = {name: kind for kind, name in PAGED_OPTIMIZERS.items()}
_ALIASES = {
    "adamw_torch_fused": (Optimizer.ADAMW, 32),
    "adamw_hf": (Optimizer.ADAMW, 32),
    "adamw_8bit": (Optimizer.ADAMW, 8),
}


def is_transformers(document: Mapping[str, Any]) -> bool:
    """Return whether a document has a key of ``TrainingArguments``."""
    return not UNDERSTOOD.isdisjoint(document)


def read_transformers(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return the knobs of a document; what is wrong goes to the findings."""
    document = findings.with_numbers(document)
    _tell_keys(document, findings)
    knobs: dict[str, object] = {
        **batch_knobs(document, findings),
        "amp_dtype": amp_dtype_knob(document, findings),
        **_checkpointing(document, findings),
        **optimizer_knobs(document, findings),
        "compile": findings.switch(document, "torch_compile"),
        **adapter_knobs(
            document,
            findings,
            are_used=findings.switch(document, "use_peft"),
            usual_rank=TRL_RANK,
        ),
    }
    return {**knobs, **deepspeed_knobs(document, findings)}


def _tell_keys(document: Mapping[str, Any], findings: Findings) -> None:
    for key in sorted(document.keys() - UNDERSTOOD - OF_TRL):
        guess = did_you_mean(key, UNDERSTOOD)
        if key in REMOVED_KEYS:
            findings.note(f"{key} is deprecated: {REMOVED_KEYS[key]}")
        elif key in NO_KNOBS:
            findings.note(f"{key} is no knob here: it is left out")
        elif key.startswith("per_device_train") and "did you mean" in guess:
            findings.fault(f"unknown key {key!r}{guess.partition(' known:')[0].rstrip(';')}")
    if findings.switch(document, "auto_find_batch_size"):
        findings.note("auto_find_batch_size may change the batch: it is taken as written")


def batch_knobs(document: Mapping[str, Any], findings: Findings) -> dict[str, KnobValue]:
    """Return micro-batch and accumulation."""
    micro, steps = "per_device_train_batch_size", "gradient_accumulation_steps"
    if micro not in document:
        findings.note(f"{micro} is not set: transformers takes {DEFAULT_MICRO_BATCH_SIZE}")
    return findings.knobs_of(
        {
            micro: ("micro_batch_size", document.get(micro, DEFAULT_MICRO_BATCH_SIZE)),
            steps: ("accumulation_steps", document.get(steps, 1)),
        }
    )


def amp_dtype_knob(document: Mapping[str, Any], findings: Findings) -> str:
    """Return the AMP dtype by its name."""
    used = [name for name in ("bf16", "fp16", "tf32") if findings.switch(document, name)]
    if {"bf16", "fp16"} <= set(used):
        findings.fault("bf16 and fp16 cannot both be true")
    return used[0] if used else "fp32"


def _checkpointing(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    names = ("activation_checkpointing", "gradient_checkpointing")
    name = next((name for name in names if document.get(name) is not None), names[0])
    options = findings.block(document, f"{name}_kwargs")
    if not findings.switch(document, name):
        return {"checkpoint_interval": 0}
    if options.get("use_reentrant") is not False:
        findings.note(f"{name}_kwargs: trials recompute with use_reentrant false")
    if options.get("offload"):
        findings.note(f"{name}_kwargs: offload moves a checkpoint's inputs, which no knob does")
    return {"checkpoint_interval": options.get("every_n_layers", 1)}


def optimizer_knobs(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return the optimizer, its bits, and whether its state is paged."""
    name = str(document.get("optim", "adamw_torch"))
    if name in _PAGED_KINDS:
        kind, bits = _PAGED_KINDS[name]
        paged = str(OffloadTarget.PAGED)
        return {"optimizer": str(kind), "optimizer_bits": bits, "offload_target": paged}
    found = _KINDS.get(name) or _ALIASES.get(name)
    if found is None:
        findings.fault(f"optim {name!r} is no optimizer of ours; known: {', '.join(_KINDS)}")
        return {}
    return {"optimizer": str(found[0]), "optimizer_bits": found[1]}


def adapter_knobs(
    document: Mapping[str, Any], findings: Findings, *, are_used: bool, usual_rank: int
) -> dict[str, object]:
    """Return rank and bits of adapters by the keys that axolotl and trl share.

    Args:
        document: The file.
        findings: Gets what is wrong.
        are_used: Whether it asks for adapters.
        usual_rank: Where it does not say.
    """
    bits = {8: "load_in_8bit", 4: "load_in_4bit"}
    loaded = [number for number, key in bits.items() if findings.switch(document, key)]
    if len(loaded) > 1:
        findings.fault("load_in_8bit and load_in_4bit cannot both be true")
    if not are_used:
        if loaded:
            findings.fault(f"{bits[loaded[0]]} without adapters: quantized weights do not train")
        return {}
    rank = document.get("lora_r")
    return {
        "lora_rank": usual_rank if rank is None else rank,
        "weight_bits": loaded[0] if loaded else 32,
    }


def deepspeed_knobs(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return what DeepSpeed's part says: its stage and offload, and who casts."""
    named = document.get("deepspeed")
    if named is None:
        return {}
    try:
        part = named if isinstance(named, Mapping) else document_beside(findings.path, str(named))
    except SettingsError as error:
        findings.fault(f"deepspeed: {error}")
        return {}
    _tell_mismatches(part, document, findings)
    notes = len(findings.notes)
    knobs = read_deepspeed(part, findings)
    del findings.notes[notes:]  # its 'auto' values are the arguments'
    findings.global_batch_size = None
    casts = knobs["amp_dtype"] != "fp32"
    kept = {"zero_stage", "offload_target", *(("amp_dtype",) if casts else ())}
    return {name: value for name, value in knobs.items() if name in kept}


def _tell_mismatches(
    part: Mapping[str, Any], document: Mapping[str, Any], findings: Findings
) -> None:
    for key, name in SHARED.items():
        value: Any = part
        for step in key.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if value not in (None, AUTO, document.get(name, value)):
            findings.fault(f"DeepSpeed's {key}={value} against {name}={document[name]}")
