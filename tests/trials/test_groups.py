"""Trials of several processes: two ranks on a CPU, for real."""

import multiprocessing
import os
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from search_spaces import TrainingConfig
from trials.engines import PlainEngine
from trials.groups import TrialGroup
from trials.host import TrialHost
from trials.measurement import Failure, Measurement, Outcome
from trials.processes import TRIAL_ID_VARIABLE, tagged
from trials.ranks import Ranks
from trials.spec import TimingPolicy, TrialSpec
from trials.training import TrainingState, train_step
from trials.workload import load_workload
from trials.zero import missing_zero

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "tests" / "assets" / "workloads" / "small.py"
MIB = 2**20


@pytest.fixture(scope="module")
def host():
    host = TrialHost()
    yield host
    host.close()


def make_failed(outcome, reason):
    return Measurement(outcome=outcome, failure=Failure(reason=reason, phase="timing"))


def group(workload="Small", *, deadline_seconds=60.0, **knobs):
    return TrialSpec(
        workload=f"{SMALL}:{workload}",
        config=TrainingConfig.from_mapping({"micro_batch_size": 2, **knobs}),
        trial_id=uuid.uuid4().hex,
        num_ranks=2,
        num_devices=2,
        num_threads=2,
        memory_budget_bytes=512 * MIB,
        deadline_seconds=deadline_seconds,
        timing=TimingPolicy(max_seconds=0.2),
    )


@pytest.mark.parametrize("knobs", [{}, {"accumulation_steps": 2, "amp_dtype": "bf16"}], ids=str)
def test_two_ranks_train_together_and_count_as_one_trial(host, knobs):
    found = host.run(group(**knobs))
    assert found.outcome == Outcome.COMPLETED, found.reason
    steps = knobs.get("accumulation_steps", 1)
    assert found.num_ranks == 2 and found.timing.samples_per_step == 2 * 2 * steps
    assert found.memory.peak_device_bytes > 0


@pytest.mark.slow
def test_two_ranks_share_what_zero_shards(host):
    if missing_zero() is not None:
        (pytest.fail if "CI" in os.environ else pytest.skip)(missing_zero())
    alone, shared = (
        host.run(replace(group(zero_stage=2), num_ranks=ranks)).memory.by_kind["optimizer_state"]
        for ranks in (1, 2)
    )
    assert shared == pytest.approx(alone / 2, rel=0.1)


def test_one_rank_out_of_memory_ends_all_and_is_named(host):
    spec = group("SecondRankRunsOut")
    found = host.run(spec)
    assert found.outcome == Outcome.OUT_OF_MEMORY and found.failure.rank == 1
    assert found.reason.startswith("rank 1: ")
    assert found.process_seconds < spec.deadline_seconds


def test_one_rank_that_dies_ends_all_and_is_named(host):
    found = host.run(group("SecondRankDies"))
    assert found.outcome == Outcome.CRASHED and found.failure.rank == 1
    assert "SIGKILL" in found.reason


class Scripted:
    """A process of a group that has found something already, or never will."""

    seconds_left = 60.0

    def __init__(self, found):
        self.found = found
        self.ours, theirs = multiprocessing.Pipe()
        self.waitables = (self.ours,)
        self.is_ended = False
        if found is not None:
            theirs.send("news")

    def poll(self, timeout_seconds):
        return self.found

    def cancel(self):
        pass

    def end(self):
        self.is_ended = True


LOST = make_failed(Outcome.INVALID, reason="RuntimeError: Connection closed by peer")


@pytest.mark.parametrize("outcome", [Outcome.OUT_OF_MEMORY, Outcome.CRASHED, Outcome.DIVERGED])
def test_a_lost_connection_never_hides_what_broke_it(tmp_path, outcome):
    processes = [Scripted(LOST), Scripted(make_failed(outcome, reason="why"))]
    waiting = iter(processes)
    trial = TrialGroup(group(), lambda spec: next(waiting), tmp_path)
    found = trial.result()
    assert (found.outcome, found.reason) == (outcome, "rank 1: why")
    assert all(process.is_ended for process in processes)


