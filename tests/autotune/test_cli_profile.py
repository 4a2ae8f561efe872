"""``probe`` as it tells where time goes, and with ``--profile``, on real trials."""

import json
import os
from pathlib import Path

import pytest

from tests.autotune.commands import call_here, kept_helper

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "tests" / "assets" / "workloads" / "small.py"
FILES = {"trace.json", "memory.svg", "operators.txt", "profile.json"}


def probe(*arguments, workload="Small", cwd=None):
    reference = workload if ":" in workload else f"{SMALL}:{workload}"
    words = ["probe", "--local", "--workload", reference, *map(str, arguments)]
    return call_here(*words, folder=cwd)


@pytest.fixture(scope="module", autouse=True)
def _kept_helper():
    with kept_helper():
        yield


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    return folder, probe("--profile", "new/folder", cwd=folder)


def test_a_profile_goes_into_a_folder_that_is_made(profiled):
    folder, done = profiled
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (folder / "new" / "folder").iterdir()} == FILES


def test_a_terminal_shows_waits_and_operators_after_the_measurement(profiled):
    _, done = profiled
    parts = ["\nMemory\n", "\nTime\n", "\nWaits\n", "by time, per step\n", "by memory, per step\n"]
    places = [done.stdout.index(part) for part in parts]
    assert places == sorted(places)
    assert "host and device are one on a CPU" in done.stdout and "aten::" in done.stdout
    assert "https://ui.perfetto.dev" in done.stdout and "this process" in done.stdout


def test_a_folder_that_is_not_empty_is_kept_unless_told_otherwise(profiled):
    folder, _ = profiled
    mine = folder / "new" / "folder" / "notes.txt"
    mine.write_text("mine")
    refused = probe("--profile", mine.parent)
    assert refused.returncode == 2 and "is not empty; give another folder, or --force" in (
        refused.stderr
    )
    again = probe("--profile", mine.parent, "--force", "--output", "json")
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    assert mine.read_text() == "mine" and found["profiled"]["profile"]["num_steps"] == 3
    assert found["measurement"]["outcome"] == "completed" and found["is_data_bound"] is False


@pytest.mark.parametrize(
    ("arguments", "workload", "words"),
    [
        ((), "command:python3 train.py", "a command: workload is a program of its own"),
        (("--ray-address", "127.0.0.1:1"), "Small", "may run it on another; log in there"),
    ],
)
def test_what_cannot_be_profiled_is_refused_before_anything_runs(
    tmp_path, arguments, workload, words
):
    done = probe("--profile", tmp_path / "out", *arguments, workload=workload)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_file_in_place_of_a_folder_is_named(tmp_path, below):
    (tmp_path / "file").write_text("")
    done = probe("--profile", f"{tmp_path}/file{below}")
    assert done.returncode == 2 and f"--profile {tmp_path}/file{below}" in done.stderr


def test_a_folder_that_cannot_be_made_is_named():
    done = probe("--profile", "/proc/new")
    assert done.returncode == 2 and "--profile /proc/new: No such file" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    done = probe("--profile", tmp_path)
    assert done.returncode == 2 and "cannot be written; give another folder" in done.stderr


def test_a_config_that_does_not_fit_is_not_profiled(tmp_path):
    pins = ("--set", "micro_batch_size=64", "--global-batch", "64", "--memory-budget", "1MiB")
    done = probe("--profile", tmp_path / "out", *pins)
    assert done.returncode == 5 and "only a config that completes is profiled" in done.stderr
    assert "out of memory" in done.stdout


def test_a_profile_that_fails_leaves_the_measurement_standing(tmp_path):
    done = probe("--profile", tmp_path / "out", workload="RefusesTheProfiler")
    assert done.returncode == 5
    assert "samples per second" in done.stdout and "Waits" not in done.stdout
    assert "ended as out of memory: MemoryError: profiled" in done.stderr
    assert done.stderr.endswith("; the measurement stands\n")


def test_two_devices_are_profiled_together(tmp_path):
    done = probe("--profile", tmp_path / "out", "--trial-devices", "2")
    assert done.returncode == 0, done.stderr
    assert "batch 4x1" in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES


def test_a_probe_of_a_slow_loader_says_so_beside_the_rate_of_computing():
    done = probe(workload="SlowLoader")
    assert "data-bound: waits 0." in done.stdout
    assert "the rates above leave the wait out, so that configs compare" in done.stdout


def test_a_study_with_a_slow_loader_ends_with_a_warning(tmp_path):
    words = ["run", "--local", "--workload", f"{SMALL}:SlowLoader", "--trials", "2"]
    words += ["--set", "micro_batch_size=8", "--set", "checkpoint_interval=0"]
    words += ["--objectives", "cost,throughput", "--study", "slow"]
    address = f"sqlite:///{tmp_path}/s.db"
    done = call_here(*words, "--store", address)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("trial 0:")]
    assert ", data-bound: waits 0." in told[0]
    assert "of the front are data-bound, the worst waits 0." in done.stderr
