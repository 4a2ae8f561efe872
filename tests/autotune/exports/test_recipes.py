"""torchtune, axolotl and LLaMA-Factory: their files are read, and ours hold their keys.

Their programs install too much to be run here, so keys are held to what each publishes: those of
torchtune to the keys of its own recipes, the others to the names in their schemas (axolotl 0.19,
LLaMA-Factory 0.9.5). Where a program is installed, test_recipe_parsers.py asks it.
"""

from pathlib import Path

import pytest
import yaml

from autotune.errors import SettingsError, UnsupportedExportError
from autotune.exports import read_config
from tests.autotune.exports.handovers import exported, handed_over, written

CONFIGS = Path(__file__).parents[4] / "shared" / "configs"
NEEDS_CONFIGS = pytest.mark.skipif(not CONFIGS.is_dir(), reason="the real files are not here")
AXOLOTL_KEYS = {
    *("micro_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "tf32", "max_steps"),
    *("optimizer", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("max_grad_norm", "optim_args", "gradient_checkpointing", "gradient_checkpointing_kwargs"),
    *("adapter", "lora_r", "lora_alpha", "lora_dropout", "lora_target_linear", "load_in_8bit"),
    *("load_in_4bit", "torch_compile", "deepspeed"),
}
LLAMA_FACTORY_KEYS = {
    *("finetuning_type", "lora_rank", "lora_alpha", "lora_dropout", "lora_target", "pure_bf16"),
    *("quantization_bit", "quantization_method", "disable_gradient_checkpointing"),
    *("use_reentrant_gc",),
}
"""Its own; its other keys are those of TrainingArguments."""
TORCHTUNE_KEYS = {
    *("device", "dtype", "batch_size", "gradient_accumulation_steps", "optimizer", "compile"),
    *("enable_activation_checkpointing", "enable_activation_offloading", "optimizer_in_bwd"),
    *("clip_grad_norm", "model", "max_steps_per_epoch", "fsdp_cpu_offload"),
    *("fsdp_reshard_after_forward", "ac_mode", "ac_option"),
}
"""Of version 0.6.1; the last three of its distributed recipe of full training."""
LORA = {"lora_rank": 16, "weight_bits": 4, "optimizer_bits": 8, "amp_dtype": "bf16"}
ALL = {"accumulation_steps": 4, "micro_batch_size": 2, "checkpoint_interval": 1}


def document(form, **options):
    return yaml.safe_load(exported(form, handed_over(on="cuda", **options)).text)


def knobs_of(path, batch=8):
    return read_config(path).config(batch, 1).as_dict()


@pytest.mark.parametrize("knobs", [ALL, {**ALL, **LORA}, {"compile": "on", "steps": 5}])
def test_axolotl_gets_its_own_keys(knobs):
    found = document("axolotl", **knobs)
    assert found.keys() <= AXOLOTL_KEYS
    assert isinstance(found["learning_rate"], float)


def test_axolotl_trains_qlora_as_it_was_measured():
    found = document("axolotl", **ALL, **LORA)
    assert (found["adapter"], found["load_in_4bit"], found["lora_r"]) == ("qlora", True, 16)
    assert (found["optimizer"], found["bf16"]) == ("adamw_bnb_8bit", True)
    assert found["gradient_checkpointing_kwargs"] == {"use_reentrant": False}


@pytest.mark.parametrize("knobs", [ALL, {**ALL, **LORA}, {"steps": 5}])
def test_llama_factory_gets_its_own_keys_and_training_arguments(knobs):
    from dataclasses import fields

    from transformers import TrainingArguments

    known = LLAMA_FACTORY_KEYS | {field.name for field in fields(TrainingArguments)}
    found = document("llama-factory", **knobs)
    assert found.keys() <= known
    assert found["finetuning_type"] == ("lora" if "lora_rank" in knobs else "full")
    arguments = {key: value for key, value in found.items() if key not in LLAMA_FACTORY_KEYS}
    arguments |= {"bf16": False, "tf32": None, "output_dir": "out"}  # there is no GPU
    assert TrainingArguments(**arguments).optim == found["optim"]


@pytest.mark.parametrize(
    "knobs",
    [
        ALL,
        {**ALL, **LORA},
        {"checkpoint_interval": 2, "zero_stage": 3, "sharding": "fsdp", "offload_target": "cpu"},
        {"optimizer_in_backward": "on", "activation_offload": "cpu", "steps": 3},
    ],
)
def test_torchtune_gets_keys_of_its_recipes(knobs):
    found = document("torchtune", **knobs)
    assert found.keys() <= TORCHTUNE_KEYS
    assert found["optimizer"]["_component_"].rpartition(".")[0] in (
        "torch.optim",
        "bitsandbytes.optim",
    )


@NEEDS_CONFIGS
def test_those_keys_of_torchtune_are_in_its_own_recipes():
    published = set()
    for path in (CONFIGS / "torchtune").iterdir():
        published |= yaml.safe_load(path.read_text()).keys()
    assert {*TORCHTUNE_KEYS} - published == {"ac_mode", "ac_option", "fsdp_reshard_after_forward"}


@pytest.mark.parametrize(
    ("form", "knobs", "word"),
    [
        ("torchtune", {"amp_dtype": "fp16"}, "amp_dtype=fp16"),
        ("torchtune", {"zero_stage": 2}, "sharding=deepspeed"),
        ("torchtune", {"checkpoint_deepest": 2, "checkpoint_interval": 1}, "checkpoint_deepest"),
        ("torchtune", {"lora_rank": 8, "weight_bits": 8}, "weight_bits=8"),
        ("axolotl", {"checkpoint_interval": 2}, "checkpoint_interval=2"),
        ("axolotl", {"activation_offload": "cpu"}, "activation_offload=cpu"),
        ("axolotl", {"zero_stage": 2}, "zero_stage=2"),
        ("accelerate", {"offload_target": "cpu"}, "offload_target=cpu at zero_stage=0"),
        ("llama-factory", {"checkpoint_interval": 4}, "checkpoint_interval=4"),
        ("llama-factory", {"optimizer_in_backward": "on"}, "optimizer_in_backward=on"),
    ],
)
def test_what_a_format_cannot_say_is_refused_by_name(form, knobs, word):
    with pytest.raises(UnsupportedExportError, match=word):
        exported(form, handed_over(on="cuda", **knobs))


@pytest.mark.parametrize(("form", "count"), [("torchtune", 2), ("axolotl", 2)])
def test_bf16_that_holds_weights_in_16_bits_is_told_loudly(form, count):
    bundle = exported(form, handed_over(on="cuda", amp_dtype="bf16"))
    assert sum("16 bits" in note for note in bundle.notes) == 1
    assert len(bundle.notes) == count


@pytest.mark.parametrize("form", ["axolotl", "llama-factory"])
def test_a_pair_names_deepspeeds_file_and_is_read_back(form, tmp_path):
    handover = handed_over(on="cuda", zero_stage=2, offload_target="cpu", amp_dtype="bf16")
    path = written(form, handover, tmp_path / "today.yaml")
    assert yaml.safe_load(path.read_text())["deepspeed"] == str(tmp_path / "today.deepspeed.json")
    assert read_config(path).config(1, 1) == handover.config


@NEEDS_CONFIGS
@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("torchtune/llama3_1_70B_full.yaml", {"sharding": "fsdp", "offload_target": "cpu"}),
        ("torchtune/llama3_1_8B_full_single_device.yaml", {"optimizer_bits": 8}),
        ("torchtune/llama3_2_1B_lora_single_device.yaml", {"lora_rank": 64, "weight_bits": 32}),
        ("torchtune/mistral_7B_full_low_memory.yaml", {"activation_offload": "cpu"}),
        ("torchtune/qwen2_5_0.5B_full.yaml", {"accumulation_steps": 8, "micro_batch_size": 2}),
        ("axolotl/gemma3_270m_qlora.yml", {"lora_rank": 32, "weight_bits": 4}),
        ("axolotl/llama3_70b_qlora_fsdp.yaml", {"weight_bits": 4, "checkpoint_interval": 1}),
        ("axolotl/llama3_8b_fft.yaml", {"offload_target": "paged", "optimizer_bits": 8}),
        ("axolotl/mixtral_qlora_fsdp.yml", {"accumulation_steps": 4, "amp_dtype": "bf16"}),
        ("llama_factory/llama3_full_badam.yaml", {"micro_batch_size": 1, "lora_rank": 0}),
        ("llama_factory/llama3_full_galore.yaml", {"amp_dtype": "bf16"}),
        ("llama_factory/qwen3_lora_sft_ray.yaml", {"lora_rank": 8}),
        ("accelerate/ah_fsdp.yaml", {"sharding": "fsdp", "zero_stage": 3}),
        ("accelerate/lf_fsdp_offload.yaml", {"offload_target": "cpu", "amp_dtype": "bf16"}),
        ("hf_training_args/zephyr7b_sft_qlora.yaml", {"lora_rank": 16, "weight_bits": 4}),
    ],
)
def test_real_files_are_read(name, knobs):
    found = knobs_of(CONFIGS / name)
    assert {knob: found[knob] for knob in knobs} == knobs


