"""Every format alike: the batch identity, where it is from, no torch, and round trips."""

import json
import subprocess
import sys
import tomllib

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from autotune.errors import SettingsError, UnsupportedExportError
from autotune.exports import EXPORTERS, export_bundle, read_config
from autotune.store.sql import SqlStore
from search_spaces import EmptySpaceError, SearchSpace, TrainingConfig
from tests.autotune.exports.handovers import SOUND, exported, handed_over, written
from tests.factories import MIB, make_key, make_measurement, make_study_record, make_trial

SUFFIXES = {
    "json": ".json",
    "toml": ".toml",
    "deepspeed": ".json",
    "transformers": ".json",
    "accelerate": ".yaml",
    "lightning": ".yaml",
    "torchtune": ".yaml",
    "axolotl": ".yaml",
    "llama-factory": ".yaml",
    "ray-train": ".yaml",
    "env": ".env",
    "shell": ".args",
}
SAMPLE = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)


def test_every_format_is_tested():
    assert SUFFIXES.keys() == EXPORTERS.keys()


@pytest.mark.parametrize("form", EXPORTERS)
@SAMPLE
@given(config=SOUND)
@example(config=TrainingConfig.from_mapping({"zero_stage": 3, "offload_target": "nvme"}))
def test_what_is_exported_is_read_back_as_it_was(form, config, tmp_path):
    path = tmp_path / f"today{SUFFIXES[form]}"
    try:
        written(form, handed_over(config, on="cuda"), path)
    except UnsupportedExportError:
        assume(False)
    assume(form != "transformers" or config.checkpoint_deepest == config.lora_rank == 0)
    assert read_config(path).config(global_batch_size=1, num_devices=1) == config


@pytest.mark.parametrize("form", ["deepspeed", "env", "shell", "json"])
@SAMPLE
@given(micro=st.integers(1, 512), steps=st.integers(1, 64), devices=st.integers(1, 64))
def test_an_exported_batch_is_the_product_of_its_parts(form, micro, steps, devices):
    knobs = {"micro_batch_size": micro, "accumulation_steps": steps}
    text = exported(form, handed_over(num_devices=devices, **knobs)).text
    total = micro * steps * devices
    said = {
        "deepspeed": f'"train_batch_size": {total},',
        "env": f"TRAIN_GLOBAL_BATCH_SIZE={total}\n",
        "shell": f"--global-batch-size {total} ",
        "json": f'"global_batch_size": {total}\n',
    }
    assert said[form] in text


def test_256_on_7_devices_is_refused_with_the_nearest_batches():
    with pytest.raises(EmptySpaceError, match="252 and 259"):
        SearchSpace.of({"micro_batch_size": [1]}, global_batch_size=256, num_devices=7)


@pytest.mark.parametrize("form", EXPORTERS)
def test_an_export_says_study_trial_date_and_needs(form, tmp_path):
    to = tmp_path / f"today{SUFFIXES[form]}"
    bundle = exported(form, handed_over(optimizer_bits=8), to)
    texts = [bundle.text, *(text for _, text in bundle.beside)]
    about = next(text for text in texts if "2026-09-01T12:30:05" in text)
    assert "study" in about and "bitsandbytes==0.48.0" in about
    assert "device_memory_bytes" in about and '"trial": 4' in about.replace("trial =", '"trial":')


def test_a_gpu_that_is_new_enough_is_a_need():
    needs = json.loads(exported("json", handed_over(on="cuda", amp_dtype="bf16")).text)["needs"]
    assert needs["compute_capability"] == "8.0"
    assert "compute_capability" not in exported("json", handed_over(on="cuda")).text


@pytest.mark.parametrize("form", ["json", "toml"])
def test_the_optimizer_is_told_as_the_trial_had_it(form):
    text = exported(form, handed_over(optimizer="lion", rate=1e-3)).text
    read = json.loads if form == "json" else tomllib.loads
    assert read(text)["optimizer"] == {
        "learning_rate": pytest.approx(2e-4),
        "weight_decay": 0.0,
        "betas": [0.9, 0.99],
    }


def test_deepspeed_without_a_stage_is_said_to_be_none_of_the_trials():
    notes = "\n".join(exported("deepspeed", handed_over()).notes)
    assert "zero_stage=0: the trial ran as plain PyTorch" in notes
    sharded = "\n".join(exported("deepspeed", handed_over(zero_stage=1)).notes)
    assert "plain PyTorch" not in sharded


