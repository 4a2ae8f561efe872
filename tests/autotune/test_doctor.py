import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest
from sqlalchemy import text

from autotune.checks import Check, Status
from autotune.cli import checking, run_command
from autotune.doctor import GIB, KEEP_LIMIT, RESET_PEAK, run_checks
from autotune.inspection import complaint_about, installed_version, lacks_header, this_machine
from autotune.settings import Settings
from autotune.store.engine import normalise_url, open_engine
from autotune.store.sql import SqlStore
from autotune.technique_checks import PACKAGES
from tests.autotune.inspected import answer, crash, fail_on, refuse, whole_machine
from trials.measurement import Failure, Measurement, Outcome
from trials.spec import Task


@pytest.fixture
def machine(tmp_path):
    return whole_machine(tmp_path)


@pytest.fixture
def settings(tmp_path):
    return Settings(store=f"sqlite:///{tmp_path}/studies.db")


@pytest.fixture
def look(machine, settings):
    """Check the machine with some answers changed, and return one check by name."""

    def look_at(name, *, wanted=None, **changed):
        checks = run_checks(wanted or settings, replace(machine, **changed))
        return next(check for check in checks if check.name == name)

    return look_at


def test_a_machine_with_everything_passes_every_check(machine, settings):
    checks = run_checks(settings, machine)
    assert {check.status for check in checks} == {Status.OK}


def test_whatever_is_lacking_has_a_remedy(machine, settings):
    lacking = replace(
        machine,
        run_trial=refuse,
        complaint_about=lambda code: "no",
        find_program=lambda name: None,
        lacks_header=lambda name: True,
        installed_version=lambda package: None,
        cores=lambda: (0,),
        free_memory_bytes=lambda: 0,
        free_disk_bytes=lambda folder: 0,
    )
    bad = [check for check in run_checks(settings, lacking) if check.status != Status.OK]
    assert len(bad) == 16
    assert all(check.found and check.remedy for check in bad)


def test_trials_need_linux_and_nothing_else_is_asked_without(machine, settings):
    checks = run_checks(settings, replace(machine, system="Darwin", cores=refuse))
    assert [(check.name, check.status) for check in checks] == [
        ("python", Status.OK),
        ("system", Status.FAILED),
    ]


def test_a_missing_torch_fails_with_the_words_of_its_import(look):
    missing = "ModuleNotFoundError: No module named 'torch'"
    torch = look(
        "torch",
        run_trial=lambda spec: crash("the helper process could not import"),
        complaint_about=fail_on("trials.preload", complaint=missing),
    )
    assert (torch.status, torch.found) == (Status.FAILED, missing)


def test_a_broken_trial_host_fails_and_the_other_checks_go_on(machine, settings):
    checks = run_checks(settings, replace(machine, run_trial=refuse))
    assert [c.name for c in checks if c.status == Status.FAILED] == ["torch"]
    assert checks[-1].name == "optuna-dashboard"


def test_without_a_gpu_trials_run_on_the_cpu(look):
    device = look("device")
    assert (device.status, device.found) == (Status.OK, "no GPU: trials run on cpu")


def test_a_gpu_is_named_with_its_memory(look):
    device = look("device", num_gpus=lambda: 2)
    assert device.found == "2 x NVIDIA H200, 141.0 GiB, CUDA 13.0"


def test_a_gpu_that_torch_cannot_use_fails(look):
    def answer_on_cpu(spec):
        return crash("no device 'cuda:0' here") if spec.is_cuda else answer(spec)

    device = look("device", num_gpus=lambda: 1, run_trial=answer_on_cpu)
    assert device.status == Status.FAILED
    assert "no device 'cuda:0' here" in device.found
    workload = look("workload", num_gpus=lambda: 1, run_trial=answer_on_cpu)
    assert workload.status == Status.OK


