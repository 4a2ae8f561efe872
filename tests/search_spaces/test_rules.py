import pytest

from search_spaces import RULES, TECHNIQUES, DeviceFacts, TrainingConfig, refusal

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
    ],
)
def test_a_technique_that_is_missing_is_refused_with_its_reason(technique, knobs):
    config = TrainingConfig.from_mapping(knobs)
    assert refusal(config, CPU) is None
    assert refusal(config, DeviceFacts(missing=((technique, "it is not here"),))) == (
        "it is not here"
    )
    others = tuple((name, "it is not here") for name in TECHNIQUES if name != technique)
    needs_two = technique.startswith("offload")
    assert refusal(config, DeviceFacts(missing=others)) == (
        "it is not here" if needs_two else None
    )


FORBIDDEN = [
    ({"offload_target": "cpu"}, "needs zero_stage 1 or more"),
    ({"offload_target": "nvme", "zero_stage": 2}, "needs zero_stage=3"),
    ({"offload_target": "cpu", "zero_stage": 1, "optimizer_bits": 8}, "needs optimizer_bits=32"),
    ({"offload_target": "nvme", "zero_stage": 3, "optimizer_bits": 8}, "needs optimizer_bits=32"),
    ({"offload_target": "cpu", "zero_stage": 2, "optimizer": "sgd"}, "needs optimizer=adamw"),
    ({"zero_stage": 1, "amp_dtype": "fp16"}, "never lowers its loss scale"),
    ({"zero_stage": 1, "compile": "on"}, "is not measured"),
    ({"optimizer_bits": 4, "optimizer": "lion"}, "adamw alone, not for lion"),
    ({"optimizer_bits": 4, "zero_stage": 1}, "ZeRO flattens tensors"),
    ({"checkpoint_deepest": 2}, "does nothing while checkpoint_interval=0"),
    ({"activation_offload": "cpu"}, "moves nothing where the CPU is the device"),
    ({"amp_dtype": "tf32"}, "a CPU has none"),
]


@pytest.mark.parametrize(("knobs", "words"), FORBIDDEN, ids=[str(knobs) for knobs, _ in FORBIDDEN])
def test_a_pair_that_cannot_work_is_refused_with_its_reason(knobs, words):
    assert words in refusal(TrainingConfig.from_mapping(knobs), CPU)


@pytest.mark.parametrize(
    "knobs",
    [
        {"offload_target": "cpu", "zero_stage": 1},
        {"offload_target": "nvme", "zero_stage": 3, "amp_dtype": "bf16"},
        {"zero_stage": 2, "optimizer_bits": 8},
        {"checkpoint_deepest": 2, "checkpoint_interval": 1},
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


def test_rule_names_are_unique():
    assert len({rule.name for rule in RULES}) == len(RULES)
