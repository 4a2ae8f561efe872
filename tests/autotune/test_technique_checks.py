"""What the doctor says of a machine that lacks what a technique needs."""

import importlib
import importlib.util
import os
from dataclasses import replace

import pytest

from autotune.checks import Status
from autotune.doctor import run_checks
from autotune.settings import Settings
from autotune.technique_checks import LEFT_OUT
from search_spaces import TECHNIQUES, OffloadTarget, TrainingConfig
from tests.autotune.inspected import GPU, answer, fail_on, whole_machine
from tests.factories import GIB, make_environment, make_facts
from trials import zero
from trials.adapters import missing_lora
from trials.low_bit import missing_4bit, missing_8bit
from trials.measurement import Measurement, Outcome
from trials.spec import Task


@pytest.fixture
def look(tmp_path):
    """Check a machine with some answers changed, and return one check by name."""
    settings = Settings(store=f"sqlite:///{tmp_path}/studies.db")

    def look_at(name, **changed):
        checks = run_checks(settings, replace(whole_machine(tmp_path), **changed))
        return next(check for check in checks if check.name == name)

    return look_at


def lacking(reasons):
    """Answer as a machine that lacks techniques."""

    def answer_without(spec):
        found = answer(spec)
        if found.environment is None:
            return found
        missing = tuple(reasons.items())
        return replace(found, environment=replace(found.environment, missing=missing))

    return answer_without


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_what_is_left_out_without_a_technique_is_what_uses_it(technique):
    for words, knobs in LEFT_OUT[technique]:
        assert TECHNIQUES[technique](TrainingConfig().with_knobs(knobs)), words
        assert words.partition("=")[0].partition(" ")[0] in knobs


@pytest.mark.parametrize(
    ("technique", "why", "left_out"),
    [
        ("8-bit", missing_8bit, "optimizer_bits=8"),
        ("4-bit", missing_4bit, "optimizer_bits=4"),
        ("lora", missing_lora, "lora_rank above 0"),
        ("zero", zero.missing_zero, "zero_stage above 0 by deepspeed"),
        ("offload-cpu", lambda: zero.missing_offload(OffloadTarget.CPU), "offload_target=cpu by "),
    ],
)
def test_a_technique_whose_package_is_not_installed_says_what_to_install(
    look, monkeypatch, technique, why, left_out
):
    def import_none(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    with monkeypatch.context() as without:
        without.setattr(importlib.util, "find_spec", lambda name: None)
        without.setattr(importlib, "import_module", import_none)
        reason = why()
    check = look(technique, run_trial=lacking({technique: reason}))
    assert check.status == Status.WARNING and " need" in check.found
    assert check.remedy.startswith("pip install ")
    assert check.left_out[0].startswith(left_out)


@pytest.mark.parametrize("technique", ["zero", "offload-cpu", "offload-nvme"])
def test_operators_that_are_not_built_say_how_to_build_them(
    look, monkeypatch, tmp_path, technique
):
    monkeypatch.setattr(zero, "_folder_of", lambda name: tmp_path)
    without = {
        "zero": zero.missing_zero(),
        "offload-cpu": zero.missing_offload(OffloadTarget.CPU),
        "offload-nvme": zero.missing_offload(OffloadTarget.NVME),
    }
    check = look(technique, run_trial=lacking(without))
    assert check.found.endswith("not built here yet") and check.left_out
    assert check.remedy.startswith("build them with autotune doctor --build")


@pytest.mark.parametrize(
    ("place", "found", "remedy"),
    [
        (None, "needs a folder on a fast local disk", "give --nvme-path FOLDER"),
        ("gone", "gone does not exist", "make it, or give another"),
        ("file", "file is no folder", "give one"),
        ("locked", "locked cannot be written", "give another, or change its permissions"),
    ],
)
def test_a_folder_to_offload_to_says_what_is_wrong_with_it(
    look, tmp_path, monkeypatch, place, found, remedy
):
    (tmp_path / "file").touch()
    (tmp_path / "locked").mkdir()
    with monkeypatch.context() as as_a_user:  # root may write everywhere
        as_a_user.setattr(os, "access", lambda path, mode: False)
        why = zero.missing_nvme_folder(None if place is None else tmp_path / place)
    check = look("offload-nvme", run_trial=lacking({"offload-nvme": why}))
    assert check.status == Status.WARNING
    assert check.found.endswith(found) and check.remedy == remedy
    assert check.left_out == ("offload_target=nvme",)


def test_a_disk_that_is_too_small_for_the_workload_is_told(look):
    def answer_with_little(spec):
        if spec.task == Task.DESCRIBE:
            return replace(answer(spec), facts=make_facts(num_parameters=10**9))
        return replace(answer(spec), environment=make_environment(nvme_free_bytes=GIB))

    check = look("offload-nvme", run_trial=answer_with_little)
    assert check.found == (
        "offload_target=nvme may write 14.9 GiB of optimizer state, and --nvme-path has 1.0 GiB "
        "free"
    )
    assert (check.remedy, check.left_out) == ("give another", ("offload_target=nvme",))


@pytest.mark.parametrize(
    ("module", "technique"),
    [("torchao", "4-bit"), ("peft", "lora"), ("deepspeed", "zero"), ("bitsandbytes", "8-bit")],
)
def test_a_package_that_is_there_and_broken_takes_its_technique_with_it(look, module, technique):
    broken = fail_on(f"import {module}", complaint="ImportError: libfoo.so: not found")
    check = look(technique, complaint_about=broken)
    assert check.found == f"{module} 1.2.3 cannot be imported: ImportError: libfoo.so: not found"
    assert check.left_out and "pip install" in check.remedy


@pytest.mark.parametrize("dtype", ["bf16", "tf32"])
def test_a_gpu_without_a_data_type_leaves_it_out(look, dtype):
    def answer_old(spec):
        if not spec.is_cuda or spec.task != Task.ENVIRONMENT:
            return answer(spec)
        old = replace(GPU, compute_capability="7.5")
        return Measurement(outcome=Outcome.COMPLETED, environment=old)

    check = look(dtype, num_gpus=lambda: 1, run_trial=answer_old)
    assert (check.status, check.left_out) == (Status.WARNING, (f"amp_dtype={dtype}",))
    assert "this GPU has 7.5" in check.found and "fp16" in check.remedy
