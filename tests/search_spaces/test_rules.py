import pytest

from search_spaces import RULES, DeviceFacts, TrainingConfig, refusal

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


def test_eight_bit_optimizers_need_bitsandbytes():
    config = TrainingConfig(optimizer_bits=8)
    assert refusal(config, CPU) is None
    assert "bitsandbytes" in refusal(config, DeviceFacts(has_8bit_optimizer=False))


@pytest.mark.parametrize("target", ["cpu", "nvme"])
def test_offload_is_refused_with_the_reason_until_it_has_a_backend(target):
    config = TrainingConfig.from_mapping({"offload_target": target})
    assert f"offload_target={target} has no backend" in refusal(config, CPU)


def test_rule_names_are_unique():
    assert len({rule.name for rule in RULES}) == len(RULES)
