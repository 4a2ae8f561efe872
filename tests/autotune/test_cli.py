"""The commands, as a person or a script calls them, on real trials where they run any."""

import csv
import io
import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from search_spaces import TrainingConfig

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "tests" / "assets" / "workloads" / "small.py"
AUTOTUNE = [sys.executable, "-m", "autotune.cli"]
QUICK = ["--local", "--workload", f"{SMALL}:Small", "--space", "small", "--trials", "3", "-q"]


def call(*arguments, store, **environment):
    import os

    return subprocess.run(
        [*AUTOTUNE, *map(str, arguments)],
        env={**os.environ, "AUTOTUNE_STORE": f"sqlite:///{store}", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with one study of three real trials, run by the command."""
    path = tmp_path_factory.mktemp("cli") / "studies.db"
    done = call("run", *QUICK, "--study", "mine", "--output", "json", store=path)
    assert done.returncode == 0, done.stderr
    return path


def document(*arguments, store):
    done = call(*arguments, "--output", "json", store=store)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_trials_front_and_best_agree(store):
    trials = document("trials", "mine", store=store)
    front = document("front", "mine", store=store)
    best = document("best", "mine", store=store)
    assert len(trials) == 3 and all(trial["measured"] for trial in trials)
    assert [t for t in trials if t in front] and best in front
    assert best["throughput_samples_per_second"] > 0 and best["quality"]["name"] == "accuracy"


def test_csv_has_one_row_per_trial_and_a_column_per_knob(store):
    done = call("trials", "mine", "--output", "csv", store=store)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 3
    assert {f"config.{knob}" for knob in TrainingConfig().as_dict()} <= rows[0].keys()


def test_tables_are_for_people(store):
    for command in ("trials", "front", "best"):
        done = call(command, "mine", store=store)
        assert done.returncode == 0 and "batch" in done.stdout and done.stderr == ""
    assert "mine" in call("studies", store=store).stdout


def test_an_exported_config_can_be_the_baseline_of_the_next_study(store, tmp_path):
    exported = tmp_path / "best.toml"
    done = call("export", "mine", "--format", "toml", "--to", exported, store=store)
    assert done.returncode == 0, done.stderr
    config = tomllib.loads(exported.read_text())["config"]
    again = call("run", *QUICK, "--study", "next", "--baseline", exported, store=store)
    assert again.returncode == 0, again.stderr
    first = document("trials", "next", store=store)[0]
    assert first["config"] == config and first["measured"]


def test_a_baseline_of_another_global_batch_is_refused(tmp_path):
    baseline = tmp_path / "mine.toml"
    baseline.write_text("[config]\nmicro_batch_size = 4\naccumulation_steps = 4\n")
    done = call("run", *QUICK, "--baseline", baseline, store=tmp_path / "s.db")
    assert done.returncode == 2, done.stderr
    assert "it makes a global batch of 16" in done.stderr


def test_export_goes_to_standard_output_and_keeps_the_batch_identity(store):
    found = json.loads(call("export", "mine", "--format", "json", store=store).stdout)
    batch = found["batch"]
    product = batch["micro_batch_size"] * batch["accumulation_steps"] * batch["num_devices"]
    assert product == batch["global_batch_size"] == 8


def test_a_study_that_exists_is_not_begun_again(store):
    done = call("run", *QUICK, "--study", "mine", store=store)
    assert done.returncode == 3
    assert done.stderr.startswith("error: study 'mine' exists; autotune resume mine")


def test_a_finished_study_goes_on_under_a_larger_budget(store):
    done = call("resume", "mine", "--trials", "4", "--local", "-q", store=store)
    assert done.returncode == 0, done.stderr
    assert len(document("trials", "mine", store=store)) == 4


def test_a_probe_shows_memory_and_time_and_writes_nothing(tmp_path):
    path = tmp_path / "none.db"
    done = call(
        "probe",
        "--local",
        "--workload",
        f"{SMALL}:Small",
        "--set",
        "micro_batch_size=2",
        store=path,
    )
    assert done.returncode == 0, done.stderr
    assert "optimizer state" in done.stdout and "samples per second" in done.stdout
    assert not path.exists()


def test_a_probe_that_does_not_fit_says_so_with_its_exit_code(tmp_path):
    pins = ("--set", "micro_batch_size=64", "--memory-budget", "8MiB")
    done = call("probe", "--local", *pins, store=tmp_path / "s.db")
    assert done.returncode == 5
    assert "out of memory" in done.stdout and "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("RaisesInBuild", "does not build: ZeroDivisionError: no width given"),
        ("NoBlocks", "--set checkpoint_interval=0"),
        ("NotAWorkload", "must derive from trials.workload.Workload"),
        ("LossIsNan", "the loss is nan"),
    ],
)
def test_a_broken_workload_is_one_message(tmp_path, workload, words):
    flags = ("--local", "--workload", f"{SMALL}:{workload}", "--trials", "3", "-q")
    done = call("run", *flags, store=tmp_path / "s.db")
    assert done.returncode in (2, 5)
    assert words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "--space", "defualt"], 2, "did you mean 'default'"),
        (["run", "--set", "micro_batch=3"], 2, "did you mean 'micro_batch_size'"),
        (["run", "--set", "micro_batch_size"], 2, "write KNOB=VALUE"),
        (["run", "--memory-budget", "much"], 2, "write it like 600MiB"),
        (["run", "--sampler", "magic"], 2, "no sampler 'magic'"),
        (["run", "--baseline", "gone.toml"], 2, "gone.toml"),
        (["run", "--device", "cuda", "--local"], 4, "CUDA"),
        (["run", "--ray-address", "127.0.0.1:1"], 4, "nothing answers at"),
        (["front", "gone"], 3, "no study 'gone'"),
        (["resume", "gone", "--local"], 3, "no study 'gone'"),
        (["delete", "gone", "--yes"], 3, "no study 'gone'"),
    ],
)
def test_a_mistake_is_one_line_with_its_exit_code(tmp_path, arguments, code, words):
    done = call(*arguments, store=tmp_path / "s.db")
    assert done.returncode == code, done.stderr
    assert words in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


def test_a_password_appears_in_no_output(tmp_path):
    url = "postgresql://u:S3cret@127.0.0.1:1/studies"
    done = call("studies", "--store", url, store=tmp_path / "s.db")
    assert done.returncode == 4 and "S3cret" not in done.stdout + done.stderr


def test_when_nothing_fits_the_nearest_config_is_named(tmp_path):
    flags = ("--local", "--memory-budget", "3MiB", "--trials", "4", "-q")
    done = call("run", *flags, store=tmp_path / "s.db")
    assert done.returncode == 5
    assert "nearest to fitting: trial" in done.stderr and "--memory-budget" in done.stderr


def test_deleting_a_study_keeps_its_measurements(store):
    assert call("delete", "mine", "--yes", store=store).returncode == 0
    again = call("run", *QUICK, "--study", "again", "-v", store=store)
    assert again.returncode == 0
    assert any(trial["measured"] for trial in document("trials", "again", store=store))
    assert call("front", "mine", store=store).returncode == 3


def test_migrate_makes_a_new_store(tmp_path):
    done = call("migrate", store=tmp_path / "new.db")
    assert done.returncode == 0 and "none ->" in done.stderr


def test_help_is_quick_and_loads_neither_torch_nor_ray():
    code = (
        "import sys; from autotune.cli import run_command; "
        "assert run_command(['--help']) == 0; "
        "assert not {'torch', 'ray', 'optuna', 'sqlalchemy', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Begin a study" in done.stdout


@pytest.mark.parametrize("is_twice", [False, True], ids=["once", "twice"])
def test_ctrl_c_stops_and_says_how_to_go_on(tmp_path, is_twice):
    import os
    import signal

    path = tmp_path / "s.db"
    program = subprocess.Popen(
        [*AUTOTUNE, "run", "--local", "--trials", "200", "--study", "long"],
        env={**os.environ, "AUTOTUNE_STORE": f"sqlite:///{path}"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    lines = []
    for line in program.stderr:
        lines.append(line)
        if line.startswith("trial "):
            program.send_signal(signal.SIGINT)
            if is_twice:
                time.sleep(0.5)
                program.send_signal(signal.SIGINT)
            break
    rest = program.stderr.read()
    program.stderr.close()
    assert program.wait(60) == 130
    assert "go on with: autotune resume long" in rest
    states = {trial["outcome"] for trial in document("trials", "long", store=path)}
    assert "completed" in states
