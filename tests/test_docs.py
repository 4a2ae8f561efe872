"""The README is held to the program: every command in it runs, every command is in it."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.commands import app
from search_spaces import OffloadTarget
from tests.autotune.commands import call_here, kept_helper
from trials.zero import missing_offload, missing_zero

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
WORKLOADS = ROOT / "tests" / "assets" / "workloads"
QUICK = ["--local", "-q"]
# Run elsewhere: installation by .ci/run, the test command by whoever reads this, a server by
# test_dashboard, benchmarks by hand, PostgreSQL by test_store_postgres.
ELSEWHERE = ("python3 -m venv", "pip install", "python -m tests.benchmarks", "postgresql://")


def shell_lines():
    lines = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
    return [line for line in lines if line and not any(part in line for part in ELSEWHERE)]


def block(kind, mark):
    return next(text for found, text in BLOCKS if found == kind and mark in text)


def run(line, folder, cwd=None):
    first, *words = shlex.split(line)
    store = {"AUTOTUNE_STORE": f"sqlite:///{folder}/studies.db"}
    if first == "autotune":
        words += QUICK if words[0] == "run" else []
        return call_here(*words, folder=cwd or folder, **store)
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd or folder,
        env={**os.environ, **store, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module", autouse=True)
def _kept_helper():
    with kept_helper():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the README has its reader write, and a first study."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("space.toml", "prices.toml"):
        (folder / name).write_text(block("toml", f"# {name}"))
    for name in ("mine.py", "train.py"):
        (folder / name).write_text(block("python", f"# {name}"))
    (folder / "bert.json").write_text(block("json", '"bert"'))
    spec = re.search(r"`(\{\"workload\".*?\}\})`", README)[1]
    on_cpu = {**json.loads(spec), "device": "cpu", "workload": "byte-gpt"}
    (folder / "spec.json").write_text(json.dumps(on_cpu))
    first = run("autotune run --study byte-gpt-1 --space small --trials 3", folder)
    assert first.returncode == 0, first.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("line", shell_lines())
def test_every_command_of_the_readme_runs(folder, line):
    missing = missing_offload(OffloadTarget.NVME) or missing_zero()
    if "nvme" in line and missing is not None:  # compiling takes minutes
        (pytest.fail if "CI" in os.environ else pytest.skip)(missing)
    done = run(line, folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_python_example_runs(folder):
    code = block("python", "run_study(").replace("listen=print", "listen=lambda event: None")
    code = f"if __name__ == '__main__':\n{re.sub('^', '    ', code, flags=re.MULTILINE)}"
    (folder / "example.py").write_text(code)
    done = run("python example.py", folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_sql_example_answers(folder):
    import sqlite3

    query = block("sql", "autotune_front")
    connection = sqlite3.connect(folder / "studies.db")
    assert connection.execute(query).fetchall()
    connection.close()


@pytest.mark.slow
def test_a_study_of_a_program_goes_on_from_another_folder(folder, tmp_path):
    line = next(line for line in shell_lines() if "command:" in line)
    first = run(line.replace("program-1 --trials 4", "program-2 --trials 1"), folder)
    assert first.returncode == 0, first.stderr
    done = run("autotune resume program-2 --trials 2 --local -q", folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_program_of_the_readme_is_the_tested_one():
    assert block("python", "# train.py") == (WORKLOADS / "train.py").read_text()


def test_every_command_is_in_the_readme_and_has_help():
    for command in app.registered_commands:
        assert f"`autotune {command.callback.__name__}" in README
        assert command.callback.__doc__


def test_the_readme_knows_no_command_that_is_not_there():
    known = {command.callback.__name__ for command in app.registered_commands}
    assert set(re.findall(r"`?autotune ([a-z]+)", block("bash", "space.toml"))) <= known
    assert set(re.findall(r"\| `autotune ([a-z]+)", README)) == known


def test_the_test_command_is_found_by_ci():
    command = re.search(r"<!-- test command -->\n```bash\n(.+)\n```", README)[1]
    assert command.startswith("python3 -m venv .venv && ") and command.endswith("pytest")
