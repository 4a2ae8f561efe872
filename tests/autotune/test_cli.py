"""The commands, as a person or a script calls them, on real trials where they run any."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest

from search_spaces import TrainingConfig
from tests.autotune.commands import call_apart, call_here, kept_helper

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "tests" / "assets" / "workloads" / "small.py"
AUTOTUNE = [sys.executable, "-m", "autotune.cli"]
QUICK = ["--local", "--workload", f"{SMALL}:Small", "--space", "small", "--trials", "3", "-q"]


@pytest.fixture(scope="module", autouse=True)
def _kept_helper():
    with kept_helper():
        yield


def call(*arguments, store):
    return call_here(*arguments, AUTOTUNE_STORE=f"sqlite:///{store}")


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
    assert best.pop("recommendation").startswith("the cheapest of")
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
    assert first["config"] == config and first["measured"] and first["baseline"]
    assert "(baseline)" in call("trials", "next", store=store).stdout
    told = call("best", "next", store=store).stdout
    assert re.search(r"^(Against the baseline|The baseline) \(trial 0\)", told, re.MULTILINE)


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


def test_an_export_loads_nothing_that_it_does_not_need(store):
    code = (
        "import sys; from autotune.cli import run_command; "
        f"assert run_command(['export', 'mine', '--store', 'sqlite:///{store}']) == 0; "
        "sys.exit(str({'torch', 'ray', 'optuna', 'alembic', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr.splitlines()[-1] == "set()"


def test_a_study_that_exists_is_not_begun_again(store):
    done = call("run", *QUICK, "--study", "mine", store=store)
    assert done.returncode == 3
    assert done.stderr.startswith("error: study 'mine' exists; autotune resume mine")


def test_a_finished_study_goes_on_under_a_larger_budget(store):
    done = call("resume", "mine", "--trials", "4", "--local", "-q", store=store)
    assert done.returncode == 0, done.stderr
    sources = [trial["source"] for trial in document("trials", "mine", store=store)]
    assert sources.count("run") == 4  # what another study measured is answered beside them
    spent = call("resume", "mine", "--local", store=store)
    assert spent.returncode == 0, spent.stderr
    assert "nothing was left to run; to go on, give --trials N for more than 4" in spent.stderr
    assert "; this command took" in spent.stderr and "$0.0000 " not in spent.stderr


def test_trials_on_two_devices_count_both(tmp_path):
    flags = ("--trial-devices", "2", "--global-batch", "8", "--output", "json")
    done = call("run", *QUICK, *flags, "--study", "two", store=tmp_path / "s.db")
    assert done.returncode == 0, done.stderr
    for trial in json.loads(done.stdout):
        knobs = trial["config"]
        assert knobs["micro_batch_size"] * knobs["accumulation_steps"] * 2 == 8


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
    assert "fp32, no ckpt, batch 2x4, 32-bit: completed" in done.stdout
    assert "tokens per second" in done.stdout and "units" not in done.stdout
    assert not path.exists()


def test_state_beyond_the_hosts_memory_is_refused_before_anything_runs(tmp_path):
    facts = {
        "num_parameters": 10**12,
        "unit": "tokens",
        "global_batch_size": 1,
        "quality_name": "loss",
        "quality_direction": "minimize",
        "quality_samples": 8,
        "knobs": ["zero_stage", "offload_target"],
    }
    program = tmp_path / "large.py"
    program.write_text(
        "import json, os\nfile = open(os.environ['AUTOTUNE_REPORT_FILE'], 'w')\n"
        f"print(json.dumps(dict(facts={facts!r})), file=file)\n"
    )
    flags = ("--set", "zero_stage=1", "--set", "offload_target=cpu")
    workload = f"command:{sys.executable} {program}"
    done = call("probe", "--local", "--workload", workload, *flags, store=tmp_path / "none.db")
    assert done.returncode == 2, done.stderr
    assert "keeps at least 11175.9 GiB of optimizer state in host memory" in done.stderr


def test_the_memory_of_a_probe_adds_up_to_its_peak_as_its_note_says(tmp_path):
    pins = ("--set", "micro_batch_size=4")
    done = call("probe", "--local", *pins, store=tmp_path / "s.db")
    rows = dict(
        re.findall(
            r"^(\w[\w ]*?)(?: \(.*\))? {2,}([\d.,]+) +(?:\w+ ?\w*)? *$", done.stdout, re.MULTILINE
        )
    )
    sizes = {name: float(size.replace(",", "")) for name, size in rows.items()}
    forward = sizes["activations"] + sizes["gradients"]  # kept by the first of two micro-batches
    expected = sizes["parameters and buffers"] + sizes["optimizer state"] + forward
    expected += sizes["everything else at the peak"]
    assert sizes["peak on the device"] == pytest.approx(expected, abs=0.3)
    assert "activations and gradients, or both when accumulating" in done.stdout


def test_a_probe_keeps_the_global_batch_or_says_which_micro_batches_do(tmp_path):
    done = call("probe", "--local", "--set", "micro_batch_size=3", store=tmp_path / "s.db")
    assert done.returncode == 2
    assert "does not divide the global batch of 8; the nearest that do: 2 and 4" in done.stderr


def test_a_probe_that_does_not_fit_says_so_with_its_exit_code(tmp_path):
    pins = ("--set", "micro_batch_size=64", "--global-batch", "64", "--memory-budget", "16MiB")
    done = call("probe", "--local", *pins, store=tmp_path / "s.db")
    assert done.returncode == 5
    assert "Traceback" not in done.stdout + done.stderr
    assert re.search(r"^out of memory in [\w-]+, needs .* 16 MiB", done.stdout, re.MULTILINE)
    assert "; give --memory-budget" in done.stdout and "checkpoint_interval=1" in done.stdout
    assert "held when it ended" in done.stdout and "peak on the device" not in done.stdout


def test_fewer_activations_are_no_advice_where_weights_and_state_alone_are_too_much(tmp_path):
    done = call("probe", "--local", "--memory-budget", "8MiB", store=tmp_path / "s.db")
    assert done.returncode == 5
    assert ", --set optimizer_bits=8 or a smaller model [" in done.stdout
    assert "micro_batch_size" not in done.stdout and "checkpoint_interval" not in done.stdout


def test_a_pair_that_no_machine_can_run_is_refused_before_workers_start(tmp_path):
    pins = ("--set", "zero_stage=2", "--set", "amp_dtype=fp16")
    done = call("probe", *pins, "--ray-address", "127.0.0.1:1", store=tmp_path / "s.db")
    assert done.returncode == 2 and "fp16 under ZeRO" in done.stderr


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("RaisesInBuild", "does not build: ZeroDivisionError: no width given"),
        ("NoBlocks", "--set checkpoint_interval=0"),
        ("NotAWorkload", "must derive from trials.workload.Workload"),
        ("LossIsNan", "the loss is nan"),
        ("LossIsAFloat", "LossIsAFloat does not train: loss() must return one floating-point"),
        ("RaisesInEvaluate", "RaisesInEvaluate does not evaluate: KeyError: held out"),
        ("RaisesOnceTrained", "trains, and then does not evaluate: KeyError: held out"),
    ],
)
def test_a_broken_workload_is_one_message(tmp_path, workload, words):
    flags = ("--local", "--workload", f"{SMALL}:{workload}", "--trials", "3", "-q")
    done = call("run", *flags, store=tmp_path / "s.db")
    assert done.returncode == (5 if workload == "LossIsNan" else 2)
    assert done.stderr.count(words) == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "--space", "defualt"], 2, "did you mean 'default'"),
        (["run", "--set", "micro_batch=3"], 2, "did you mean 'micro_batch_size'"),
        (["run", "--set", "micro_batch_size"], 2, "write KNOB=VALUE"),
        (["run", "--memory-budget", "much"], 2, "write it like 600MiB"),
        (["run", "--memory-budget", "10"], 2, "give a unit, like 8GiB"),
        (["run", "--sampler", "magic"], 2, "no sampler 'magic'"),
        (["run", "--baseline", "gone.toml"], 2, "no baseline file 'gone.toml'; check the path"),
        (["run", "--workload", "byte-gpt:3m"], 2, "its sizes are 1m, 5m, 25m, 85m, 350m"),
        (["probe", "--workload", "gone.py:Mine"], 2, "no workload file 'gone.py'"),
        (["run", "--device", "cuda", "--local"], 4, "there is no visible GPU"),
        (["run", "--ray-address", "127.0.0.1:1"], 4, "nothing answers at"),
        (["front", "gone"], 4, "no store at"),
        (["resume", "gone", "--local"], 4, "no store at"),
        (["delete", "gone", "--yes"], 4, "no store at"),
    ],
)
def test_a_mistake_is_one_line_with_its_exit_code(tmp_path, arguments, code, words):
    done = call(*arguments, store=tmp_path / "s.db")
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    told = [line for line in lines if not line.startswith("starting workers")]
    assert len(told) == 1 and words in told[0] and done.stdout == ""


def test_a_password_appears_in_no_output(tmp_path):
    url = "postgresql://u:S3cret@127.0.0.1:1/studies"
    done = call("studies", "--store", url, store=tmp_path / "s.db")
    assert done.returncode == 4 and "S3cret" not in done.stdout + done.stderr


def test_when_nothing_fits_the_nearest_config_is_named_and_the_advice_helps(tmp_path):
    flags = ("--local", "--trials", "4", "-q", "--memory-budget")
    done = call("run", *flags, "3MiB", store=tmp_path / "s.db")
    assert done.returncode == 5
    assert "nearest to fitting: trial" in done.stderr
    advised = re.search(r"begin another study with --memory-budget (\S+) ", done.stderr)[1]
    again = call("run", *flags, advised, store=tmp_path / "s.db")
    assert again.returncode == 0, again.stderr


def test_a_config_that_does_not_fit_again_is_not_recommended(tmp_path):
    pins = [f"--set={pin}" for pin in ("amp_dtype=fp32", "optimizer_bits=32")]
    flags = ("--local", "--workload", f"{SMALL}:GrowsWhenRunAgain", *pins, "--study", "again")
    bounds = ("--set=checkpoint_interval=0", "--memory-budget", "16MiB", "--sampler", "grid")
    path, grows = tmp_path / "s.db", {"GROWS_FOLDER": str(tmp_path)}
    stored = {"AUTOTUNE_STORE": f"sqlite:///{path}"}
    done = call_apart("run", *flags, *bounds, "--slots", "1", **stored, **grows)
    assert done.returncode == 0, done.stderr
    (refuted,) = re.findall(
        r"^Trial (\d+) is not recommended: run a second time, out of", done.stdout, re.M
    )
    (chosen,) = re.findall(r"^Best measured: trial (\d+), ", done.stdout, re.M)
    assert re.search(r"^Confirmed by a second run: peak .* samples/s[.;]", done.stdout, re.M)
    trials = {t["trial"]: t for t in document("trials", "again", store=path)}
    assert len(trials) == 4
    assert (trials[int(refuted)]["confirmed"], trials[int(chosen)]["confirmed"]) == (False, True)
    best = document("best", "again", store=path)
    assert (best["trial"], best["confirmed"]) == (int(chosen), True)
    assert "a second run: out of memory" in call("trials", "again", store=path).stdout


def test_when_every_trial_fails_for_one_reason_the_reason_comes_first(tmp_path):
    program = tmp_path / "broken.py"
    program.write_text(
        "import json, os\nfile = open(os.environ['AUTOTUNE_REPORT_FILE'], 'w')\n"
        "facts = dict(num_parameters=64, unit='samples', global_batch_size=8,\n"
        "    quality_name='loss', quality_direction='minimize', quality_samples=8)\n"
        "print(json.dumps(dict(facts=facts)), file=file, flush=True)\n"
        "if json.loads(os.environ['AUTOTUNE_CONFIG'])['task'] != 'describe':\n"
        "    raise ValueError('micro-batch 1 against 8 of the trainer')\n"
    )
    workload = f"command:{sys.executable} {program}"
    pins = ("--set", "optimizer_bits=32", "--set", "checkpoint_interval=0")
    done = call("run", "--local", "--workload", workload, *pins, "-q", store=tmp_path / "s.db")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: 3 of 3 trials of command:")
    assert "ValueError: micro-batch 1 against 8 of the trainer" in done.stderr.partition("\n")[0]


def test_deleting_a_study_keeps_its_measurements(store):
    assert call("delete", "mine", "--yes", store=store).returncode == 0
    again = call("run", *QUICK, "--study", "again", "-v", store=store)
    assert again.returncode == 0
    assert any(trial["measured"] for trial in document("trials", "again", store=store))
    assert call("front", "mine", store=store).returncode == 3


def test_migrate_makes_a_new_store(tmp_path):
    done = call("migrate", store=tmp_path / "new.db")
    assert done.returncode == 0 and "none ->" in done.stderr


def test_a_study_that_is_not_there_is_told_with_those_that_are(store):
    for command in ("front", "delete"):
        done = call(command, "gone", store=store)
        assert done.returncode == 3 and "no study 'gone'" in done.stderr


def test_the_version_is_that_of_the_package_and_needs_no_library():
    code = (
        "import sys; from autotune.cli import run_command; "
        "assert run_command(['--version']) == 0; "
        "assert not {'torch', 'ray', 'optuna', 'sqlalchemy', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert done.stdout == f"autotune {project['version']}\n"


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


PRESSES = {
    "once": (["SIGINT"], "trials under way are finished"),
    "twice": (["SIGINT", "SIGINT"], "ended before its result; resume runs it again as trial"),
    "terminated": (["SIGTERM"], "ended before its result; resume runs it again as trial"),
}


@pytest.mark.parametrize(("signals", "words"), PRESSES.values(), ids=PRESSES)
def test_a_signal_stops_and_says_how_to_go_on(tmp_path, signals, words):
    path = tmp_path / "s.db"
    slow = ("--workload", f"{SMALL}:Slow", "--set", "micro_batch_size=8", "--trials", "20")
    no_quality = ("--objectives", "cost,throughput")
    flags = ("--local", *slow, *no_quality, "--study", "long")
    with started("run", *flags, store=path) as program:
        read_to("trial ", program)
        for name in signals:
            program.send_signal(signal.Signals[name])
            time.sleep(0.5)
        rest = program.stderr.read()
        assert program.wait(60) == 130
    assert words in rest and "cancelled" not in rest
    assert "go on with: autotune resume long" in rest
    assert "completed" in {t["outcome"] for t in document("trials", "long", store=path)}


def test_a_signal_before_the_first_trial_is_one_line(tmp_path):
    with started("run", "--local", store=tmp_path / "s.db") as program:
        read_to("starting workers", program)
        time.sleep(0.3)
        program.send_signal(signal.SIGINT)
        assert program.stderr.readline() == "stopping...\n"
        assert program.stderr.read() == "stopped before a trial could run\n"
        assert program.wait(60) == 130


PRESS_ON_IMPORT = """
import os, signal, sys
from autotune.cli import run_command

