"""FSDP in an Accelerate YAML: the block of keys that a config makes, and what one says."""

from collections.abc import Mapping
from typing import Any

from autotune.exports.findings import Findings
from search_spaces import OffloadTarget, Sharding, TrainingConfig

KEY = "fsdp_config"
STAGES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "1": 3, "2": 2, "3": 0}
"""Of FSDP's first version, by name and by number, as ZeRO counts them."""
NOTES = (
    "fsdp_version 2 is PyTorch's fully_shard, as measured; it needs accelerate 1.6 or newer",
    "under mixed_precision accelerate's FSDP casts the weights and gradients that it sends, where "
    "trials leave that to autocast",
)


def fsdp_keys(config: TrainingConfig) -> dict[str, Any]:
    """Return ``fsdp_config`` of a config with ``sharding=fsdp``."""
    return {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": config.zero_stage == 3,
        "fsdp_offload_params": config.offload_target == OffloadTarget.CPU,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_activation_checkpointing": config.checkpoint_interval == 1,
    }


def read_fsdp(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return the knobs that an Accelerate YAML's ``fsdp_config`` sets."""
    keys = findings.block(document, KEY)
    stage = _stage(keys, findings)
    if findings.switch(keys, "fsdp_activation_cpu_offload", f"{KEY}."):
        findings.note(f"{KEY}.fsdp_activation_cpu_offload is no knob here: it is left out")
    knobs: dict[str, object] = {
        "zero_stage": stage,
        "sharding": str(Sharding.FSDP if stage else Sharding.DEEPSPEED),
        "offload_target": "none",
    }
    if stage and findings.switch(keys, "fsdp_offload_params", f"{KEY}."):
        knobs["offload_target"] = "cpu"
    if findings.switch(keys, "fsdp_activation_checkpointing", f"{KEY}."):
        knobs["checkpoint_interval"] = 1
    return knobs


def _stage(keys: Mapping[str, Any], findings: Findings) -> int:
    reshards = keys.get("fsdp_reshard_after_forward", True)
    if keys.get("fsdp_version", 1) == 2:
        return 3 if reshards is True else 2
    said = str(keys.get("fsdp_sharding_strategy", reshards if reshards is not True else "1"))
    if said not in STAGES:
        findings.fault(f"{KEY}.fsdp_sharding_strategy {said!r} is none of {', '.join(STAGES)}")
        return 0
    return STAGES[said]