def test_a_gpu_that_is_not_asked_for_is_left_alone(look, settings):
    on_cpu = settings.model_copy(update={"device": "cpu"})
    device = look("device", num_gpus=lambda: 1, wanted=on_cpu)
    assert device.found == "1 GPU, left alone: trials run on cpu"


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (Outcome.CRASHED, "mine.py:Mine: loss() must return a tensor"),
        (
            Outcome.INVALID,
            "workload mine.py:Mine does not train: loss() must return a tensor",
        ),
    ],
)
def test_a_workload_that_does_not_train_fails_with_the_reason(look, settings, outcome, found):
    failure = Failure(reason="loss() must return a tensor", phase="train")

    def train_nothing(spec):
        is_mine = spec.workload == "mine.py:Mine"
        return Measurement(outcome=outcome, failure=failure) if is_mine else answer(spec)

    wanted = settings.model_copy(update={"workload": "mine.py:Mine"})
    workload = look("workload", run_trial=train_nothing, wanted=wanted)
    assert (workload.status, workload.found) == (Status.FAILED, found)
    assert workload.remedy


@pytest.mark.parametrize(
    ("num_gpus", "device", "expected"),
    [(0, None, "cpu"), (2, None, "cuda:0"), (2, "cpu", "cpu")],
)
def test_a_workload_is_described_where_its_trials_run(look, settings, num_gpus, device, expected):
    devices = []

    def note(spec):
        devices.extend([spec.device] if spec.task == Task.DESCRIBE else [])
        return answer(spec)

    wanted = settings.model_copy(update={"device": device})
    look("workload", run_trial=note, num_gpus=lambda: num_gpus, wanted=wanted)
    assert devices == [expected]


def test_a_driver_that_answers_is_named(look):
    assert look("nvml", driver_version=lambda: "580.10").found == "driver 580.10"


def test_a_gpu_whose_driver_does_not_answer_is_warned_of(look, tmp_path):
    (tmp_path / "nvidiactl").touch()
    nvml = look("nvml")
    assert nvml.status == Status.WARNING
    assert "does not answer" in nvml.found


def test_a_bitsandbytes_that_cannot_be_imported_fails(look):
    broken = look("bitsandbytes", complaint_about=fail_on("bitsandbytes", complaint="OSError"))
    assert broken.status == Status.FAILED
    assert broken.found == "1.2.3 cannot be imported: OSError"


@pytest.mark.parametrize("name", [package.name for package in PACKAGES])
def test_a_package_that_is_not_installed_is_warned_of(look, name):
    package = look(name, installed_version=lambda package: None)
    assert (package.status, package.found) == (Status.WARNING, "not installed")


def test_without_ray_there_is_still_the_local_way(look):
    assert "--local" in look("ray", complaint_about=fail_on("ray")).remedy


def test_without_the_headers_of_libaio_the_package_that_has_them_is_named(look):
    check = look("libaio", lacks_header=lambda name: name == "libaio.h")
    assert check.status == Status.WARNING
    assert "libaio-dev" in check.remedy and "doctor --build" in check.remedy


def test_a_header_is_looked_for_with_the_real_compiler():
    assert not lacks_header("stdio.h")
    assert lacks_header("no_such_header.h")


def test_a_compiler_by_another_name_will_do(look):
    clang = {"clang": "/opt/clang", "clang++": "/opt/clang++"}
    assert look("compilers", find_program=clang.get).found == "/opt/clang, /opt/clang++"


def test_a_missing_compiler_is_named(look):
    compilers = look("compilers", find_program={"gcc": "/usr/bin/gcc"}.get)
    assert compilers.status == Status.WARNING
    assert compilers.found == "/usr/bin/gcc, no c++"


def test_a_peak_that_cannot_be_reset_fails(look):
    assert look("peak memory", complaint_about=fail_on("clear_refs")).status == Status.FAILED


