"""The DeepSpeed JSON, held to DeepSpeed's own reading of it."""

import json

import pytest

from autotune.errors import UnsupportedExportError
from autotune.exports.deepspeed_keys import (
    BLOCK_KEYS,
    DEPRECATED_KEYS,
    POSITIVE_KEYS,
    STAGE3_KEYS,
    ZERO_KEYS,
)
from tests.autotune.exports.handovers import deepspeed_json, exported, handed_over

pytestmark = pytest.mark.filterwarnings("ignore")  # DeepSpeed's import

OFFLOADED = [
    {"zero_stage": 1, "offload_target": "cpu"},
    {"zero_stage": 2, "offload_target": "cpu", "amp_dtype": "bf16"},
    {"zero_stage": 3, "offload_target": "cpu"},
    {"zero_stage": 3, "offload_target": "nvme"},
]
SHARDED = [{"zero_stage": stage, "amp_dtype": "bf16"} for stage in (0, 1, 2, 3)]


@pytest.mark.parametrize("knobs", [*OFFLOADED, *SHARDED], ids=str)
def test_deepspeed_reads_it_as_it_was_measured(knobs):
    from deepspeed.runtime.config import DeepSpeedConfig

    document = deepspeed_json(**knobs)
    read = DeepSpeedConfig(document)
    assert read.train_batch_size == 8
    assert read.train_micro_batch_size_per_gpu == 4 and read.gradient_accumulation_steps == 2
    assert read.zero_config.stage == knobs["zero_stage"] and read.gradient_clipping == 0.0
    assert read.torch_autocast_enabled is (knobs.get("amp_dtype") == "bf16")
    assert not (read.float16_config.enabled or read.bfloat16_config.enabled)
    assert '"auto"' not in json.dumps(document)


def test_another_number_of_devices_than_was_meant_is_refused_by_deepspeed():
    from deepspeed.runtime.config import DeepSpeedConfig

    with pytest.raises(AssertionError, match=r"56 != 4 \* 2 \* 1"):
        DeepSpeedConfig(deepspeed_json(num_devices=7))


@pytest.mark.parametrize("knobs", OFFLOADED, ids=str)
def test_offloaded_state_is_stepped_by_an_optimizer_that_deepspeed_builds(knobs):
    optimizer = deepspeed_json(**knobs)["optimizer"]
    assert optimizer["type"] == "AdamW"
    assert optimizer["params"] == {
        "lr": 2e-5,
        "weight_decay": 0.01,
        "betas": [0.9, 0.999],
        "eps": 1e-8,
    }
    assert "give deepspeed.initialize none" in exported("deepspeed", handed_over(**knobs)).notes[0]


def test_a_disk_has_aio_at_top_level_and_room_for_the_largest_parameter():
    document = deepspeed_json(zero_stage=3, offload_target="nvme")
    assert "aio" in document and "aio" not in document["zero_optimization"]
    assert document["zero_optimization"]["offload_param"]["buffer_size"] == 400
    assert document["zero_optimization"]["offload_param"]["nvme_path"] == "/local_nvme"


@pytest.mark.parametrize("knobs", OFFLOADED, ids=str)
def test_parameters_are_offloaded_at_stage_3_alone(knobs):
    zero = deepspeed_json(**knobs)["zero_optimization"]
    assert ("offload_param" in zero) is (knobs["zero_stage"] == 3)


def test_pinned_memory_is_for_gpus():
    knobs = {"zero_stage": 1, "offload_target": "cpu"}
    for on, is_pinned in (("cuda", True), ("cpu", False)):
        zero = deepspeed_json(on=on, **knobs)["zero_optimization"]
        assert zero["offload_optimizer"]["pin_memory"] is is_pinned


def test_fp16_under_zero_is_refused_since_its_scale_never_falls():
    with pytest.raises(UnsupportedExportError, match="never lowers its loss scale"):
        deepspeed_json(zero_stage=1, amp_dtype="fp16")
    assert deepspeed_json(amp_dtype="fp16")["torch_autocast"]["dtype"] == "float16"


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"optimizer_bits": 8}, "bitsandbytes.optim.AdamW8bit(lr=2e-05, weight_decay=0.01)"),
        ({"optimizer": "sgd"}, "torch.optim.SGD(lr=0.0002, weight_decay=0.0, momentum=0.9)"),
        ({"checkpoint_interval": 2, "compile": "on"}, "checkpoint_interval=2, compile=on"),
    ],
    ids=str,
)
def test_what_deepspeed_has_no_key_for_is_said(knobs, words):
    assert words in "\n".join(exported("deepspeed", handed_over(**knobs)).notes)


def test_a_study_that_does_not_know_its_learning_rate_says_so():
    bundle = exported("deepspeed", handed_over(rate=None, zero_stage=1, offload_target="cpu"))
    assert "does not know its workload's learning rate" in bundle.notes[0]
    assert json.loads(bundle.text)["optimizer"]["params"]["lr"] == 1e-3


def test_the_keys_are_those_of_the_installed_deepspeed():
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from deepspeed.runtime.zero.offload_config import (
        DeepSpeedZeroOffloadOptimizerConfig,
        DeepSpeedZeroOffloadParamConfig,
    )

    blocks = {
        "zero_optimization": DeepSpeedZeroConfig,
        "zero_optimization.offload_param": DeepSpeedZeroOffloadParamConfig,
        "zero_optimization.offload_optimizer": DeepSpeedZeroOffloadOptimizerConfig,
        "fp16": DeepSpeedFP16Config,
        "bf16": DeepSpeedBF16Config,
    }
    for name, kind in blocks.items():
        aliases = {field.alias for field in kind.model_fields.values() if field.alias}
        assert BLOCK_KEYS[name] == kind.model_fields.keys() | aliases, name
    fields = DeepSpeedZeroConfig.model_fields
    marked = {name for name, f in fields.items() if (f.json_schema_extra or {}).get("deprecated")}
    assert DEPRECATED_KEYS.keys() == marked
    assert {f"stage3_{key}" for key in STAGE3_KEYS} <= ZERO_KEYS
    for key in POSITIVE_KEYS:
        with pytest.raises(ValueError, match="greater than 0"):
            DeepSpeedZeroConfig(**{key: 0})
