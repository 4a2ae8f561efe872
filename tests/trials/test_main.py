import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_spec(text):
    return subprocess.run(
        [sys.executable, "-m", "trials", "-"],
        input=text,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )


def test_a_spec_on_standard_input_is_run_and_its_measurement_printed():
    spec = {"workload": "byte-gpt", "timing": {"min_steps": 2, "max_steps": 2}}
    done = run_spec(json.dumps(spec))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outcome"] == "completed"
    assert found["memory"]["peak_device_bytes"] > 0


def test_a_bad_spec_is_one_line_and_exit_two():
    done = run_spec('{"workload": "byte-gpt", "sed": 1}')
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown key 'sed'")
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_running_a_trial_loads_nothing_of_the_service():
    code = (
        "import sys, trials.runner, trials.host, trials.__main__; "
        "assert not {'optuna', 'ray', 'sqlalchemy', 'autotune'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_watching_trials_does_not_load_torch():
    code = "import sys, trials.host; assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
