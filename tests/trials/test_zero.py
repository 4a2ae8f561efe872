"""Training through DeepSpeed, for real: stages, offload to host memory and to disk."""

import os
import uuid

import pytest

from search_spaces import DeviceFacts, OffloadTarget, TrainingConfig, refusal
from trials import zero
from trials.errors import WorkloadError
from trials.host import TrialHost
from trials.measurement import Outcome
from trials.spec import Task, TimingPolicy, TrialSpec

STEEP = "tests.assets.workloads.steep:Steep"
BRIEF = TimingPolicy(max_seconds=0.1)


def config(**knobs):
    return TrainingConfig.from_mapping({"micro_batch_size": 2, **knobs})


@pytest.fixture(scope="module", autouse=True)
def operators():
    """Compiled, or the tests are skipped; CI must have them."""
    missing = zero.missing_offload(OffloadTarget.NVME) or zero.missing_zero()
    if missing is not None:
        (pytest.fail if "CI" in os.environ else pytest.skip)(missing)


@pytest.fixture(scope="module")
def host():
    host = TrialHost()
    yield host
    host.close()


@pytest.fixture
def run(host, tmp_path):
    def run(task=Task.MEASURE, workload="byte-gpt", **knobs):
        spec = TrialSpec(
            workload=workload,
            config=config(**knobs),
            task=task,
            trial_id=uuid.uuid4().hex,
            nvme_path=str(tmp_path),
            memory_budget_bytes=512 * 2**20,
            timing=BRIEF,
            quality_samples=16,
        )
        return host.run(spec)

    return run


SHARDED = [
    {"zero_stage": 1},
    {"zero_stage": 2, "optimizer_bits": 8},
    {"zero_stage": 3, "checkpoint_interval": 1, "accumulation_steps": 2},
    {"zero_stage": 1, "offload_target": "cpu"},
    {"zero_stage": 3, "offload_target": "cpu", "amp_dtype": "bf16"},
    {"zero_stage": 3, "offload_target": "nvme"},
    {"zero_stage": 2, "offload_target": "cpu", "optimizer_bits": 8},
    {"zero_stage": 3, "offload_target": "cpu", "optimizer_bits": 8},
]


@pytest.mark.slow
@pytest.mark.parametrize("knobs", SHARDED, ids=str)
def test_every_technique_trains_and_is_measured(run, tmp_path, knobs):
    found = run(**knobs)
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert found.timing.optimizer_steps >= 5 and found.memory.peak_device_bytes > 0
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "knobs",
    [
        {"zero_stage": 2, "accumulation_steps": 2},
        {"zero_stage": 3},
        {"zero_stage": 2, "offload_target": "cpu"},
        {"zero_stage": 3, "offload_target": "nvme"},
    ],
    ids=str,
)
def test_it_trains_to_what_plain_torch_trains_to(run, knobs):
    plain = {"accumulation_steps": knobs.get("accumulation_steps", 1)}
    expected = run(Task.QUALITY, **plain).quality.value
    assert run(Task.QUALITY, **knobs).quality.value == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_fp16_is_refused_under_zero_since_one_overflow_ends_the_training(run, zero_stage):
    """Without ZeRO the scale falls until the gradients fit."""
    plain = run(workload=STEEP, amp_dtype="fp16")
    assert plain.outcome == Outcome.COMPLETED and plain.timing.skipped_steps > 0, plain.reason
    knobs = {"zero_stage": zero_stage, "amp_dtype": "fp16"}
    found = run(workload=STEEP, **knobs)
    assert found.outcome == Outcome.INVALID and "skipped" in found.reason
    assert "never lowers its loss scale" in refusal(config(**knobs), DeviceFacts())


def test_a_disk_that_is_too_small_is_said_by_the_trial(tmp_path):
    with pytest.raises(WorkloadError, match="GiB free"):
        zero._prepare_swap_folder(tmp_path / "trial", num_parameters=2**60)


