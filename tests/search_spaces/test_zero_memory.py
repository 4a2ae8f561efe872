"""DeepSpeed's published table as an answer key, and what a host cannot hold."""

import pytest

from search_spaces import DeviceFacts, JobFacts, TrainingConfig, refusal, too_much_for_disk
from search_spaces.zero_memory import (
    estimate_zero2,
    estimate_zero3_offloaded,
)

GIB = 2**30
PARAMETERS = 2_851_000_000
LARGEST_LAYER = 32_000_000


def in_gib(estimate):
    return estimate.device_bytes / GIB, estimate.host_bytes / GIB


def test_stage_2_is_as_published():
    device, _ = in_gib(estimate_zero2(PARAMETERS, num_ranks=8, is_offloaded=False))
    assert device == pytest.approx(15.93, rel=0.02)


def test_stage_2_offloaded_is_as_published():
    found = in_gib(estimate_zero2(PARAMETERS, num_ranks=8, is_offloaded=True))
    assert found == pytest.approx((5.31, 127.48), rel=0.02)


@pytest.mark.parametrize(("is_built_sharded", "host"), [(True, 71.71), (False, 127.48)])
def test_stage_3_offloaded_is_as_published(is_built_sharded, host):
    found = estimate_zero3_offloaded(
        PARAMETERS,
        largest_layer=LARGEST_LAYER,
        num_ranks=8,
        is_built_sharded=is_built_sharded,
    )
    assert in_gib(found) == pytest.approx((0.12, host), rel=0.02)


def machine(host_bytes, num_trainable=PARAMETERS):
    job = JobFacts(
        num_parameters=PARAMETERS,
        num_trainable=num_trainable,
        num_ranks=1,
        host_bytes=host_bytes,
    )
    return DeviceFacts(kind="cuda", compute_capability=(9, 0), job=job)


def config(target, stage):
    return TrainingConfig.from_mapping({"offload_target": target, "zero_stage": stage})


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_state_beyond_the_hosts_memory_is_refused_before_it_runs(stage):
    reason = refusal(config("cpu", stage), machine(16 * GIB))
    assert "keeps at least 31.9 GiB of optimizer state in host memory" in reason
    assert "this machine has 16.0 GiB" in reason and "nvme" in reason


def test_what_may_just_fit_is_tried():
    assert refusal(config("cpu", 3), machine(12 * PARAMETERS)) is None
    assert refusal(config("cpu", 3), machine(12 * PARAMETERS - 1)) is not None
    eight = config("cpu", 3).with_knobs({"optimizer_bits": 8})
    assert refusal(eight, machine(6 * PARAMETERS)) is None
    assert refusal(eight, machine(6 * PARAMETERS - 1)) is not None


def test_frozen_parameters_have_no_state_in_host_memory():
    assert refusal(config("cpu", 1), machine(16 * GIB, num_trainable=10**6)) is None


@pytest.mark.parametrize(("target", "stage"), [("none", 0), ("none", 3), ("nvme", 3)])
def test_state_elsewhere_is_no_matter_of_the_hosts_memory(target, stage):
    assert refusal(config(target, stage), machine(GIB)) is None


def test_without_a_job_nothing_is_said_of_it():
    assert refusal(config("cpu", 1), DeviceFacts()) is None


@pytest.mark.parametrize(("free", "is_refused"), [(16_000, False), (15_999, True)])
def test_a_disk_must_hold_sixteen_bytes_of_each_parameter(free, is_refused):
    why = too_much_for_disk(1000, free_bytes=free)
    assert (why is not None) is is_refused
    assert why is None or why.startswith("offload_target=nvme may write")


@pytest.mark.parametrize(("num_ranks", "is_refused"), [(1, False), (2, True)])
def test_state_too_small_to_be_written_is_not_called_offloaded(num_ranks, is_refused):
    config = TrainingConfig.from_mapping({"zero_stage": 3, "offload_target": "nvme"})
    size = 2**18  # one MiB in fp32
    job = JobFacts(num_parameters=size, num_trainable=size, num_ranks=num_ranks, host_bytes=2**40)
    why = refusal(config, DeviceFacts(job=job, num_devices=num_ranks))
    assert (why is not None) is is_refused
    assert why is None or "shard of a device has 0.50 MiB" in why
