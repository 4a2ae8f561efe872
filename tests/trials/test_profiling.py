"""Profiles of real trials: what they write, and what they say of the time and the memory."""

import json
import os
import uuid
from pathlib import Path

import pytest

from search_spaces import OffloadTarget, TrainingConfig
from trials import zero
from trials.measurement import Outcome
from trials.profile import OperatorUse
from trials.profiling import operators_text, wait_seconds
from trials.spec import Task
from trials.trace import BACKWARD, DATA, DISK, FORWARD, LABELS, OPTIMIZER, STEP, Span, Trace

MIB = 2**20
PARAMETER_BYTES = 4 * 830_208


@pytest.fixture
def profile(run, tmp_path):
    """Profile one real trial into a folder."""

    def profile_one(workload="byte-gpt", *, folder=tmp_path, **fields):
        knobs = {"micro_batch_size": 4, **fields.pop("knobs", {})}
        config = TrainingConfig.from_mapping(knobs)
        places = {"profile_folder": str(folder), "config": config}
        return run(workload, task=Task.PROFILE, trial_id=uuid.uuid4().hex, **places, **fields)

    return profile_one


def test_a_profile_is_written_and_told(profile, tmp_path):
    measurement = profile(knobs={"accumulation_steps": 2})
    assert measurement.outcome == Outcome.COMPLETED, measurement.reason
    found = measurement.profile
    names = ["trace.json", "memory.svg", "operators.txt", "profile.json"]
    assert [Path(name) for name in found.files] == [tmp_path / name for name in names]
    document = json.loads((tmp_path / "profile.json").read_text())
    assert document["step_seconds"] == found.step_seconds > 0
    assert document["operators"][0].keys() == {"name", "calls", "seconds", "allocated_bytes"}


def test_the_trace_is_one_that_viewers_open_and_names_the_parts_of_a_step(profile, tmp_path):
    profile(knobs={"accumulation_steps": 2})
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert all({"name", "ph", "pid"} <= event.keys() for event in events)
    named = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    per_step = {STEP: 1, DATA: 2, FORWARD: 2, BACKWARD: 2, OPTIMIZER: 1, DISK: 0}
    assert {label: named.count(label) for label in LABELS} == {
        label: 3 * count for label, count in per_step.items()
    }


def test_the_picture_has_the_kinds_that_a_measurement_finds(profile, run, tmp_path):
    measured = run("byte-gpt", config=TrainingConfig(micro_batch_size=4)).memory.by_kind
    profile()
    picture = (tmp_path / "memory.svg").read_text()
    for kind in ("parameters", "gradients", "optimizer_state", "activations"):
        assert measured[kind] > MIB
    words = f"parameters {PARAMETER_BYTES / MIB:.1f} MiB"
    assert words in picture and f"optimizer state {2 * PARAMETER_BYTES / MIB:.1f} MiB" in picture


def test_the_operators_of_a_transformer_are_its_matrix_products(profile):
    found = profile().profile
    assert "mm" in found.by_time[0].name
    assert found.by_time[0].seconds >= found.by_time[-1].seconds > 0
    assert found.by_memory[0].allocated_bytes >= found.by_memory[-1].allocated_bytes > MIB / 4
    assert not any(use.name in LABELS or "Step#" in use.name for use in found.by_time)


def test_a_loader_that_is_too_slow_is_what_the_device_waits_for(profile):
    found = profile("SlowLoader", knobs={"micro_batch_size": 8}).profile
    assert 0.217 <= found.wait_seconds["data"] <= found.step_seconds - 0.08
    assert found.wait_seconds["host"] == found.wait_seconds["disk"] == 0


def test_a_folder_that_is_gone_is_said_with_its_name(profile, tmp_path):
    found = profile("Small", folder=tmp_path / "gone")
    assert (found.outcome, found.failure.phase) == (Outcome.CRASHED, "profile")
    assert f"the profile cannot be written to {tmp_path / 'gone'}: No such file" in found.reason


def test_running_out_of_memory_is_an_outcome_here_too(profile, tmp_path):
    found = profile(memory_budget_bytes=4 * MIB)
    assert (found.outcome, found.profile) == (Outcome.OUT_OF_MEMORY, None)
    assert list(tmp_path.iterdir()) == []


def test_of_two_ranks_the_first_is_profiled(profile, tmp_path):
    found = profile("Small", num_ranks=2, num_devices=2, num_threads=2)
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert found.num_ranks == 2 and len(found.profile.files) == len(list(tmp_path.iterdir())) == 4
    picture = (tmp_path / "memory.svg").read_text()
    assert "gradients " in picture and "gradients 0.0" not in picture


@pytest.mark.slow
def test_swapping_to_a_disk_is_waited_for(profile, tmp_path):
    missing = zero.missing_offload(OffloadTarget.NVME) or zero.missing_zero()
    if missing is not None:
        (pytest.fail if "CI" in os.environ else pytest.skip)(missing)
    disk, folder = tmp_path / "disk", tmp_path / "profile"
    disk.mkdir(), folder.mkdir()
    knobs = {"zero_stage": 3, "offload_target": "nvme"}
    found = profile(knobs=knobs, nvme_path=str(disk), folder=folder)
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert 0 < found.profile.wait_seconds["disk"] < found.profile.step_seconds


def make_trace(**spans):
    labelled = {
        label: [Span(*s) for s in spans.get(label.replace(" ", "_"), ())] for label in LABELS
    }
    computing = [Span(*s) for s in spans.get("computing", ())]
    return Trace(spans=labelled, computing=computing, allocations=[])


def test_what_a_gpu_does_not_compute_is_a_wait_for_one_thing_each():
    trace = make_trace(
        trial_step=[(0, 10), (10, 20)],
        waiting_for_data=[(0, 2), (10, 12)],
        waiting_for_disk=[(8, 10)],
        computing=[(1, 6), (9, 9.5), (12, 20)],
    )
    assert wait_seconds(trace, "cuda") == {"data": 1.5, "host": 1.0, "disk": 0.75}


def test_on_a_cpu_nothing_waits_for_the_host():
    trace = make_trace(trial_step=[(0, 10)], waiting_for_data=[(0, 2)])
    assert wait_seconds(trace, "cpu") == {"data": 2.0, "host": 0.0, "disk": 0.0}


def test_the_table_of_operators_has_both_orders_in_peoples_units():
    slow = OperatorUse(name="aten::mm", calls=2, seconds=0.003, allocated_bytes=MIB)
    large = OperatorUse(name="aten::empty", calls=1, seconds=0.001, allocated_bytes=3 * MIB)
    by_time, by_memory = operators_text([large, slow]).split("Operators by memory")
    assert by_time.index("aten::mm") < by_time.index("aten::empty")
    assert by_memory.index("aten::empty") < by_memory.index("aten::mm")
    assert "     3.000   75.0%        1.00      2.0  aten::mm" in by_time
