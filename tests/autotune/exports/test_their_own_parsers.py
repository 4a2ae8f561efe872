"""Exports, read by the parsers that users have: trl, OmegaConf, Hydra, and a shell."""

import json
import subprocess
import sys

import pytest

from tests.autotune.exports.handovers import exported, handed_over, written

pytestmark = pytest.mark.filterwarnings("ignore")  # imports of the targets
CONFIGS = [
    {},
    {"amp_dtype": "bf16", "checkpoint_interval": 1},
    {"amp_dtype": "fp16", "checkpoint_interval": 4, "optimizer_bits": 8},
    {"optimizer": "sgd", "compile": "on"},
]
PROGRAM = """
import argparse, json
parser = argparse.ArgumentParser()
for name, kind in (("micro-batch-size", int), ("accumulation-steps", int), ("amp-dtype", str),
                   ("checkpoint-interval", int), ("global-batch-size", int),
                   ("learning-rate", float), ("steps", int), ("nvme-path", str)):
    parser.add_argument(f"--{name}", type=kind, required=name != "nvme-path")
given, rest = parser.parse_known_args()
print(json.dumps({**vars(given), "positional": [w for w in rest if w == "in"]}))
"""
LAUNCH = """#!/usr/bin/env bash
set -euo pipefail
eval "flags=($(cat "$1"))"
exec "$2" train.py "${flags[@]}"
"""


@pytest.mark.parametrize("knobs", CONFIGS, ids=str)
def test_trls_own_arguments_take_the_transformers_json(knobs, tmp_path):
    """As ``trl`` itself parses: its ``SFTConfig`` is ``TrainingArguments`` with more keys."""
    trl = pytest.importorskip("trl", reason="trl is not installed")
    path = written("transformers", handed_over(steps=50, **knobs), tmp_path / "args.json")
    (found,) = trl.TrlParser(trl.SFTConfig).parse_json_file(str(path))
    assert isinstance(found, trl.SFTConfig)
    assert (found.per_device_train_batch_size, found.gradient_accumulation_steps) == (4, 2)
    assert found.max_steps == 50 and found.max_grad_norm == 0.0
    assert found.bf16 is (knobs.get("amp_dtype") == "bf16")
    assert found.activation_checkpointing is (knobs.get("checkpoint_interval", 0) > 0)


@pytest.mark.parametrize("form", ["json", "torchtune", "lightning", "ray-train", "axolotl"])
@pytest.mark.parametrize("knobs", [{}, {"amp_dtype": "bf16", "lora_rank": 8}], ids=str)
def test_omegaconf_loads_it_and_merges_it_over_a_config(form, knobs, tmp_path):
    omegaconf = pytest.importorskip("omegaconf", reason="OmegaConf is not installed")
    suffix = "json" if form == "json" else "yaml"
    path = written(form, handed_over(on="cuda", **knobs), tmp_path / f"today.{suffix}")
    loaded = omegaconf.OmegaConf.load(path)
    mine = omegaconf.OmegaConf.create({"data": "mine", "batch_size": 64, "config": {"seed": 1}})
    merged = omegaconf.OmegaConf.to_container(
        omegaconf.OmegaConf.merge(mine, loaded), resolve=True, throw_on_missing=True
    )
    assert merged["data"] == "mine" and merged["config"]["seed"] == 1
    places = {"json": ("config", "micro_batch_size"), "torchtune": ("batch_size",)}
    places |= {"lightning": ("trainer", "precision"), "axolotl": ("micro_batch_size",)}
    places |= {"ray-train": ("train_loop_config", "micro_batch_size")}
    for key in places[form]:
        merged = merged[key]
    assert merged == (4 if form != "lightning" else "bf16-mixed" if knobs else "32-true")


def test_hydra_composes_it_into_a_config_of_ones_own(tmp_path):
    hydra = pytest.importorskip("hydra", reason="Hydra is not installed")
    document = json.loads(exported("json", handed_over(amp_dtype="bf16")).text)
    (tmp_path / "autotune").mkdir()
    (tmp_path / "autotune" / "best.yaml").write_text(json.dumps(document))
    (tmp_path / "main.yaml").write_text("defaults: [autotune: best, _self_]\nseed: 1\n")
    with hydra.initialize_config_dir(str(tmp_path), version_base=None):
        found = hydra.compose("main", overrides=["autotune.config.micro_batch_size=2"])
    assert (found.seed, found.autotune.config.amp_dtype) == (1, "bf16")
    assert found.autotune.config.micro_batch_size == 2


@pytest.mark.parametrize("place", ["/local_nvme", "/my disk/$HOME 'in'"])
def test_a_bash_script_hands_the_words_to_argparse(place, tmp_path):
    """Words with blanks, quotes and dollars stay one word each, as ``eval`` of an array reads."""
    from dataclasses import replace

    handover = handed_over(steps=100, zero_stage=3, offload_target="nvme", amp_dtype="bf16")
    spec = replace(handover.study.spec, nvme_path=place)
    handover = replace(handover, study=replace(handover.study, spec=spec))
    path = written("shell", handover, tmp_path / "today.args")
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "launch.sh").write_text(LAUNCH)
    done = subprocess.run(
        ["bash", "launch.sh", str(path), sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "micro_batch_size": 4,
        "accumulation_steps": 2,
        "amp_dtype": "bf16",
        "checkpoint_interval": 0,
        "global_batch_size": 8,
        "learning_rate": 2e-5,
        "steps": 100,
        "nvme_path": place,
        "positional": [],
    }
