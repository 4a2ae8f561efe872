"""What only a GPU can show, techniques aside. Skipped where there is none."""

import pytest

from search_spaces import TrainingConfig
from trials.measurement import Outcome, Where
from trials.nvml import num_gpus, used_bytes
from trials.spec import Task

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(num_gpus() == 0, reason="no NVIDIA GPU on this machine"),
]
MIB = 2**20


def config(**knobs):
    return TrainingConfig().with_knobs({"micro_batch_size": 8, **knobs})


def test_fp16_skips_are_counted_and_training_goes_on(run):
    found = run("byte-gpt:5m", device="cuda:0", config=config(amp_dtype="fp16"))
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert found.timing.optimizer_steps >= 4


def test_a_budget_is_enforced_by_the_allocator(run):
    found = run(
        "byte-gpt:25m",
        device="cuda:0",
        config=config(micro_batch_size=64),
        memory_budget_bytes=600 * MIB,
    )
    assert (found.outcome, found.failure.where) == (Outcome.OUT_OF_MEMORY, Where.DEVICE)


def test_checkpointing_lowers_the_peak(run):
    plain, every = (
        run("byte-gpt:25m", device="cuda:0", config=config(checkpoint_interval=n)).memory
        for n in (0, 1)
    )
    assert every.peak_device_bytes < plain.peak_device_bytes


def test_the_memory_is_back_after_a_trial(run):
    before = used_bytes(0)
    run("byte-gpt:25m", device="cuda:0", config=config())
    assert used_bytes(0) == pytest.approx(before, abs=64 * MIB)


def test_a_profile_has_kernels_memory_and_a_snapshot(run, tmp_path):
    found = run(
        "byte-gpt:5m",
        task=Task.PROFILE,
        device="cuda:0",
        config=config(),
        profile_folder=str(tmp_path),
    )
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert (tmp_path / "memory_snapshot.pickle").stat().st_size > 0
    assert sum(found.profile.wait_seconds.values()) < found.profile.step_seconds
    assert found.profile.peak_bytes > 4 * 5_000_000 and found.profile.by_time


def test_offloaded_activations_live_in_page_locked_host_memory(run):
    memory = run("byte-gpt:5m", device="cuda:0", config=config(activation_offload="cpu")).memory
    assert memory.elsewhere["activations"]["pinned_host"] > MIB


def test_offloaded_state_lives_in_host_memory(run):
    knobs = config(zero_stage=2, offload_target="cpu")
    memory = run("byte-gpt:5m", device="cuda:0", config=knobs).memory
    assert sum(memory.elsewhere["optimizer_state"].values()) > 8 * 5_000_000


def test_the_environment_names_the_gpu(run):
    environment = run(task=Task.ENVIRONMENT, device="cuda:0").environment
    assert environment.compute_capability and environment.driver and environment.cuda