def test_a_host_that_is_closed_leaves_nothing_on_the_disk_and_keeps_what_was_there(tmp_path):
    (tmp_path / "trial").mkdir()
    host = TrialHost()
    knobs = {"zero_stage": 3, "offload_target": "nvme"}
    for options in (knobs, {}):
        host.run(TrialSpec(workload="byte-gpt", config=config(**options), nvme_path=str(tmp_path)))
    host.close()
    assert [path.name for path in tmp_path.iterdir()] == ["trial"]


@pytest.mark.slow
def test_state_on_disk_is_not_in_memory(run):
    assert run(zero_stage=3, offload_target="nvme").memory.by_kind["optimizer_state"] < 2**20
    assert run(zero_stage=3).memory.by_kind["optimizer_state"] > 6 * 2**20


@pytest.mark.slow
def test_state_on_disk_is_told_with_its_size(run):
    memory = run(zero_stage=3, offload_target="nvme").memory
    exact = 3 * 4 * 830_208  # two moments and the fp32 copy of the parameters
    assert memory.places["optimizer_state"] == {
        "device": pytest.approx(0, abs=2**16),
        "disk": pytest.approx(exact, rel=0.02),
    }
    assert memory.by_kind["gradients"] == pytest.approx(4 * 830_208, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_on_a_cpu_what_is_offloaded_to_the_host_stays_in_the_process(run, stage):
    memory = run(zero_stage=stage, offload_target="cpu").memory
    assert memory.elsewhere == {}
    assert memory.by_kind["optimizer_state"] == pytest.approx(3 * 4 * 830_208, rel=0.01)
    assert memory.by_kind["gradients"] == pytest.approx(4 * 830_208, rel=0.01)


@pytest.mark.slow
def test_a_lock_that_a_killed_process_left_stops_no_trial(run):
    lock = zero._folder_of("cpu_adam") / "lock"
    lock.touch()
    try:
        found = run(zero_stage=1, offload_target="cpu")
        assert found.outcome == Outcome.COMPLETED and found.process_seconds < 60
    finally:
        lock.unlink()


def test_a_lock_stops_a_build_with_words(monkeypatch, tmp_path):
    (tmp_path / "lock").touch()
    monkeypatch.setattr(zero, "_folder_of", lambda name: tmp_path)
    troubles = zero.build_operators(lambda name: None)
    assert f"remove {tmp_path}/lock" in troubles[0]


def test_each_trouble_of_a_folder_to_swap_to_has_its_own_words(tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert "--nvme-path FOLDER" in zero.missing_nvme_folder(None)
    assert "does not exist" in zero.missing_nvme_folder(tmp_path / "gone")
    assert "is no folder" in zero.missing_nvme_folder(file)
    assert zero.missing_nvme_folder(tmp_path) is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    assert "cannot be written" in zero.missing_nvme_folder(tmp_path)


def test_operators_of_another_version_count_as_not_built(monkeypatch):
    monkeypatch.setattr(zero, "_versions", lambda: "deepspeed 0.1, torch 1.0")
    assert "autotune doctor --build" in zero.missing_offload(OffloadTarget.CPU)
    assert "autotune doctor --build" in zero.missing_zero()


def test_the_first_fault_of_a_build_is_told_not_what_it_led_to(monkeypatch):
    def load(*_, **__):
        try:
            raise RuntimeError("no compiler found\nmore")
        except RuntimeError:
            raise AttributeError("no attribute 'ds_opt_adam'")  # noqa: B904

    from deepspeed.accelerator import get_accelerator

    monkeypatch.setattr(zero, "_is_built", lambda name: name != "cpu_adam")
    monkeypatch.setattr(type(get_accelerator().create_op_builder("CPUAdamBuilder")), "load", load)
    troubles = zero.build_operators(lambda name: None)
    assert troubles == ["cpu_adam cannot be built: RuntimeError: no compiler found"]