def test_exports_load_no_library_of_a_target_and_are_quick():
    code = """
import sys, time
from tests.autotune.exports.handovers import exported, handed_over
from autotune.exports import EXPORTERS
for form in EXPORTERS:
    exported(form, handed_over())
    began = time.perf_counter()
    exported(form, handed_over())
    assert time.perf_counter() - began < 1, form
heavy = {"torch", "transformers", "accelerate", "deepspeed", "ray", "optuna"}
sys.exit(" ".join(heavy & sys.modules.keys()) or 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


HEAVY = {
    *("torch", "transformers", "accelerate", "deepspeed", "optuna", "ray", "scipy", "numpy"),
    *("plotly", "alembic", "rich", "psutil", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql"),
    *("autotune.exports.reading", "autotune.exports.transformers_reading", "autotune.prices.rows"),
}
"""What no export needs; each took its time from every one of them, or would."""


@pytest.mark.parametrize(
    ("form", "unneeded"),
    [
        ("env", {"yaml", "autotune.exports.transformers", "autotune.exports.deepspeed"}),
        ("json", {"yaml", "autotune.exports.environment"}),
        ("deepspeed", {"yaml", "autotune.exports.transformers"}),
        ("lightning", {"autotune.exports.transformers", "autotune.exports.torchtune"}),
    ],
)
def test_the_command_loads_no_more_than_its_format_needs(form, unneeded, tmp_path):
    """In a process of its own, as a shell runs it: what is loaded is most of what it takes."""
    store = SqlStore.open(str(tmp_path / "studies.db"))
    store.create_study(make_study_record())
    trial = make_trial()
    store.open_trial(trial)
    store.record_measurement(trial, make_key(trial), 600 * MIB, make_measurement())
    store.close()
    code = f"""
import sys
from autotune.cli import run_command
words = ["export", "study", "--trial", "0", "--format", {form!r}, "--store", sys.argv[1]]
assert run_command(words) == 0
loaded = {HEAVY | unneeded!r} & sys.modules.keys()
sys.exit(" ".join(loaded) or 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "studies.db")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_an_unknown_format_names_the_known_ones():
    with pytest.raises(SettingsError, match="no export format 'yaml'; known: json, toml, deep"):
        exported("yaml", handed_over())


@pytest.mark.parametrize(
    ("form", "pair", "has_place", "words"),
    [
        ("deepspeed", "deepspeed", True, "a DeepSpeed JSON goes with transformers or accelerate"),
        ("transformers", "accelerate", True, "--pair accelerate with --format transformers"),
        ("transformers", "deepspeed", False, "say where with --to FILE"),
    ],
)
def test_a_pair_that_is_none_is_refused(form, pair, has_place, words, tmp_path):
    with pytest.raises(SettingsError, match=words):
        export_bundle(
            handed_over(), form=form, pair=pair, to=tmp_path / "a" if has_place else None
        )


def test_a_shell_takes_the_variables_and_the_words(tmp_path):
    path = written("env", handed_over(zero_stage=3, offload_target="nvme"), tmp_path / "a.env")
    line = f". {path}; echo $TRAIN_MICRO_BATCH_SIZE $TRAIN_NVME_PATH"
    found = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert found.stdout == "4 /local_nvme\n"
    text = exported("shell", handed_over(steps=100)).text
    assert text.count("\n") == 1 and "--micro-batch-size 4 " in text and "--steps 100" in text


@pytest.mark.parametrize("form", ["deepspeed", "transformers"])
@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"zero_stage": 3, "sharding": "fsdp"}, "sharding=fsdp"),
        ({"offload_target": "cpu"}, "offload_target=cpu at zero_stage=0"),
    ],
    ids=str,
)
def test_what_is_not_deepspeeds_is_refused_where_only_that_can_be_said(form, knobs, words):
    with pytest.raises(UnsupportedExportError, match=words):
        exported(form, handed_over(on="cuda", **knobs))


@pytest.mark.parametrize("form", ["deepspeed", "transformers", "accelerate"])
def test_adapters_are_left_to_the_script_aloud(form):
    notes = exported(form, handed_over(lora_rank=8, weight_bits=4)).notes
    assert any("lora_rank=8, weight_bits=4" in note for note in notes)


def test_paged_state_has_its_name_in_transformers():
    text = exported("transformers", handed_over(offload_target="paged", optimizer_bits=8)).text
    assert json.loads(text)["optim"] == "paged_adamw_8bit"
    with pytest.raises(UnsupportedExportError, match="optimizer_in_backward"):
        exported("transformers", handed_over(optimizer_in_backward="on", accumulation_steps=1))
