"""A config as ``TrainingArguments``: the JSON that ``HfArgumentParser`` reads."""

import json
from typing import Any

from autotune.errors import UnsupportedExportError
from autotune.exports.base import Exported, Handover, require_deepspeed, scripts_own
from autotune.exports.deepspeed import DEFAULT_RATE, rate_notes
from search_spaces import (
    ActivationOffload,
    AmpDtype,
    OffloadTarget,
    Optimizer,
    Switch,
    TrainingConfig,
)
from search_spaces.update_rules import ADAM_EPSILON, UPDATE_RULES

PAGED_OPTIMIZERS = {
    (Optimizer.ADAMW, 32): "paged_adamw_32bit",
    (Optimizer.LION, 32): "paged_lion_32bit",
    (Optimizer.ADAMW, 8): "paged_adamw_8bit",
    (Optimizer.LION, 8): "paged_lion_8bit",
}
OPTIMIZERS = {
    (Optimizer.ADAMW, 32): "adamw_torch",
    (Optimizer.SGD, 32): "sgd",
    (Optimizer.LION, 32): "lion_32bit",
    (Optimizer.ADAMW, 8): "adamw_bnb_8bit",
    (Optimizer.LION, 8): "lion_8bit",
    (Optimizer.ADAMW, 4): "adamw_torch_4bit",
}
"""By what transformers calls them in ``optim``."""


def export_transformers(handover: Handover) -> Exported:
    """See Exporter."""
    require_trainer(handover)
    arguments = {
        "run_name": handover.title,
        **batch_arguments(handover),
        **precision_arguments(handover),
        **_checkpointing(handover.config),
        **optimizer_arguments(handover),
        **({"torch_compile": True} if handover.config.compile == Switch.ON else {}),
        **({} if handover.partner is None else {"deepspeed": handover.partner}),
        **({} if handover.is_on_cuda else {"use_cpu": True}),
    }
    text = json.dumps(arguments, indent=2) + "\n"
    return Exported(text=text, notes=_notes(handover), has_side_file=True)


def require_trainer(handover: Handover) -> None:
    """Refuse what transformers' Trainer cannot do as it was measured.

    Raises:
        UnsupportedExportError: The config needs it; the message names the knob.
    """
    config = handover.config
    if config.offload_target != OffloadTarget.PAGED:
        require_deepspeed(config)
    if config.optimizer_in_backward == Switch.ON:
        raise UnsupportedExportError(
            "optimizer_in_backward=on: the Trainer steps after the backward pass; export another "
            "trial, or --format env"
        )
    if config.zero_stage and handover.partner is None:
        raise UnsupportedExportError(
            f"zero_stage={config.zero_stage} is DeepSpeed's, and TrainingArguments name its file: "
            "write both with --pair deepspeed --to FILE"
        )
    if config.activation_offload != ActivationOffload.NONE:
        raise UnsupportedExportError(
            "activation_offload=cpu: TrainingArguments move no activations but a checkpoint's "
            "own; export another trial, or wrap your forward pass in "
            "torch.autograd.graph.save_on_cpu and export with --format env"
        )
    if (config.optimizer, config.optimizer_bits) not in OPTIMIZERS:
        raise UnsupportedExportError(
            f"optimizer={config.optimizer} with optimizer_bits={config.optimizer_bits}: "
            "TrainingArguments have no name for it; export another trial, or --format env"
        )


def batch_arguments(handover: Handover) -> dict[str, Any]:
    """Return micro-batch and accumulation, and how long to train if that is said."""
    return {
        "per_device_train_batch_size": handover.config.micro_batch_size,
        "gradient_accumulation_steps": handover.config.accumulation_steps,
        "auto_find_batch_size": False,
        **({} if handover.steps is None else {"max_steps": handover.steps}),
    }


def precision_arguments(handover: Handover) -> dict[str, Any]:
    """Return who casts: the trainer, or DeepSpeed's autocast where there is one."""
    dtype, is_trainers = handover.config.amp_dtype, handover.partner is None
    precision: dict[str, Any] = {
        "bf16": dtype == AmpDtype.BF16 and is_trainers,
        "fp16": dtype == AmpDtype.FP16 and is_trainers,
    }
    if handover.is_on_cuda or dtype == AmpDtype.TF32:
        precision["tf32"] = dtype == AmpDtype.TF32
    return precision


def _checkpointing(config: TrainingConfig) -> dict[str, Any]:
    """Return the names that every version knows, where they suffice."""
    interval = config.checkpoint_interval
    if interval == 0:
        return {"gradient_checkpointing": False}
    options = {"use_reentrant": False}
    if interval == 1 or config.checkpoint_deepest:
        return {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": options}
    return {
        "activation_checkpointing": True,
        "activation_checkpointing_kwargs": {**options, "every_n_layers": interval},
    }


def optimizer_arguments(handover: Handover) -> dict[str, Any]:
    """Return the optimizer by its name, and its settings."""
    config, rate = handover.config, handover.learning_rate
    rule = UPDATE_RULES[config.optimizer]
    is_paged = config.offload_target == OffloadTarget.PAGED
    names = PAGED_OPTIMIZERS if is_paged else OPTIMIZERS
    settings: dict[str, Any] = {
        "optim": names[config.optimizer, config.optimizer_bits],
        "learning_rate": DEFAULT_RATE if rate is None else rate,
        "weight_decay": rule.weight_decay,
        "max_grad_norm": 0.0,
    }
    if rule.betas is not None:
        settings |= {"adam_beta1": rule.betas[0], "adam_beta2": rule.betas[1]}
        settings["adam_epsilon"] = ADAM_EPSILON
    if rule.momentum is not None:
        settings["optim_args"] = f"momentum={rule.momentum}"
    return settings


def _notes(handover: Handover) -> tuple[str, ...]:
    config = handover.config
    notes = {
        "load the model with dtype=torch.float32, as it was measured: transformers may keep the "
        "checkpoint's": True,
        "gradients are not clipped, as they were not in the trial (max_grad_norm)": True,
        "max_steps is left to you: --steps N pins it": handover.steps is None,
        "DeepSpeed's autocast does the casting, hence bf16=false here": (
            handover.partner is not None and config.amp_dtype == AmpDtype.BF16
        ),
        f"checkpoint_deepest={config.checkpoint_deepest} cannot be said: every block recomputes, "
        "which takes less memory and more time than measured": config.checkpoint_deepest > 0,
        f"checkpoint_interval={config.checkpoint_interval} needs a transformers that knows "
        "every_n_layers (5.24 does)": (
            config.checkpoint_interval > 1 and not config.checkpoint_deepest
        ),
        f"your script does {', '.join(scripts_own(config))}, as with peft's LoraConfig and "
        "transformers' BitsAndBytesConfig": bool(scripts_own(config)),
        "transformers keeps embeddings' state in 32 bits, so that it takes more memory than "
        "measured": config.optimizer_bits == 8,
    }
    return (*(text for text, is_so in notes.items() if is_so), *rate_notes(handover))
