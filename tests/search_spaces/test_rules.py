import pytest

from search_spaces import (
    RULES,
    TECHNIQUES,
    DeviceFacts,
    SearchSpace,
    TrainingConfig,
    refusal,
)

CPU = DeviceFacts()


def cuda(*capability):
    return DeviceFacts(kind="cuda", compute_capability=capability)


BF16 = TrainingConfig.from_mapping({"amp_dtype": "bf16"})


@pytest.mark.parametrize("capability", [(6, 1), (7, 0), (7, 5)])
def test_bf16_is_refused_where_the_hardware_only_emulates_it(capability):
    reason = refusal(BF16, cuda(*capability))
    assert reason is not None and f"{capability[0]}.{capability[1]}" in reason


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0)])
def test_bf16_is_kept_where_the_hardware_has_it(capability):
    assert refusal(BF16, cuda(*capability)) is None


def test_bf16_is_kept_on_cpu():
    assert refusal(BF16, CPU) is None


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_other_dtypes_are_kept_on_old_hardware(dtype):
    config = TrainingConfig.from_mapping({"amp_dtype": dtype})
    assert refusal(config, cuda(7, 0)) is None


@pytest.mark.parametrize(
    ("technique", "knobs"),
    [
        ("8-bit", {"optimizer_bits": 8}),
        ("8-bit", {"optimizer": "lion"}),
        ("4-bit", {"optimizer_bits": 4}),
        ("zero", {"zero_stage": 1}),
        ("offload-cpu", {"zero_stage": 1, "offload_target": "cpu"}),
        ("offload-nvme", {"zero_stage": 3, "offload_target": "nvme"}),
        ("compile", {"compile": "on"}),
        ("lora", {"lora_rank": 8}),
        ("8-bit-on-cpu", {"optimizer_bits": 8, "zero_stage": 1, "offload_target": "cpu"}),
    ],
)
def test_a_technique_that_is_missing_is_refused_with_its_reason(technique, knobs):
    config = TrainingConfig.from_mapping(knobs)
    assert refusal(config, CPU) is None
    assert refusal(config, DeviceFacts(missing=((technique, "it is not here"),))) == (
        "it is not here"
    )
    others = tuple((name, "it is not here") for name in TECHNIQUES if name != technique)
    needs_two = technique.startswith("offload") or technique == "8-bit-on-cpu"
    assert refusal(config, DeviceFacts(missing=others)) == (
        "it is not here" if needs_two else None
    )


FORBIDDEN = [
    ({"offload_target": "cpu"}, "needs zero_stage 1 or more"),
    ({"offload_target": "nvme", "zero_stage": 2}, "needs zero_stage=3"),
    ({"offload_target": "cpu", "zero_stage": 3, "sharding": "fsdp", "optimizer_bits": 4}, "32"),
    ({"offload_target": "nvme", "zero_stage": 3, "optimizer_bits": 8}, "needs optimizer_bits=32"),
    ({"offload_target": "cpu", "zero_stage": 2, "optimizer": "sgd"}, "needs optimizer=adamw"),
    ({"zero_stage": 1, "amp_dtype": "fp16"}, "never lowers its loss scale"),
    ({"zero_stage": 1, "compile": "on"}, "is not measured"),
    ({"optimizer_bits": 4, "optimizer": "lion"}, "adamw alone, not for lion"),
    ({"optimizer_bits": 4, "zero_stage": 1}, "ZeRO flattens tensors"),
    ({"checkpoint_deepest": 2}, "does nothing while checkpoint_interval=0"),
    ({"activation_offload": "cpu"}, "moves nothing where the CPU is the device"),
    ({"amp_dtype": "tf32"}, "a CPU has none"),
    ({"offload_target": "paged"}, "needs a GPU"),
    ({"sharding": "fsdp"}, "needs zero_stage 2 or 3"),
    ({"sharding": "fsdp", "zero_stage": 1}, "needs zero_stage 2 or 3"),
    ({"sharding": "fsdp", "zero_stage": 3, "offload_target": "nvme"}, "fully_shard has no disk"),
    ({"sharding": "fsdp", "zero_stage": 3, "optimizer_bits": 8}, "no state of bitsandbytes"),
    ({"sharding": "fsdp", "zero_stage": 3, "optimizer": "lion"}, "no state of bitsandbytes"),
    ({"optimizer_in_backward": "on", "accumulation_steps": 2}, "accumulation_steps must be 1"),
    ({"optimizer_in_backward": "on", "amp_dtype": "fp16"}, "cannot unscale"),
    ({"optimizer_in_backward": "on", "zero_stage": 1}, "cannot average"),
    ({"weight_bits": 4}, "needs lora_rank"),
    ({"weight_bits": 8, "lora_rank": 4, "zero_stage": 3}, "cannot be sharded"),
]


