"""A config as overrides of a torchtune recipe, in YAML, and read back from a recipe's config."""

from collections.abc import Mapping
from typing import Any

from autotune.errors import UnsupportedExportError
from autotune.exports.base import Exported, Handover, commented
from autotune.exports.deepspeed import DEFAULT_RATE
from autotune.exports.findings import Findings
from autotune.exports.yaml_text import to_yaml
from search_spaces import (
    ActivationOffload,
    AmpDtype,
    OffloadTarget,
    Optimizer,
    Sharding,
    Switch,
    TrainingConfig,
)
from search_spaces.adapters import ALPHA_PER_RANK, DEFAULT_RANK
from search_spaces.update_rules import ADAM_EPSILON, UPDATE_RULES

COMPONENT = "_component_"
OPTIMIZERS = {
    (Optimizer.ADAMW, 32): "torch.optim.AdamW",
    (Optimizer.SGD, 32): "torch.optim.SGD",
    (Optimizer.LION, 32): "bitsandbytes.optim.Lion",
    (Optimizer.ADAMW, 8): "bitsandbytes.optim.AdamW8bit",
    (Optimizer.LION, 8): "bitsandbytes.optim.Lion8bit",
    (Optimizer.ADAMW, 4): "torchao.optim.AdamW4bit",
}
PAGED_OPTIMIZERS = {
    (Optimizer.ADAMW, 32): "bitsandbytes.optim.PagedAdamW",
    (Optimizer.LION, 32): "bitsandbytes.optim.PagedLion",
    (Optimizer.ADAMW, 8): "bitsandbytes.optim.PagedAdamW8bit",
    (Optimizer.LION, 8): "bitsandbytes.optim.PagedLion8bit",
}
OLDER_OPTIMIZERS = {"torchao.prototype.low_bit_optim.AdamW4bit": "torchao.optim.AdamW4bit"}
"""That older torchao has, and what each is now."""
IN_16_BITS = (
    "torchtune's dtype bf16 holds weights, gradients and optimizer state in 16 bits too, where "
    "they were measured in 32: it takes less memory, and may train otherwise"
)


def export_torchtune(handover: Handover) -> Exported:
    """See Exporter."""
    config = handover.config
    _require_expressible(config)
    document = {
        "device": "cuda" if handover.is_on_cuda else "cpu",
        "dtype": str(config.amp_dtype),
        "batch_size": config.micro_batch_size,
        "gradient_accumulation_steps": config.accumulation_steps,
        **_checkpointing(config),
        "enable_activation_offloading": config.activation_offload == ActivationOffload.CPU,
        "optimizer": _optimizer(handover),
        "optimizer_in_bwd": config.optimizer_in_backward == Switch.ON,
        "clip_grad_norm": None,
        "compile": config.compile == Switch.ON,
        **_sharding(config),
        **_adapters(config),
        **({} if handover.steps is None else {"max_steps_per_epoch": handover.steps}),
    }
    notes = _notes(config)
    return Exported(text=commented(handover, notes) + to_yaml(document), notes=notes)


def is_torchtune(document: Mapping[str, Any]) -> bool:
    """Return whether a document is of a torchtune recipe."""
    return any(isinstance(v, Mapping) and COMPONENT in v for v in document.values())


