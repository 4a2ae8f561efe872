"""What all workers must do. Inherit it, and give ``workers``: two free slots, scripted runner."""

import os
import signal
import time

import psutil
import pytest

from autotune.errors import WorkersError
from tests.autotune.workers_processes import collect, collect_one, lives, read_pids, spec
from trials.measurement import Outcome


def run(workers, what, **fields):
    """Run one trial and return its measurement."""
    workers.submit(spec(what, **fields))
    finished = collect_one(workers)
    assert finished.measurement is not None, finished.lost_reason
    return finished.measurement


class WorkersContract:
    @pytest.fixture(autouse=True)
    def _idle_before_and_after(self, workers):
        assert workers.num_free == workers.num_slots == 2
        yield
        workers.cancel_all()
        while workers.num_free < workers.num_slots:
            workers.collect(1.0)

    def test_a_trial_comes_back_once_from_its_slot(self, workers):
        trial = spec("done")
        slot = workers.submit(trial)
        found = collect_one(workers)
        assert (found.trial_id, found.slot) == (trial.trial_id, slot)
        assert found.measurement.outcome == Outcome.COMPLETED
        assert workers.collect(0.0) == []

    def test_slots_run_at_once_and_each_trial_keeps_its_own_result(self, workers):
        slow, quick = spec("sleep=1"), spec("pad=1")
        assert workers.submit(slow) != workers.submit(quick)
        first, second = collect(workers, 2)
        assert (first.trial_id, first.measurement.reason) == (quick.trial_id, "x")
        assert (second.trial_id, second.measurement.reason) == (slow.trial_id, "")

    def test_no_trial_is_taken_without_a_free_slot(self, workers):
        workers.submit(spec("hang"))
        workers.submit(spec("hang"))
        assert workers.num_free == 0
        with pytest.raises(WorkersError, match="no slot is free"):
            workers.submit(spec("done"))

    def test_collecting_waits_for_a_trial_but_not_for_ever(self, workers):
        workers.submit(spec("hang"))
        started = time.monotonic()
        assert workers.collect(0.3) == []
        assert 0.3 <= time.monotonic() - started < 3

    def test_collecting_does_not_wait_where_nothing_is_under_way(self, workers):
        started = time.monotonic()
        assert workers.collect(60.0) == []
        assert time.monotonic() - started < 5

    def test_slots_give_trials_threads_and_cores_of_their_own(self, workers):
        slots = [workers.submit(spec("placement")) for _ in range(2)]
        found = {one.slot: one.measurement.reason.split() for one in collect(workers, 2)}
        (device, threads, *cores), (_, other_threads, *other_cores) = map(found.get, slots)
        assert slots == ["cpu-0", "cpu-1"] and device == "cpu"
        assert threads == other_threads == str(len(cores)) == str(len(other_cores))
        assert not set(cores) & set(other_cores)

    def test_every_slot_runs_on_the_same(self, workers):
        assert workers.environment().device_name == "Scripted"
        assert workers.num_free == 2

    @pytest.mark.parametrize(("what", "reason"), [("exit=3", "exit code 3"), ("kill", "SIGKILL")])
    def test_a_trial_process_that_dies_is_a_measurement(self, workers, what, reason):
        measurement = run(workers, what)
        assert reason in measurement.reason or "killed by the kernel" in measurement.reason
        assert measurement.is_worth_another_run or measurement.outcome == Outcome.OUT_OF_MEMORY

    def test_what_a_trial_printed_before_it_died_is_kept(self, workers):
        assert run(workers, "print=last words").failure.log_tail == "last words"

    def test_a_hanging_trial_ends_at_its_deadline_and_the_next_one_starts(self, workers):
        assert run(workers, "hang", deadline_seconds=0.3).outcome == Outcome.TIMED_OUT
        assert run(workers, "done").outcome == Outcome.COMPLETED

    def test_cancelled_trials_come_back(self, workers):
        trials = [spec("hang"), spec("hang")]
        for trial in trials:
            workers.submit(trial)
        workers.cancel_all()
        found = collect(workers, 2)
        assert {one.trial_id for one in found} == {trial.trial_id for trial in trials}
        assert {one.measurement.reason for one in found} == {"cancelled"}

    def test_a_trial_after_a_cancelled_one_is_not_cancelled(self, workers):
        workers.submit(spec("hang"))
        workers.cancel_all()
        workers.cancel_all()
        collect_one(workers)
        assert run(workers, "done").outcome == Outcome.COMPLETED

    def test_a_large_measurement_passes(self, workers):
        assert run(workers, "pad=200000").reason == "x" * 200_000

    def test_a_stray_program_is_gone_after_its_trial(self, workers, tmp_path):
        run(workers, f"stray={tmp_path / 'pids'}")
        assert not any(map(lives, read_pids(tmp_path / "pids")))

    def test_a_child_that_outlives_its_trial_does_not_delay_it(self, workers, tmp_path):
        reason = run(workers, f"heir={tmp_path / 'pids'}").reason
        trial, heir = read_pids(tmp_path / "pids")
        assert "exit code 3" in reason and lives(heir) and not lives(trial)
        os.kill(heir, signal.SIGKILL)

    def test_a_trial_and_its_helper_are_out_of_reach_for_what_ends_their_group(
        self, workers, tmp_path
    ):
        workers.submit(spec(f"stray-and-hang={tmp_path / 'pids'}"))
        trial = psutil.Process(read_pids(tmp_path / "pids")[0])
        helper = trial.parent()
        groups = {os.getpgid(pid) for pid in (trial.pid, helper.pid, helper.ppid())}
        assert len(groups) == 3

    def test_trials_are_not_slowed_down_by_niceness(self, workers):
        assert run(workers, "niceness").reason == "0"