@pytest.mark.parametrize(("knobs", "words"), FORBIDDEN, ids=[str(knobs) for knobs, _ in FORBIDDEN])
def test_a_pair_that_cannot_work_is_refused_with_its_reason(knobs, words):
    assert words in refusal(TrainingConfig.from_mapping(knobs), CPU)


@pytest.mark.parametrize(
    "knobs",
    [
        {"offload_target": "cpu", "zero_stage": 1},
        {"offload_target": "cpu", "zero_stage": 3, "optimizer_bits": 8},
        {"offload_target": "nvme", "zero_stage": 3, "amp_dtype": "bf16"},
        {"zero_stage": 2, "optimizer_bits": 8},
        {"checkpoint_deepest": 2, "checkpoint_interval": 1},
        {"sharding": "fsdp", "zero_stage": 2, "optimizer": "sgd", "amp_dtype": "fp16"},
        {"sharding": "fsdp", "zero_stage": 3, "offload_target": "cpu"},
        {"sharding": "fsdp", "zero_stage": 3, "optimizer_bits": 4},
        {"optimizer_in_backward": "on", "optimizer_bits": 8},
        {"lora_rank": 4, "weight_bits": 4, "zero_stage": 2},
        {"lora_rank": 4, "zero_stage": 3},
    ],
    ids=str,
)
def test_the_pairs_beside_them_are_kept(knobs):
    assert refusal(TrainingConfig.from_mapping(knobs), CPU) is None


def test_tf32_and_activation_offload_are_for_gpus():
    tf32 = TrainingConfig.from_mapping({"amp_dtype": "tf32"})
    assert refusal(tf32, cuda(8, 0)) is None and "7.5" in refusal(tf32, cuda(7, 5))
    moved = TrainingConfig.from_mapping({"activation_offload": "cpu"})
    assert refusal(moved, cuda(8, 0)) is None


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"optimizer": "sgd"}, "exists for adamw and lion"),
        ({"optimizer_bits": 4}, "exists for adamw and lion"),
        ({"zero_stage": 1}, "take cpu or nvme"),
        ({"optimizer": "lion", "optimizer_bits": 8}, None),
        ({}, None),
    ],
    ids=str,
)
def test_paged_state_is_bitsandbytes_on_a_gpu(knobs, words):
    reason = refusal(TrainingConfig.from_mapping({"offload_target": "paged", **knobs}), cuda(8, 0))
    assert reason is None if words is None else words in reason


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({}, None),
        ({"optimizer_bits": 8}, "needs optimizer_bits=32"),
        ({"amp_dtype": "fp16"}, "before they are unscaled"),
        ({"amp_dtype": "fp16", "zero_stage": 3, "sharding": "fsdp"}, "before they are unscaled"),
        ({"optimizer_in_backward": "on"}, "stepped on the CPU"),
    ],
    ids=str,
)
def test_state_is_offloaded_without_deepspeed_from_a_gpu(knobs, words):
    reason = refusal(TrainingConfig.from_mapping({"offload_target": "cpu", **knobs}), cuda(8, 0))
    assert reason is None if words is None else words in reason


def test_state_is_offloaded_without_deepspeed_from_one_gpu():
    space = SearchSpace.of({"offload_target": ["cpu"]}, num_devices=2)
    assert ["for one device" in e.reason for e in space.exclusions(cuda(8, 0))] == [True]


def test_a_step_in_the_backward_pass_is_for_one_device():
    space = SearchSpace.of({"optimizer_in_backward": ["on"]}, num_devices=2)
    assert [exclusion.reason for exclusion in space.exclusions(CPU)] == [
        refusal(TrainingConfig.from_mapping({"optimizer_in_backward": "on", "zero_stage": 1}), CPU)
    ]


def test_rule_names_are_unique():
    assert len({rule.name for rule in RULES}) == len(RULES)