def read_torchtune(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return the knobs of a document; what is wrong goes to the findings."""
    dtype = str(document.get("dtype", "bf16"))
    if dtype not in ("fp32", "bf16"):
        findings.fault(f"dtype {dtype!r} is none of fp32, bf16")
    elif dtype == "bf16" and not findings.own:
        findings.note("dtype bf16 holds weights in 16 bits, which trials do not: taken as AMP")
    offloads = findings.switch(document, "enable_activation_offloading")
    return {
        **findings.knobs_of(
            {
                "batch_size": ("micro_batch_size", document.get("batch_size", 1)),
                "gradient_accumulation_steps": (
                    "accumulation_steps",
                    document.get("gradient_accumulation_steps", 1),
                ),
            }
        ),
        "amp_dtype": dtype if dtype in ("fp32", "bf16") else "fp32",
        "checkpoint_interval": _read_interval(document, findings),
        "activation_offload": "cpu" if offloads else "none",
        "optimizer_in_backward": findings.switch(document, "optimizer_in_bwd"),
        "compile": findings.switch(document, "compile"),
        **_read_sharding(document, findings),
        **_read_optimizer(document, findings),
        **_read_adapters(document, findings),
    }


def _require_expressible(config: TrainingConfig) -> None:
    elsewhere = "export another trial, or --format toml"
    if config.amp_dtype in (AmpDtype.FP16, AmpDtype.TF32):
        raise UnsupportedExportError(
            f"amp_dtype={config.amp_dtype}: torchtune trains in fp32 or bf16; {elsewhere}"
        )
    if config.zero_stage and config.sharding != Sharding.FSDP:
        raise UnsupportedExportError(
            f"zero_stage={config.zero_stage} with sharding=deepspeed: torchtune shards by FSDP; "
            "measure with --set sharding=fsdp, or export to deepspeed"
        )
    if config.checkpoint_deepest:
        raise UnsupportedExportError(
            f"checkpoint_deepest={config.checkpoint_deepest}: torchtune recomputes every block or "
            f"every Nth; {elsewhere}"
        )
    if config.weight_bits == 8:
        raise UnsupportedExportError(
            f"weight_bits=8: torchtune's frozen weights are quantized to 4 bits; {elsewhere}"
        )
    is_paged = config.offload_target == OffloadTarget.PAGED
    known = PAGED_OPTIMIZERS if is_paged else OPTIMIZERS
    if (config.optimizer, config.optimizer_bits) not in known:
        raise UnsupportedExportError(
            f"optimizer={config.optimizer} with optimizer_bits={config.optimizer_bits}: no "
            f"library that torchtune builds from has it; {elsewhere}"
        )
    if config.offload_target == OffloadTarget.CPU and not config.zero_stage:
        raise UnsupportedExportError(
            "offload_target=cpu at zero_stage=0 is torchao's wrapper around an optimizer, which "
            f"no recipe builds; {elsewhere}"
        )


def _checkpointing(config: TrainingConfig) -> dict[str, Any]:
    if config.checkpoint_interval <= 1:
        return {"enable_activation_checkpointing": config.checkpoint_interval == 1}
    return {
        "enable_activation_checkpointing": True,
        "ac_mode": "selective",
        "ac_option": config.checkpoint_interval,
    }


def _optimizer(handover: Handover) -> dict[str, Any]:
    config, rate = handover.config, handover.learning_rate
    rule = UPDATE_RULES[config.optimizer]
    is_paged = config.offload_target == OffloadTarget.PAGED
    names = PAGED_OPTIMIZERS if is_paged else OPTIMIZERS
    settings: dict[str, Any] = {
        COMPONENT: names[config.optimizer, config.optimizer_bits],
        "lr": DEFAULT_RATE if rate is None else rate,
        "weight_decay": rule.weight_decay,
    }
    if rule.betas is not None:
        settings["betas"] = list(rule.betas)
    if config.optimizer == Optimizer.ADAMW:
        settings["eps"] = ADAM_EPSILON
    if rule.momentum is not None:
        settings["momentum"] = rule.momentum
    return settings


def _sharding(config: TrainingConfig) -> dict[str, Any]:
    if config.zero_stage == 0:
        return {}
    return {
        "fsdp_cpu_offload": config.offload_target == OffloadTarget.CPU,
        "fsdp_reshard_after_forward": config.zero_stage == 3,
    }


def _adapters(config: TrainingConfig) -> dict[str, Any]:
    if config.lora_rank == 0:
        return {}
    model = {"lora_rank": config.lora_rank, "lora_alpha": ALPHA_PER_RANK * config.lora_rank}
    return {"model": {**model, "lora_dropout": 0.0, "apply_lora_to_mlp": True}}


def _notes(config: TrainingConfig) -> tuple[str, ...]:
    builder = "qlora" if config.weight_bits == 4 else "lora"
    notes = {
        "merge these keys into a recipe's config, or give them to tune run as KEY=VALUE": True,
        IN_16_BITS: config.amp_dtype == AmpDtype.BF16,
        f"model needs your model's {builder}_ builder as {COMPONENT}": config.lora_rank > 0,
        "ac_mode is of full_finetune_distributed: other recipes recompute every block": (
            config.checkpoint_interval > 1
        ),
        "shards with the distributed recipes: tune run --nproc_per_node N": config.zero_stage > 0,
    }
    return tuple(text for text, is_so in notes.items() if is_so)


def _read_interval(document: Mapping[str, Any], findings: Findings) -> object:
    if not findings.switch(document, "enable_activation_checkpointing"):
        return 0
    return document.get("ac_option", 1) if document.get("ac_mode") == "selective" else 1


def _read_sharding(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    keys = {"fsdp_cpu_offload", "fsdp_reshard_after_forward"}
    if keys.isdisjoint(document):
        return {}
    offloads = findings.switch(document, "fsdp_cpu_offload")
    is_whole = document.get("fsdp_reshard_after_forward") is not False
    return {
        "zero_stage": 3 if is_whole else 2,
        "sharding": str(Sharding.FSDP),
        "offload_target": "cpu" if offloads else "none",
    }


def _read_optimizer(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    said = str(findings.block(document, "optimizer").get(COMPONENT, "torch.optim.AdamW"))
    if said in OLDER_OPTIMIZERS:
        findings.note(f"optimizer {said} is {OLDER_OPTIMIZERS[said]} in newer torchao")
        said = OLDER_OPTIMIZERS[said]
    for names, target in ((PAGED_OPTIMIZERS, "paged"), (OPTIMIZERS, None)):
        for (kind, bits), name in names.items():
            if name == said:
                knobs = {"optimizer": str(kind), "optimizer_bits": bits}
                return knobs if target is None else {**knobs, "offload_target": target}
    known = ", ".join((*OPTIMIZERS.values(), *PAGED_OPTIMIZERS.values()))
    findings.fault(f"optimizer {said!r} is no optimizer of ours; known: {known}")
    return {}


def _read_adapters(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    model = findings.block(document, "model")
    builder = str(model.get(COMPONENT, "")).rpartition(".")[2]
    is_quantized = builder.startswith("qlora") or findings.own.get("weight_bits") == 4
    if "lora_rank" not in model and "lora" not in builder:
        return {}
    return {
        "lora_rank": model.get("lora_rank", DEFAULT_RANK),
        "weight_bits": 4 if is_quantized else 32,
    }
