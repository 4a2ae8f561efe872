"""The techniques that the benchmark and the tests on a GPU take one by one, and some together."""

from dataclasses import dataclass

from search_spaces import KnobValue

PLAIN = "fp32"
"""The name of the technique that the others are compared with: none."""
LORA_RANK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Technique:
    """Knobs that differ from their defaults, under a name.

    Attributes:
        name: For people; each once.
        knobs: By name.
        is_stacked: Whether several techniques are used together.
    """

    name: str
    knobs: dict[str, KnobValue]
    is_stacked: bool = False


def techniques(num_blocks: int) -> tuple[Technique, ...]:
    """Return every technique alone, plain fp32 first, and then those that are stacked.

    Args:
        num_blocks: Of the workload; half of them recompute where only the deepest do.
    """
    alone = {**_alone(max(1, num_blocks // 2)), **_sharded()}
    return tuple(
        Technique(name=name, knobs=knobs, is_stacked=is_stacked)
        for is_stacked, named in ((False, alone), (True, _stacked()))
        for name, knobs in named.items()
    )


def _alone(deepest: int) -> dict[str, dict[str, KnobValue]]:
    return {
        PLAIN: {},
        "tf32": {"amp_dtype": "tf32"},
        "bf16": {"amp_dtype": "bf16"},
        "fp16": {"amp_dtype": "fp16"},
        "checkpoint every block": {"checkpoint_interval": 1},
        "checkpoint every 2nd block": {"checkpoint_interval": 2},
        f"checkpoint deepest {deepest}": {
            "checkpoint_interval": 1,
            "checkpoint_deepest": deepest,
        },
        "8-bit AdamW": {"optimizer_bits": 8},
        "4-bit AdamW": {"optimizer_bits": 4},
        "paged AdamW": {"offload_target": "paged"},
        "paged 8-bit AdamW": {"offload_target": "paged", "optimizer_bits": 8},
        "state on host (torchao)": {"offload_target": "cpu"},
        "activations on host": {"activation_offload": "cpu"},
        "compile": {"compile": "on"},
        "step in backward": {"optimizer_in_backward": "on"},
        f"LoRA {LORA_RANK}": {"lora_rank": LORA_RANK},
        f"QLoRA {LORA_RANK}, 8-bit": {"lora_rank": LORA_RANK, "weight_bits": 8},
        f"QLoRA {LORA_RANK}, 4-bit": {"lora_rank": LORA_RANK, "weight_bits": 4},
    }


def _sharded() -> dict[str, dict[str, KnobValue]]:
    """DeepSpeed's ZeRO and FSDP. On one device they shard nothing, and show what they cost."""
    fsdp: dict[str, KnobValue] = {"sharding": "fsdp"}
    return {
        **{f"ZeRO-{stage}": {"zero_stage": stage} for stage in (1, 2, 3)},
        **{
            f"ZeRO-{stage}, host": {"zero_stage": stage, "offload_target": "cpu"}
            for stage in (1, 2, 3)
        },
        "ZeRO-3, disk": {"zero_stage": 3, "offload_target": "nvme"},
        **{f"FSDP-{stage}": {**fsdp, "zero_stage": stage} for stage in (2, 3)},
        "FSDP-3, host": {**fsdp, "zero_stage": 3, "offload_target": "cpu"},
    }


def _stacked() -> dict[str, dict[str, KnobValue]]:
    base: dict[str, KnobValue] = {"amp_dtype": "bf16", "checkpoint_interval": 1}
    name = "bf16, ckpt"
    more: dict[str, dict[str, KnobValue]] = {
        "": {},
        ", 8-bit": {"optimizer_bits": 8},
        ", 8-bit, step in backward": {"optimizer_bits": 8, "optimizer_in_backward": "on"},
        ", 8-bit, activations on host": {"optimizer_bits": 8, "activation_offload": "cpu"},
        ", 8-bit, paged": {"optimizer_bits": 8, "offload_target": "paged"},
        ", 8-bit, compile": {"optimizer_bits": 8, "compile": "on"},
        ", 4-bit": {"optimizer_bits": 4},
        ", state on host (torchao)": {"offload_target": "cpu"},
        ", ZeRO-2, host": {"zero_stage": 2, "offload_target": "cpu"},
        ", ZeRO-3, disk": {"zero_stage": 3, "offload_target": "nvme"},
        ", QLoRA, 4-bit": {"lora_rank": LORA_RANK, "weight_bits": 4},
    }
    return {f"{name}{end}": {**base, **knobs} for end, knobs in more.items()}
