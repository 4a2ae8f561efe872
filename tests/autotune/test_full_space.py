"""``autotune run --space full`` on a model's config file, with state that really leaves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TINY = Path(__file__).parents[1] / "assets" / "workloads" / "tiny_llama.json"
PINS = {
    "zero_stage": 3,
    "amp_dtype": "fp32",
    "optimizer_bits": 32,
    "micro_batch_size": 8,
    "checkpoint_interval": 1,
}
"""What is left of the space: the three places for state. All of it is tried."""


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Run all that is left of the full space on two slots of Ray; return how to call it again."""
    folder = tmp_path_factory.mktemp("full")
    (folder / "disk").mkdir()
    store = {"AUTOTUNE_STORE": f"sqlite:///{folder}/studies.db"}

    def call(*arguments):
        command = [sys.executable, "-m", "autotune.cli", *map(str, arguments)]
        done = subprocess.run(
            command,
            env={**os.environ, **store},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    pins = [word for knob, value in PINS.items() for word in ("--set", f"{knob}={value}")]
    workload = ("--workload", f"huggingface:{TINY}?sequence=16", "--objectives", "cost,throughput")
    disk = ("--nvme-path", folder / "disk")
    run = call("run", "--space", "full", *workload, *disk, *pins, "--trials", "3", "--no-confirm")
    assert list((folder / "disk").iterdir()) == []
    return call, run


def completed(call):
    trials = json.loads(call("trials", "tiny_llama-1", "--output", "json").stdout)
    return [trial for trial in trials if trial["outcome"] == "completed" and trial["measured"]]


@pytest.mark.slow
@pytest.mark.ray
def test_every_place_for_state_is_measured(full):
    found = sorted(trial["config"]["offload_target"] for trial in completed(full[0]))
    assert found == ["cpu", "none", "nvme"]


@pytest.mark.slow
@pytest.mark.ray
def test_state_on_disk_is_no_longer_in_memory(full):
    on_disk, in_memory = (
        next(t for t in completed(full[0]) if t["config"]["offload_target"] == place)
        for place in ("nvme", "none")
    )
    moments = 8 * 918_144
    assert on_disk["memory_places"]["optimizer_state"]["disk"] >= moments
    assert in_memory["memory_places"]["optimizer_state"]["device"] >= moments
    assert on_disk["memory_places"]["optimizer_state"]["device"] < moments / 100


@pytest.mark.slow
@pytest.mark.ray
def test_the_space_says_how_much_of_it_is_tried(full):
    told = full[1].stderr
    assert "space full: 3 configs" in told
    reasons = told.partition("not tried: ")[2].splitlines()
    assert reasons[0].endswith("each counted by the first reason found")
    counts = [int(line.split()[0].replace(",", "")) for line in reasons if line.startswith("  ")]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == int(reasons[0].split()[0].replace(",", ""))
