"""The Accelerate YAML, held to accelerate's own loader, launcher and plugin."""

import json

import pytest

from autotune.errors import UnsupportedExportError
from autotune.exports.accelerate_reading import FILE_KEY, KEYS_OF_A_FILE, KNOWN_KEYS
from autotune.exports.yaml_text import from_yaml, to_yaml
from tests.autotune.exports.handovers import exported, handed_over, written

pytestmark = pytest.mark.filterwarnings("ignore")  # imports of the targets

PLAIN = [{}, {"amp_dtype": "bf16"}, {"amp_dtype": "fp16", "compile": "on"}]
INLINE = [
    {"zero_stage": 2},
    {"zero_stage": 2, "offload_target": "cpu"},
    {"zero_stage": 3, "offload_target": "nvme"},
]


def loaded(path):
    from accelerate.commands.config.config_args import load_config_from_file

    return load_config_from_file(str(path))


def inline(tmp_path, **knobs):
    """Return an export without a DeepSpeed file, and its text."""
    path = tmp_path / "accelerate.yaml"
    path.write_text(exported("accelerate", handed_over(on="cuda", **knobs)).text)
    return path


@pytest.mark.parametrize("knobs", [*PLAIN, *INLINE], ids=str)
def test_accelerate_loads_it(knobs, tmp_path):
    found = loaded(inline(tmp_path, **knobs))
    kind = "DEEPSPEED" if "zero_stage" in knobs else "NO"
    assert (found.distributed_type.value, found.num_processes) == (kind, 1)
    assert found.mixed_precision == knobs.get("amp_dtype", "no")
    assert ("dynamo_backend" in found.dynamo_config) is (knobs.get("compile") == "on")


@pytest.mark.parametrize("knobs", [*PLAIN, *INLINE], ids=str)
def test_nothing_is_left_at_auto(knobs, tmp_path):
    assert "auto\n" not in inline(tmp_path, **knobs).read_text()


@pytest.mark.parametrize("knobs", INLINE, ids=str)
def test_the_plugin_makes_of_inline_keys_what_was_tried(knobs, tmp_path):
    from accelerate.utils import DeepSpeedPlugin

    plugin = DeepSpeedPlugin(**loaded(inline(tmp_path, **knobs)).deepspeed_config)
    zero = plugin.deepspeed_config["zero_optimization"]
    assert zero["stage"] == knobs["zero_stage"]
    assert zero["offload_optimizer"]["device"] == knobs.get("offload_target", "none")
    assert plugin.deepspeed_config["gradient_accumulation_steps"] == 2
    assert plugin.deepspeed_config["gradient_clipping"] == 1e9


@pytest.mark.parametrize("knobs", [*INLINE, {"zero_stage": 3, "amp_dtype": "bf16"}], ids=str)
def test_a_file_is_named_or_keys_are_given_never_both(knobs, tmp_path):
    path = written("accelerate", handed_over(on="cuda", **knobs), tmp_path / "accelerate.yaml")
    document = from_yaml(path.read_text())
    assert not KEYS_OF_A_FILE & (document.keys() | document["deepspeed_config"].keys())
    part = json.loads((tmp_path / "accelerate.deepspeed.json").read_text())
    assert document["deepspeed_config"][FILE_KEY] == str(tmp_path / "accelerate.deepspeed.json")
    assert part["zero_optimization"]["stage"] == knobs["zero_stage"]
    if "amp_dtype" not in knobs:
        keys = from_yaml(inline(tmp_path, **knobs).read_text())["deepspeed_config"]
        assert FILE_KEY not in keys


@pytest.mark.parametrize("knobs", [{"zero_stage": 3, "offload_target": "cpu"}], ids=str)
def test_accelerates_plugin_takes_the_file_as_it_is(knobs, tmp_path, monkeypatch):
    from accelerate.utils import DeepSpeedPlugin

    path = written("accelerate", handed_over(**knobs), tmp_path / "accelerate.yaml")
    fields = loaded(path).deepspeed_config
    monkeypatch.setenv("ACCELERATE_CONFIG_DS_FIELDS", ",".join(fields))
    plugin = DeepSpeedPlugin(hf_ds_config=fields[FILE_KEY])
    plugin.set_mixed_precision("no")
    before = json.loads((tmp_path / "accelerate.deepspeed.json").read_text())
    after = {**plugin.deepspeed_config}
    assert after.pop("steps_per_print") == float("inf")
    assert after == before


def test_accelerate_refuses_a_file_beside_keys(monkeypatch, tmp_path):
    from accelerate.utils import DeepSpeedPlugin

    path = written("accelerate", handed_over(zero_stage=2), tmp_path / "accelerate.yaml")
    fields = [*loaded(path).deepspeed_config, "zero_stage"]
    monkeypatch.setenv("ACCELERATE_CONFIG_DS_FIELDS", ",".join(fields))
    with pytest.raises(ValueError, match="deepspeed_config_file"):
        DeepSpeedPlugin(hf_ds_config=str(tmp_path / "accelerate.deepspeed.json"))


@pytest.mark.parametrize(
    ("knobs", "on"),
    [
        ({"amp_dtype": "bf16"}, "cpu"),
        ({"amp_dtype": "fp16"}, "cuda"),
        ({"zero_stage": 2}, "cpu"),
        ({"zero_stage": 3, "amp_dtype": "bf16", "offload_target": "cpu"}, "cpu"),
    ],
    ids=str,
)
def test_the_launcher_takes_it(knobs, on, tmp_path):
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    path = written("accelerate", handed_over(on=on, **knobs), tmp_path / "accelerate.yaml")
    words = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    words, _, has_precision = _validate_launch_command(words)
    assert words.use_deepspeed is ("zero_stage" in knobs) and words.num_processes == 1
    is_paired = "zero_stage" in knobs
    assert words.mixed_precision == ("no" if is_paired else knobs["amp_dtype"])
    assert has_precision is not is_paired  # accelerate refuses it beside a file


@pytest.mark.parametrize(("num_devices", "kind"), [(1, "NO"), (8, "MULTI_GPU")])
def test_many_devices_are_many_processes(num_devices, kind):
    text = exported("accelerate", handed_over(on="cuda", num_devices=num_devices)).text
    document = from_yaml(text)
    assert (document["num_processes"], document["distributed_type"]) == (num_devices, kind)


def test_the_word_no_stays_a_text_and_a_float_has_a_dot():
    text = to_yaml({"mixed_precision": "no", "lr": 2e-5})
    assert text == "mixed_precision: 'no'\nlr: 2.0e-05\n"
    assert from_yaml(text) == {"mixed_precision": "no", "lr": 2e-5}
    assert from_yaml(exported("accelerate", handed_over()).text)["downcast_bf16"] == "no"


def test_deepspeeds_16_bit_weights_are_never_asked_for():
    with pytest.raises(UnsupportedExportError, match="--pair deepspeed"):
        exported("accelerate", handed_over(zero_stage=3, amp_dtype="bf16"))


def test_what_the_script_must_do_is_said_in_the_file_and_beside():
    bundle = exported("accelerate", handed_over(amp_dtype="tf32", optimizer_bits=8))
    words = "micro_batch_size=4, accumulation_steps=2, optimizer=adamw, optimizer_bits=8"
    assert words in bundle.notes[0] and "amp_dtype=tf32" in bundle.notes[0]
    assert f"# {bundle.notes[0]}\n" in bundle.text


def test_the_keys_are_those_of_the_installed_accelerate():
    from accelerate.commands.config.config_args import ClusterConfig

    assert ClusterConfig.__dataclass_fields__.keys() == KNOWN_KEYS