class Press:
    def find_spec(self, name, *rest):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press())
sys.exit(run_command(sys.argv[2:]))
"""


@pytest.mark.parametrize("arguments", [["run"], ["resume", "mine"], ["probe"]], ids=str)
def test_a_signal_while_libraries_load_is_answered_too(arguments):
    done = call_pressed("autotune.cli.running", *arguments)
    assert (done.returncode, done.stderr) == (130, "stopping...\n")


@pytest.mark.ray
@pytest.mark.parametrize("module", ["ray._raylet", "ray.actor"])
def test_a_signal_while_ray_loads_leaves_nothing_behind(module, tmp_path):
    done = call_pressed(module, "run", "--store", str(tmp_path / "s.db"), TMPDIR=str(tmp_path))
    told = done.stderr.splitlines()[1:]
    assert (done.returncode, told) == (130, ["stopping...", "stopped before a trial could run"])
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def call_pressed(module, *arguments, **environment):
    """Run a command that gets SIGINT when it begins to import a module."""
    return subprocess.run(
        [sys.executable, "-c", PRESS_ON_IMPORT, module, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@contextmanager
def started(*arguments, store):
    program = subprocess.Popen(
        [*AUTOTUNE, *arguments],
        env={**os.environ, "AUTOTUNE_STORE": f"sqlite:///{store}"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield program
    finally:
        program.kill()
        program.wait()
        program.stderr.close()


def read_to(start, program):
    for line in program.stderr:
        if line.startswith(start):
            return
    raise AssertionError(f"no line starts with {start!r}")
