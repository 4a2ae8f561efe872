"""The document that DeepSpeed is given, by trials and by exports alike."""

import pytest

from search_spaces import TrainingConfig
from search_spaces.deepspeed_document import deepspeed_document


def document(**knobs):
    return deepspeed_document(
        TrainingConfig.from_mapping({"micro_batch_size": 2, **knobs}),
        largest_parameter=4096,
        num_parameters=10**5,
        learning_rate=1e-3,
        nvme_path="/disk",
    )


def test_a_disk_needs_aio_at_top_level_and_buffers_of_the_largest_parameter():
    found = document(zero_stage=3, offload_target="nvme")
    assert "aio" in found and "aio" not in found["zero_optimization"]
    assert found["zero_optimization"]["offload_param"]["buffer_size"] >= 4096
    assert found["zero_optimization"]["offload_optimizer"]["device"] == "nvme"


def test_parameters_are_offloaded_at_stage_3_alone():
    assert "offload_param" not in document(zero_stage=2, offload_target="cpu")["zero_optimization"]
    assert "offload_param" in document(zero_stage=3, offload_target="cpu")["zero_optimization"]


def test_state_that_is_offloaded_is_stepped_by_deepspeed():
    assert document(zero_stage=1, offload_target="cpu")["optimizer"]["type"] == "AdamW"
    assert "optimizer" not in document(zero_stage=1)


def test_deepspeed_neither_clips_nor_reduces_in_lower_precision():
    found = document(zero_stage=1, amp_dtype="bf16")
    assert found["gradient_clipping"] == 0.0
    assert found["torch_autocast"]["lower_precision_safe_modules"] == []


@pytest.mark.parametrize(("amp_dtype", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_deepspeed_casts_as_torch_would(amp_dtype, dtype):
    assert document(zero_stage=2, amp_dtype=amp_dtype)["torch_autocast"]["dtype"] == dtype
    assert "torch_autocast" not in document(zero_stage=2, amp_dtype="tf32")
