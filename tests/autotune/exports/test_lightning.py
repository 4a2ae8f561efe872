"""The YAML for Lightning: its own trainer takes it, where Lightning is there."""

import pytest
import yaml

from autotune.errors import SettingsError, UnsupportedExportError
from autotune.exports import read_config
from tests.autotune.exports.handovers import exported, handed_over

PRECISIONS = [("fp32", "32-true"), ("bf16", "bf16-mixed"), ("fp16", "16-mixed")]


def trainer_of(**options):
    return yaml.safe_load(exported("lightning", handed_over(**options)).text)["trainer"]


@pytest.mark.parametrize(("dtype", "precision"), PRECISIONS)
def test_lightning_takes_it(dtype, precision):
    said = trainer_of(amp_dtype=dtype, accumulation_steps=4, steps=7)
    assert (said["precision"], said["accumulate_grad_batches"]) == (precision, 4)
    lightning = pytest.importorskip("lightning")
    if dtype == "fp16":
        pytest.skip("Lightning has fp16 on GPUs alone")
    trainer = lightning.Trainer(**said, logger=False, enable_checkpointing=False)
    assert (trainer.accumulate_grad_batches, trainer.max_steps) == (4, 7)
    assert trainer.precision == precision


def test_several_devices_are_data_parallel():
    assert trainer_of(num_devices=4, on="cuda", accumulation_steps=1) == {
        "accelerator": "gpu",
        "devices": 4,
        "strategy": "ddp",
        "precision": "32-true",
        "accumulate_grad_batches": 1,
    }


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"zero_stage": 2}, r"DeepSpeedStrategy\(config=FILE\)"),
        ({"zero_stage": 3, "sharding": "fsdp"}, "sharding=fsdp"),
        ({"offload_target": "paged", "optimizer_bits": 8}, "offload_target=paged"),
    ],
)
def test_what_lightning_would_train_otherwise_is_refused(knobs, words):
    with pytest.raises(UnsupportedExportError, match=words):
        exported("lightning", handed_over(on="cuda", **knobs))


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"checkpoint_interval": 2}, "checkpoint_interval=2"),
        ({"amp_dtype": "tf32"}, "amp_dtype=tf32"),
        ({"compile": "on"}, "compile=on"),
        ({"lora_rank": 8}, "lora_rank=8"),
        ({"optimizer_bits": 8}, "optimizer_bits=8"),
    ],
)
def test_what_it_has_no_key_for_is_said(knobs, words):
    assert words in exported("lightning", handed_over(on="cuda", **knobs)).notes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trainer: {strategy: fsdp}", "trainer.strategy 'fsdp' is no knob"),
        ("trainer: {precision: 64-true}", "trainer.precision '64-true' is none of"),
    ],
)
def test_what_is_no_knob_is_told_with_its_place(tmp_path, text, words):
    path = tmp_path / "today.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=words):
        read_config(path)


def test_todays_own_file_is_a_baseline(tmp_path):
    path = tmp_path / "today.yaml"
    path.write_text("trainer: {precision: bf16, accumulate_grad_batches: 4}")
    reading = read_config(path)
    config = reading.config(global_batch_size=8, num_devices=1)
    assert (str(config.amp_dtype), config.accumulation_steps) == ("bf16", 4)
    assert any("deprecated" in note for note in reading.notes)