@NEEDS_CONFIGS
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("axolotl/llama32_1b_lora_ray_z3_8bit.yml", "there is no 'deepspeed_configs/zero3.json'"),
        ("llama_factory/qwen3_full_sft.yaml", "there is no 'examples/deepspeed/ds_z3_config"),
    ],
)
def test_a_file_that_names_one_that_is_not_there_says_which(name, words):
    with pytest.raises(SettingsError, match=words):
        read_config(CONFIGS / name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base_model: x\nload_in_4bit: true\n", "load_in_4bit without adapters"),
        ("bf16: true\nload_in_4bit: true\n", "load_in_4bit without adapters"),
        ("base_model: x\noptimizer: muon\n", "optim 'muon' is no optimizer of ours"),
        ("finetuning_type: full\nquantization_bit: 4\n", "quantization_bit with finetuning_type"),
        ("optimizer: {_component_: torch.optim.Adam}\n", "'torch.optim.Adam' is no optimizer"),
        ("dtype: fp16\noptimizer: {_component_: torch.optim.SGD}\n", "dtype 'fp16' is none of"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(text, words, tmp_path):
    path = tmp_path / "today.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=words):
        read_config(path)


def test_accelerate_takes_fsdp(tmp_path):
    """By its own parser, and by the plugin that its launcher makes of the keys."""
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.utils import FullyShardedDataParallelPlugin

    knobs = {
        "zero_stage": 2,
        "sharding": "fsdp",
        "offload_target": "cpu",
        "checkpoint_interval": 1,
    }
    handover = handed_over(on="cuda", num_devices=2, **knobs)
    path = written("accelerate", handover, tmp_path / "today.yaml")
    parsed = load_config_from_file(str(path))
    assert (parsed.distributed_type.value, parsed.num_processes) == ("FSDP", 2)
    keys = {key.removeprefix("fsdp_"): value for key, value in parsed.fsdp_config.items()}
    keys["cpu_offload"], keys["fsdp_version"] = keys.pop("offload_params"), keys.pop("version")
    plugin = FullyShardedDataParallelPlugin(**keys)
    assert (plugin.fsdp_version, plugin.reshard_after_forward) == (2, False)
    assert plugin.activation_checkpointing and plugin.cpu_offload
    assert read_config(path).config(2, 2) == handover.config