@pytest.mark.parametrize(("num_gpus", "status"), [(0, Status.FAILED), (1, Status.WARNING)])
def test_a_memory_limit_that_is_not_kept_fails_on_the_cpu_alone(look, num_gpus, status):
    limit = look("memory limit", complaint_about=fail_on("RLIMIT_DATA"), num_gpus=lambda: num_gpus)
    assert limit.status == status


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("cores", {"cores": lambda: (3,)}),
        ("memory", {"free_memory_bytes": lambda: GIB}),
        ("disk", {"free_disk_bytes": lambda folder: GIB // 2}),
        ("temporary files", {"free_disk_bytes": lambda folder: GIB // 2}),
    ],
)
def test_too_little_of_the_machine_is_warned_of(look, name, changed):
    assert look(name, **changed).status == Status.WARNING


def test_without_a_place_for_temporary_files_the_variable_is_named(look):
    def find_none():
        raise FileNotFoundError("no usable temporary directory found")

    temporary = look("temporary files", temporary_folder=find_none)
    assert temporary.status == Status.FAILED
    assert "TMPDIR" in temporary.remedy


def test_a_store_that_is_not_there_yet_is_not_made(look, tmp_path):
    assert look("store").found == f"none yet; the first study makes {tmp_path}/studies.db"
    assert not (tmp_path / "studies.db").exists()


def test_a_store_that_cannot_be_made_fails(look, tmp_path):
    (tmp_path / "file").touch()
    store = look("store", wanted=Settings(store=f"sqlite:///{tmp_path}/file/studies.db"))
    assert store.status == Status.FAILED
    assert "--store" in store.remedy


def test_a_store_that_is_current_is_reached(look, settings):
    SqlStore.open(settings.store).close()
    assert look("store").found == "reached, its schema is current, 0 studies"


def test_a_store_of_another_schema_fails_with_what_to_do(look, settings):
    SqlStore.open(settings.store).close()
    engine = open_engine(normalise_url(settings.store))
    with engine.begin() as connection:
        connection.execute(text("UPDATE autotune_alembic_version SET version_num = '9999'"))
    engine.dispose()
    store = look("store")
    assert store.status == Status.FAILED
    assert "update autotune" in store.remedy


def test_a_server_that_does_not_answer_fails_without_its_password(look):
    store = look("store", wanted=Settings(store="postgresql://me:secret@127.0.0.1:1/studies"))
    assert store.status == Status.FAILED
    assert "Connection refused" in store.found
    assert "secret" not in store.found + store.remedy


def test_a_complaint_is_the_last_line_of_what_was_said():
    assert complaint_about("raise ValueError('one\\ntwo')") == "two"


def test_a_process_that_dies_in_silence_is_complained_of():
    assert complaint_about("import os; os.abort()") == "exit code -6"


def test_code_that_works_is_not_complained_of():
    assert complaint_about("import this") == ""


@pytest.mark.parametrize("code", [RESET_PEAK, KEEP_LIMIT])
def test_this_machine_can_measure_memory(code):
    assert complaint_about(code) == ""


def test_a_package_is_looked_up_by_its_installed_name():
    assert installed_version("optuna-dashboard") is not None
    assert installed_version("no-such-package") is None


@pytest.mark.slow
def test_torch_and_the_workload_are_found_in_a_real_trial_process(settings):
    with this_machine() as machine:
        without_imports = replace(machine, complaint_about=lambda code: "")
        checks = {check.name: check for check in run_checks(settings, without_imports)}
    assert checks["torch"].status == Status.OK
    assert checks["workload"].found.startswith("byte-gpt: ")


@pytest.mark.slow
def test_the_command_exits_as_for_a_workload_that_cannot_train(tmp_path):
    flags = ["--workload", "nowhere.py:X", "--store", f"{tmp_path}/s.db"]
    command = [sys.executable, "-m", "autotune.cli", "doctor", *flags]
    done = subprocess.run(
        [*command, "--output", "json"], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 2
    failed = [check for check in json.loads(done.stdout) if check["status"] == "failed"]
    assert [(check["name"], check["is_users_fault"]) for check in failed] == [("workload", True)]


def show(monkeypatch, checks):
    monkeypatch.setattr(checking, "this_machine", nullcontext)
    monkeypatch.setattr(checking, "run_checks", lambda settings, machine: checks)
    return run_command(["doctor"])


def test_a_machine_at_fault_outweighs_a_workload_at_fault(monkeypatch, capsys):
    theirs = Check(name="workload", status=Status.FAILED, found="no", is_users_fault=True)
    ours = Check(name="torch", status=Status.FAILED, found="no")
    assert show(monkeypatch, [theirs]) == 2
    assert show(monkeypatch, [theirs, ours]) == 4


def test_the_table_of_checks_can_be_read_in_a_pipe(monkeypatch, capsys):
    long = Check(name="system", status=Status.OK, found="word " * 40, remedy="do this " * 30)
    assert show(monkeypatch, [long]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100
