"""Whole studies over simulated trials, in real trial processes, on a real database."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autotune.errors import NothingFitsError, StudyBusyError, WorkersError
from autotune.events import PointRerun, QualityMeasured, TrialTold
from autotune.optimizer.storage import opened_storage
from autotune.optimizer.study import OptunaStudy
from autotune.records import Budget, Objective, Source, StudyState, TrialState
from autotune.stopping import StopSwitch
from autotune.store.sql import SqlStore
from autotune.workers import WorkersRequest, open_workers
from search_spaces import DeviceFacts, TrainingConfig
from tests.autotune import simulated
from tests.autotune.tuning import make_record, tune
from tests.autotune.workers_processes import descendants
from tests.factories import make_trial
from trials.errors import WorkloadError
from trials.measurement import Outcome

ROOT = Path(__file__).parents[2]
MIB = 2**20
CPU = DeviceFacts()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/studies.db"


@pytest.fixture(scope="module")
def workers():
    request = WorkersRequest(num_slots=2, runner=simulated.RUNNER)
    workers = open_workers(request, is_local=True)
    yield workers
    workers.close()


def stored_trials(url, name="study"):
    store = SqlStore.open(url)
    try:
        return store.trials(name)
    finally:
        store.close()


def optuna_states(url, name="study"):
    with opened_storage(url) as storage:
        trials = storage.get_all_trials(storage.get_study_id_from_name(name))
        return Counter(trial.state.name for trial in trials)


def test_a_study_spends_its_budget_and_finds_a_front(url, workers):
    result = tune(url, make_record(trials=20), workers=workers)
    trials = stored_trials(url)
    assert (
        result.state == StudyState.FINISHED and result.stop_reason == "budget of 20 trials spent"
    )
    assert len(trials) == 20 and {t.state for t in trials} == {TrialState.TOLD}
    assert len({t.config for t in trials}) == 20
    assert optuna_states(url) == {"COMPLETE": 20}
    assert result.recommendation.number in {t.number for t in result.front}


def test_the_front_in_the_store_is_the_one_returned(url, workers):
    result = tune(url, make_record(trials=12), workers=workers)
    store = SqlStore.open(url)
    assert [t.number for t in store.front("study")] == [t.number for t in result.front]
    assert store.recommended("study") == result.recommendation.number
    store.close()


def test_baselines_come_first(url, workers):
    mine = TrainingConfig(micro_batch_size=4, accumulation_steps=8, checkpoint_interval=2)
    tune(url, make_record(trials=3, baseline=mine), workers=workers)
    safest, largest = (t.config for t in stored_trials(url)[1:])
    assert stored_trials(url)[0].config == mine
    assert (safest.micro_batch_size, safest.checkpoint_interval) == (1, 1)
    assert (largest.micro_batch_size, largest.checkpoint_interval) == (32, 0)


def test_quality_is_measured_once_per_numerics_class_and_its_noise_over_seeds(url, workers):
    events = []
    tune(url, make_record(trials=24), workers=workers, listen=events.append)
    runs = Counter(e.numerics for e in events if isinstance(e, QualityMeasured))
    classes = {str(t.config.numerics_class()) for t in stored_trials(url)}
    assert set(runs) == classes
    assert sorted(runs.values()) == [1] * (len(classes) - 1) + [3]


def test_every_config_of_a_class_shares_one_quality(url, workers):
    tune(url, make_record(trials=24), workers=workers)
    by_class = {}
    for trial in stored_trials(url):
        by_class.setdefault(trial.config.numerics_class(), set()).add(trial.scores.quality)
    assert all(len(values) == 1 for values in by_class.values())


def test_without_the_quality_objective_no_quality_is_measured(url, workers):
    events = []
    record = make_record(trials=6, objectives=(Objective.COST, Objective.THROUGHPUT))
    tune(url, record, workers=workers, listen=events.append)
    assert not [e for e in events if isinstance(e, QualityMeasured)]
    assert all(t.scores.quality is None for t in stored_trials(url))


def half_of_space(record):
    needs = sorted(simulated.device_bytes(c) for c in record.spec.space.configs(DeviceFacts()))
    return needs[len(needs) // 2]


def test_few_trials_run_out_of_memory_when_half_of_the_space_does(url, workers):
    budget = half_of_space(make_record())
    record = make_record(trials=60, memory_budget_bytes=budget)
    tune(url, record, workers=workers)
    ran = [t for t in stored_trials(url) if t.source == Source.RUN][10:]
    out_of_memory = [t for t in ran if t.outcome == Outcome.OUT_OF_MEMORY]
    assert len(ran) >= 30
    assert len(out_of_memory) < 0.2 * len(ran)


def test_nothing_at_least_as_large_as_what_ran_out_of_memory_is_run_again(url, workers):
    budget = half_of_space(make_record())
    tune(url, make_record(trials=60, memory_budget_bytes=budget), workers=workers)
    larger_later = []
    witnesses = []
    for trial in (t for t in stored_trials(url) if t.source == Source.RUN):
        larger_later += [w for w in witnesses if is_larger(trial.config, w.config)]
        if trial.outcome == Outcome.OUT_OF_MEMORY:
            witnesses.append(trial)
    # Two slots: one trial may be under way when the other runs out of memory.
    assert len(witnesses) >= 5 and len(larger_later) <= 2


def is_larger(config, other):
    same = {"micro_batch_size": 1, "accumulation_steps": 1}
    return (
        config.with_knobs(same) == other.with_knobs(same)
        and config.micro_batch_size >= other.micro_batch_size
        and (config.accumulation_steps > 1) >= (other.accumulation_steps > 1)
    )


def test_a_second_study_is_answered_from_the_store(url, workers):
    tune(url, make_record("first", trials=10), workers=workers)
    events = []
    tune(url, make_record("second", trials=5), workers=workers, listen=events.append)
    told = [e.trial for e in events if isinstance(e, TrialTold)]
    known = {t.config for t in stored_trials(url, "first")}
    assert all((t.source == Source.CACHED) == (t.config in known) for t in told)
    assert sum(t.source == Source.RUN for t in told) == 5
    assert sum(t.source == Source.CACHED for t in told) >= 2


def test_a_study_ends_when_its_space_does(url, workers):
    record = make_record(trials=1000)
    small = record.spec.space.pinned({"amp_dtype": "fp32", "optimizer_bits": 8})
    result = tune(url, make_record(trials=1000, space=small), workers=workers)
    assert result.stop_reason == "every config of the space is tried or ruled out"
    assert len(stored_trials(url)) == len(small.configs(DeviceFacts()))


def test_when_everything_is_out_of_memory_the_nearest_config_is_named(url, workers):
    with pytest.raises(NothingFitsError) as caught:
        tune(url, make_record(trials=500, memory_budget_bytes=10 * MIB), workers=workers)
    assert "out of memory" in str(caught.value)
    assert "bf16, ckpt 1, batch 32x1, 8-bit" in str(caught.value) or "batch 1x32" in str(
        caught.value
    )
    assert "MiB" in str(caught.value) and "--memory-budget" in str(caught.value)


def test_when_every_trial_fails_for_one_reason_the_study_ends_with_it(url, workers):
    with pytest.raises(WorkloadError, match=r"3 of 3 trials .* none succeeds: ValueError"):
        tune(url, make_record("study", "simulated:invalid"), workers=workers)
    assert len(stored_trials(url)) <= 4


def test_a_fault_of_the_workload_ends_the_study_even_where_some_configs_run_out_of_memory(
    url, workers
):
    record = make_record("study", "simulated:invalid-if-it-fits", memory_budget_bytes=150 * MIB)
    with pytest.raises(WorkloadError, match=r"6 of \d+ trials .* none succeeds: ValueError"):
        tune(url, record, workers=workers)
    outcomes = Counter(trial.outcome for trial in stored_trials(url))
    assert outcomes[Outcome.OUT_OF_MEMORY] > 0


def test_an_evaluation_that_fails_in_fp32_ends_the_study_at_once(url, workers):
    with pytest.raises(WorkloadError, match="does not evaluate: KeyError: held out; mend it"):
        tune(url, make_record("study", "simulated:no-evaluation"), workers=workers)
    told = [t for t in stored_trials(url) if t.state == TrialState.TOLD]
    assert 1 <= len(told) <= 3
    assert {t.reason for t in told} == {
        "quality run invalid in phase evaluate: KeyError: held out"
    }
    assert {t.state for t in stored_trials(url)} <= {TrialState.TOLD, TrialState.LOST}


def test_an_evaluation_that_fails_in_bf16_alone_costs_that_class_alone(url, workers):
    events = []
    record = make_record("study", "simulated:no-evaluation=bf16", trials=24)
    result = tune(url, record, workers=workers, listen=events.append)
    assert result.front and all(t.config.amp_dtype != "bf16" for t in result.front)
    failed = [e for e in events if isinstance(e, QualityMeasured) and not e.measurement.quality]
    assert len({e.numerics for e in failed}) == len(failed)


def test_a_study_of_bf16_alone_that_cannot_be_evaluated_is_no_study_without_a_trial(url, workers):
    space = make_record().spec.space.pinned({"amp_dtype": "bf16"})
    record = make_record("study", "simulated:no-evaluation=bf16", trials=2, space=space)
    with pytest.raises(WorkloadError, match=r"could be scored \(2 completed, 0 with a quality\)"):
        tune(url, record, workers=workers)


def test_a_mended_evaluation_is_run_again_by_the_next_study(url, workers):
    with pytest.raises(WorkloadError):
        tune(url, make_record("first", "simulated:no-evaluation", trials=2), workers=workers)
    assert tune(url, make_record("second", trials=2), workers=workers).front


def test_the_recommended_config_is_run_again_and_confirmed_without_a_trial(url, workers, tmp_path):
    events = []
    record = make_record("study", f"simulated:log={tmp_path}", trials=6, confirms=True)
    result = tune(url, record, workers=workers, listen=events.append)
    (event,) = (e for e in events if isinstance(e, PointRerun))
    assert event.number == result.recommendation.number and event.rerun.is_confirmed
    assert result.reruns.keys() == {event.number}
    assert len(stored_trials(url)) == 6 and optuna_states(url) == {"COMPLETE": 6}
    runs = (tmp_path / "runs").read_text().splitlines()
    assert len([run for run in runs if run.startswith("measure ")]) == 7


def test_a_resumed_study_confirms_nothing_twice(url, workers):
    first = tune(url, make_record(trials=6, confirms=True), workers=workers)
    events = []
    again = tune(url, make_record(trials=6, confirms=True), workers=workers, listen=events.append)
    assert not [e for e in events if isinstance(e, PointRerun)]
    assert again.reruns == first.reruns and again.recommendation == first.recommendation


def growing(tmp_path, budget_bytes):
    """A study of a workload whose every config needs 3 % more when it is run again."""
    folder = tmp_path / "ran"
    folder.mkdir()
    workload = f"simulated:grows=1.03,{folder}"
    values = {"memory_budget_bytes": budget_bytes, "confirms": True, "trials": 200}
    space = make_record().spec.space.pinned({"amp_dtype": "fp32", "optimizer_bits": 32})
    return make_record("study", workload, space=space, **values)


def test_what_needs_more_when_run_again_makes_room_for_the_next_point(url, workers, tmp_path):
    needs = {simulated.device_bytes(c) for c in growing(tmp_path, MIB).spec.space.configs(CPU)}
    largest = max(needs)
    (tmp_path / "ran").rmdir()
    events = []
    result = tune(url, growing(tmp_path, largest), workers=workers, listen=events.append)
    reruns = [e for e in events if isinstance(e, PointRerun)]
    assert [e.rerun.is_confirmed for e in reruns] == [False, True]
    refuted, chosen = (e.number for e in reruns)
    assert result.recommendation.number == chosen
    assert "out of memory" in result.reruns[refuted].objection
    store = SqlStore.open(url)
    assert store.recommended("study") == chosen
    assert refuted not in {t.number for t in store.front("study")}
    store.close()


def test_when_no_point_stands_a_second_run_the_study_says_so(url, workers, tmp_path):
    record = growing(tmp_path, MIB)
    safest = record.spec.space.pinned({"micro_batch_size": 1, "checkpoint_interval": 1})
    (config,) = safest.configs(CPU)
    spec = replace(
        record.spec, space=safest, memory_budget_bytes=simulated.device_bytes(config) + 1
    )
    with pytest.raises(NothingFitsError, match="no config that fitted stood a second run"):
        tune(url, replace(record, spec=spec), workers=workers)


def test_ctrl_c_leaves_the_second_run(url, workers):
    stop, events = StopSwitch(), []

    def listen(event):
        events.append(event)
        if isinstance(event, TrialTold) and event.trial.number == 3:
            stop.press()

    record = make_record(trials=4, confirms=True)
    result = tune(url, record, workers=workers, stop=stop, listen=listen)
    assert result.state == StudyState.INTERRUPTED and result.reruns == {}


def test_a_second_run_has_its_time_kept_back(url, workers):
    record = make_record("study", "simulated:sleep=0.5", trials=None, confirms=True)
    record = replace(record, spec=replace(record.spec, budget=Budget(seconds=4.0)))
    result = tune(url, record, workers=workers)
    assert result.recommendation.number in result.reruns
    assert result.stop_reason.startswith("budget of 4 s of wall time spent")
    assert result.spending.reserved.wall_seconds >= 0.5


def test_device_time_and_budget_outlive_a_session(url, workers):
    first = tune(url, make_record(trials=4), workers=workers).spending
    second = tune(url, make_record(trials=6), workers=workers).spending
    assert second.device_seconds > first.device_seconds > 0 and second.trials == 6
    store = SqlStore.open(url)
    record = store.study("study")
    assert record.spec.budget.trials == 6
    assert record.worked.device_seconds == pytest.approx(second.device_seconds)
    store.close()


def test_a_loss_of_nan_everywhere_ends_the_study_with_that_reason(url, workers):
    with pytest.raises(NothingFitsError, match="the loss is nan"):
        tune(url, make_record("study", "simulated:nan", trials=6), workers=workers)


def test_a_killed_trial_is_tried_once_more_and_completes(url, workers, tmp_path):
    record = make_record("study", f"simulated:kill-once={tmp_path}", trials=4)
    tune(url, record, workers=workers)
    trials = stored_trials(url)
    told = [t for t in trials if t.state == TrialState.TOLD]
    lost = [t for t in trials if t.state == TrialState.LOST]
    assert len(told) == 4 and {t.attempt for t in told} == {2}
    assert {t.config for t in lost} == {t.config for t in told}
    assert all("SIGKILL" in t.reason for t in lost)
    configs = {trial.number: trial.config for trial in told}
    for trial in lost:
        again = re.search(r"; run again as trial (\d+)$", trial.reason)
        assert configs[int(again[1])] == trial.config


def test_trials_that_always_break_end_the_study_with_the_cause(url, workers):
    with pytest.raises(WorkersError, match=r"5 trials in a row broke .* SIGKILL"):
        tune(url, make_record("study", "simulated:kill-always"), workers=workers)
    assert not {"RUNNING"} & set(optuna_states(url))


def test_a_gpu_that_breaks_every_trial_ends_the_study_and_makes_none_infeasible(url, workers):
    with pytest.raises(WorkersError, match=r"5 trials in a row .*CUBLAS_STATUS_ALLOC_FAILED"):
        tune(url, make_record("study", "simulated:broken-gpu"), workers=workers)
    assert {trial.state for trial in stored_trials(url)} == {TrialState.LOST}


def test_no_room_to_evaluate_takes_nothing_from_what_trained(url, workers):
    record = make_record("study", "simulated:no-room-to-evaluate", trials=4)
    with pytest.raises(WorkloadError, match=r"4 completed, .* out of memory in phase evaluate"):
        tune(url, record, workers=workers)
    for trial in stored_trials(url):
        assert trial.outcome == Outcome.COMPLETED and trial.measurement.timing is not None
        assert trial.scores.cost_usd_per_million_samples and trial.scores.quality is None


def test_stopping_asks_no_more_finishes_what_runs_and_loses_nothing(url, workers):
    stop = StopSwitch()

    def stop_after_five(event):
        if isinstance(event, TrialTold) and event.trial.number >= 5 and stop.level == 0:
            stop.press()

    record = make_record(trials=40)
    result = tune(url, record, workers=workers, stop=stop, listen=stop_after_five)
    assert result.state == StudyState.INTERRUPTED
    states = Counter(t.state for t in stored_trials(url))
    assert states[TrialState.LEASED] == 0 and sum(states.values()) < 12
    tune(url, record, workers=workers)
    told = [t for t in stored_trials(url) if t.state == TrialState.TOLD]
    assert len(told) == 40 and len({t.config for t in told}) == 40


def test_a_second_driver_is_refused_while_the_first_lives(url, workers, tmp_path):
    driver = start_driver(url, f"simulated:log={tmp_path}", trials=200)
    try:
        wait_for_trials(url, 3)
        with pytest.raises(StudyBusyError, match=str(driver.pid)):
            tune(url, make_record(), workers=workers)
    finally:
        driver.kill()
        driver.wait()


def start_driver(url, workload, kind="local", *, trials):
    arguments = [url, "study", workload, str(trials), kind]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.autotune.tuning", *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for_trials(url, count, timeout_seconds=60):
    until = time.monotonic() + timeout_seconds
    store = SqlStore.open(url)
    while "study" not in {s.name for s in store.studies()} or len(store.trials("study")) < count:
        assert time.monotonic() < until, f"fewer than {count} trials in {timeout_seconds} s"
        time.sleep(0.1)
    store.close()


def kill_random(chance, driver):
    """Kill a slot or a trial, and return which; None when there is none just now."""
    slots = [p for p in descendants(driver.pid) if "SlotActor" in command_of(p)]
    hosts = [p for slot in slots for p in slot.children() if "forkserver" in command_of(p)]
    trials = [p for host in hosts for p in host.children()]
    kind, victims = chance.choice([("slot", slots), ("trial", trials), ("trial", trials)])
    for victim in victims[:1]:
        with suppress(psutil.NoSuchProcess):
            victim.kill()
            return kind
    return None


def command_of(process):
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


@pytest.mark.slow
@pytest.mark.ray
def test_driver_slots_and_trials_killed_at_random_lose_no_measurement_and_repeat_no_lease(
    url, workers, tmp_path
):
    chance = random.Random(0)
    workload = f"simulated:log={tmp_path}"
    killed = Counter()
    for count in (8, 25, 45):
        driver = start_driver(url, workload, "ray", trials=60)
        for before in (count - 4, count - 2, count):
            wait_for_trials(url, before)
            time.sleep(chance.random() * 0.3)
            killed[kill_random(chance, driver)] += 1
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    assert killed["slot"] > 0 and killed["trial"] > 0
    before = {t.number: t.measurement for t in stored_trials(url) if t.measurement is not None}
    tune(url, make_record("study", workload, trials=60), workers=workers)
    trials = {t.number: t for t in stored_trials(url)}
    assert all(trials[number].measurement == found for number, found in before.items())
    told = [t for t in trials.values() if t.state == TrialState.TOLD]
    assert len(told) == 60 and len({t.config for t in told}) == 60
    assert {t.state for t in trials.values()} <= {TrialState.TOLD, TrialState.LOST}
    assert optuna_states(url)["RUNNING"] == 0
    leases = [line.split()[1] for line in (tmp_path / "runs").read_text().splitlines()]
    assert len(set(leases)) == len(leases)


def test_a_prediction_that_a_dead_driver_left_half_told_is_made_again(url, workers):
    record = make_record(trials=6)
    tune(url, record, workers=workers)
    configs = record.spec.space.configs(DeviceFacts())
    store = SqlStore.open(url)
    with opened_storage(url) as storage:
        optuna = OptunaStudy(storage, record.spec, configs, record.facts.quality_direction)
        number, config, _ = optuna.ask()
        predicted = make_trial(
            number,
            config=config,
            source=Source.PREDICTED,
            outcome=Outcome.OUT_OF_MEMORY,
            reason="not run",
        )
        store.open_trial(predicted)
    store.close()
    tune(url, make_record(trials=8), workers=workers)
    states = {t.number: t.state for t in stored_trials(url)}
    assert states[number] == TrialState.LOST and optuna_states(url)["RUNNING"] == 0
