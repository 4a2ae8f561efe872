"""A config as the JSON that ``deepspeed.initialize`` takes: what its trial gave DeepSpeed."""

import json
from typing import Any

from autotune.errors import UnsupportedExportError
from autotune.exports.base import Exported, Handover, beyond_launchers, require_deepspeed
from search_spaces import AmpDtype, OffloadTarget, Optimizer, Switch
from search_spaces.deepspeed_document import deepspeed_document, steps_8bit_on_the_cpu
from search_spaces.update_rules import ADAM_EPSILON, UPDATE_RULES

SIDE_KEY = "autotune"
"""DeepSpeed leaves keys alone that it does not know, at top level."""
DEFAULT_RATE = 1e-3
"""Of DeepSpeed's AdamW."""
CLIENT_OPTIMIZERS = {
    (Optimizer.ADAMW, 32): "torch.optim.AdamW",
    (Optimizer.SGD, 32): "torch.optim.SGD",
    (Optimizer.LION, 32): "bitsandbytes.optim.Lion",
    (Optimizer.ADAMW, 8): "bitsandbytes.optim.AdamW8bit",
    (Optimizer.SGD, 8): "bitsandbytes.optim.SGD8bit",
    (Optimizer.LION, 8): "bitsandbytes.optim.Lion8bit",
    (Optimizer.ADAMW, 4): "torchao.optim.AdamW4bit",
}


def export_deepspeed(handover: Handover) -> Exported:
    """See Exporter."""
    document = {**deepspeed_keys(handover), SIDE_KEY: handover.document()}
    notes = (
        *rate_notes(handover),
        *_stage_notes(handover),
        *_optimizer_notes(handover),
        *_other_notes(handover),
    )
    return Exported(text=json.dumps(document, indent=2) + "\n", notes=notes)


def deepspeed_keys(handover: Handover) -> dict[str, Any]:
    """Return the document that DeepSpeed reads, every number of it settled.

    Raises:
        UnsupportedExportError: DeepSpeed cannot train so.
    """
    config, facts = handover.config, handover.study.facts
    require_deepspeed(config)
    if config.zero_stage and config.amp_dtype == AmpDtype.FP16:
        raise UnsupportedExportError(
            "amp_dtype=fp16 with zero_stage=1 or more: DeepSpeed's autocast never lowers its loss "
            "scale; export a trial in bf16"
        )
    rate = handover.learning_rate
    document = deepspeed_document(
        config,
        largest_parameter=facts.largest_parameter or facts.num_parameters,
        num_parameters=facts.num_parameters,
        learning_rate=DEFAULT_RATE if rate is None else rate,
        nvme_path=handover.study.spec.nvme_path,
        is_pinned=handover.is_on_cuda,
    )
    if "optimizer" in document:
        betas = UPDATE_RULES[config.optimizer].betas
        assert betas is not None
        document["optimizer"]["params"] |= {"betas": list(betas), "eps": ADAM_EPSILON}
    # The casting is torch's; told so, no launcher turns DeepSpeed's own 16-bit weights on.
    own_modes = {"fp16": {"enabled": False}, "bf16": {"enabled": False}}
    return {"train_batch_size": handover.global_batch_size, **document, **own_modes}


def rate_notes(handover: Handover) -> tuple[str, ...]:
    """Say where the learning rate is not the trial's."""
    if handover.learning_rate is not None:
        return ()
    return (
        "the study does not know its workload's learning rate; set your own, "
        f"{DEFAULT_RATE} stands for it where the format must have one",
    )


def _stage_notes(handover: Handover) -> tuple[str, ...]:
    """Say where the trial did without DeepSpeed."""
    if handover.config.zero_stage:
        return ()
    return (
        "zero_stage=0: the trial ran as plain PyTorch, and DeepSpeed shards nothing either; its "
        "own buffers come on top of the measured memory",
    )


def _optimizer_notes(handover: Handover) -> tuple[str, ...]:
    config = handover.config
    is_offloaded = config.offload_target != OffloadTarget.NONE
    if is_offloaded and not steps_8bit_on_the_cpu(config):
        return ("DeepSpeed builds the optimizer (CPUAdam): give deepspeed.initialize none",)
    name = CLIENT_OPTIMIZERS[config.optimizer, config.optimizer_bits]
    rule, rate = UPDATE_RULES[config.optimizer], handover.learning_rate
    settings = f"lr={'...' if rate is None else rate}, weight_decay={rule.weight_decay}"
    momentum = "" if rule.momentum is None else f", momentum={rule.momentum}"
    measured = f"the optimizer that was measured: {name}({settings}{momentum})"
    if is_offloaded:
        return (
            f"give deepspeed.initialize {measured}; its step on the CPU is slower than CPUAdam's",
        )
    return (f"give deepspeed.initialize {measured}",)


def _other_notes(handover: Handover) -> tuple[str, ...]:
    """Name the knobs that are the training script's, as DeepSpeed's file has no key for them."""
    config = handover.config
    compiled = ["compile=on"] if config.compile == Switch.ON else []
    names = [*beyond_launchers(config), *compiled]
    if not names:
        return ()
    return (f"DeepSpeed's file has no key for {', '.join(names)}: your script must do it",)
