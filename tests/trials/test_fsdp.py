"""Sharding by PyTorch's own ``fully_shard``: one rank and two, on a CPU, for real."""

import uuid

import pytest

from search_spaces import TrainingConfig
from trials.host import TrialHost
from trials.measurement import Outcome
from trials.spec import Task, TimingPolicy, TrialSpec

SHARDED = [
    {"zero_stage": 3},
    {"zero_stage": 2, "accumulation_steps": 2, "amp_dtype": "fp16"},
    {"zero_stage": 3, "checkpoint_interval": 1, "optimizer_bits": 4},
    {"zero_stage": 3, "offload_target": "cpu", "amp_dtype": "bf16"},
    {"zero_stage": 2, "lora_rank": 4, "optimizer": "sgd"},
]


@pytest.fixture(scope="module")
def host():
    host = TrialHost()
    yield host
    host.close()


def spec(ranks=1, task=Task.MEASURE, **knobs):
    return TrialSpec(
        workload="byte-gpt",
        config=TrainingConfig.from_mapping({"micro_batch_size": 2, **knobs}),
        task=task,
        trial_id=uuid.uuid4().hex,
        num_ranks=ranks,
        num_devices=ranks,
        num_threads=ranks,
        memory_budget_bytes=512 * 2**20,
        timing=TimingPolicy(max_seconds=0.1),
        quality_samples=64,
    )


@pytest.mark.slow
@pytest.mark.parametrize("knobs", SHARDED, ids=str)
def test_one_rank_trains_every_way(host, knobs):
    found = host.run(spec(sharding="fsdp", **knobs))
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert found.timing.optimizer_steps >= 5 and found.memory.by_kind["optimizer_state"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_two_ranks_hold_half_each(host, stage):
    one, two = (host.run(spec(n, sharding="fsdp", zero_stage=stage)) for n in (1, 2))
    assert two.outcome == Outcome.COMPLETED, two.reason
    assert two.num_ranks == 2 and two.timing.samples_per_step == 4
    for kind in ("parameters", "optimizer_state"):
        halves = one.memory.by_kind[kind] / 2
        assert two.memory.by_kind[kind] == pytest.approx(halves, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("knobs", [{"zero_stage": 2}, {"zero_stage": 3}], ids=str)
def test_sharded_training_ends_where_plain_training_does(host, knobs):
    plain, sharded = (
        host.run(spec(task=Task.QUALITY, accumulation_steps=2, **more))
        for more in ({}, {"sharding": "fsdp", **knobs})
    )
    assert sharded.quality.value == pytest.approx(plain.quality.value, rel=1e-6)