def test_a_process_that_never_says_anything_is_ended_with_the_others(tmp_path):
    processes = [Scripted(None), Scripted(make_failed(Outcome.DIVERGED, reason="why"))]
    waiting = iter(processes)
    found = TrialGroup(group(), lambda spec: next(waiting), tmp_path).result()
    assert found.failure.rank == 1 and all(process.is_ended for process in processes)


def test_nothing_of_a_group_outlives_it(host):
    spec = group("SecondRankRunsOut")
    host.run(spec)
    for rank in range(2):
        assert not tagged(TRIAL_ID_VARIABLE, f"{spec.trial_id}-{rank}")
    assert not list(host._folder.path.glob(f"{spec.trial_id}*"))


def test_a_group_can_be_cancelled(host):
    trial = host.start(group())
    trial.cancel()
    found = trial.result()
    assert found.outcome == Outcome.CRASHED and "cancelled" in found.reason


def test_ranks_take_disjoint_cores_and_devices():
    spec = TrialSpec(
        workload="byte-gpt", num_ranks=2, device="cuda:2", cores=(4, 5, 6, 7), num_threads=4
    )
    first, second = (spec.of_rank(rank, "file") for rank in range(2))
    assert (first.device, second.device) == ("cuda:2", "cuda:3")
    assert (first.cores, second.cores) == ((4, 5), (6, 7))
    assert first.num_threads == second.num_threads == 2
    assert first.trial_id != second.trial_id and not first.is_group and spec.is_group


def test_ranks_share_no_folder_and_one_measurement_is_heard(tmp_path):
    spec = replace(group(zero_stage=3, offload_target="nvme"), nvme_path=str(tmp_path))
    first, second = (spec.of_rank(rank, "file") for rank in range(2))
    assert first.nvme_folder != second.nvme_folder
    assert first.nvme_folder.parent == second.nvme_folder.parent == tmp_path


@pytest.fixture
def lonely_environment(tmp_path):
    """The environment of a machine without ssh and pdsh, and with a setting of its cluster's."""
    programs = tmp_path / "bin"
    programs.mkdir()
    return {**os.environ, "PATH": str(programs), "NCCL_IB_DISABLE": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("knobs", [{}, {"zero_stage": 2}], ids=str)
def test_one_machine_needs_neither_ssh_nor_a_hostfile(tmp_path, lonely_environment, knobs):
    if missing_zero() is not None:
        (pytest.fail if "CI" in os.environ else pytest.skip)(missing_zero())
    spec = tmp_path / "spec.json"
    spec.write_text(group("OnOneMachine", **knobs).to_json())
    done = subprocess.run(
        [sys.executable, "-m", "trials", str(spec)],
        cwd=ROOT,
        env=lonely_environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    found = Measurement.from_json(done.stdout)
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert found.num_ranks == 2


class OneOfTwo(Ranks):
    """A rank of two that knows what both count together, and talks to nobody."""

    def total(self, number):
        return UNITS


BATCH = torch.arange(6 * 16).reshape(6, 16) % 64
UNITS = BATCH.numel()


def moved_by_a_step(batch, ranks):
    """How far one step of SGD moves the weights, dropout off."""
    workload = load_workload(f"{SMALL}:Small")
    torch.manual_seed(0)
    model = workload.build().eval()
    before = [p.detach().clone() for p in model.parameters()]
    cpu = torch.device("cpu")
    config = TrainingConfig.from_mapping({"optimizer": "sgd"})
    engine = PlainEngine(model, config, cpu, learning_rate=0.1)
    state = TrainingState(workload=workload, config=config, device=cpu, engine=engine, ranks=ranks)
    train_step(state, iter([batch]))
    return [p.detach() - old for p, old in zip(model.parameters(), before, strict=True)]


def test_steps_averaged_over_ranks_are_the_step_of_the_whole_batch():
    cpu = torch.device("cpu")
    whole = moved_by_a_step(BATCH, Ranks(rank=0, count=1, device=cpu))
    parts = [
        moved_by_a_step(part, OneOfTwo(rank=rank, count=2, device=cpu))
        for rank, part in enumerate((BATCH[:2], BATCH[2:]))
    ]
    for right, first, second in zip(whole, *parts, strict=True):
        torch.testing.assert_close((first + second) / 2, right, rtol=1e-5, atol=1e-6)
