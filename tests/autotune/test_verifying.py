from dataclasses import replace

import pytest

from autotune.errors import NoMeasurementsError, NothingFitsError, SettingsError
from autotune.records import Scores, TrialState
from autotune.store.sql import SqlStore
from autotune.verifying import Request, verdicts_of, verify_on
from autotune.workers import Finished
from tests.autotune.test_verdicts import ran
from tests.factories import (
    make_config,
    make_facts,
    make_key,
    make_measurement,
    make_study_record,
    make_trial,
)
from trials.spec import Through

RECORD = make_study_record(facts=make_facts(learning_rate=1e-3))
BEST, NEXT = make_config(), make_config(checkpoint_interval=1)


class Scripted:
    """Workers on which the best config takes more memory through a program than by itself."""

    def __init__(self):
        self.specs = []

    def submit(self, spec):
        self.specs.append(spec)
        return "slot"

    def collect(self, timeout_seconds):
        spec = self.specs[-1]
        is_larger = spec.config == BEST and spec.through != Through.TRIAL
        found = ran(peak=500 if is_larger else 400)
        return [Finished(trial_id=spec.trial_id, slot="slot", measurement=found)]


@pytest.fixture
def store(tmp_path):
    store = SqlStore.open(str(tmp_path / "studies.db"))
    store.create_study(RECORD)
    for number, config in enumerate((BEST, NEXT)):
        trial = make_trial(number, config=config, state=TrialState.LEASED)
        store.open_trial(trial)
        store.record_measurement(trial, make_key(config=config), None, make_measurement())
        scores = Scores(
            cost_usd_per_million_samples=1.0 + number,
            throughput_samples_per_second=10.0 * (number + 1),
            quality=2.5,
            quality_half_width=0.1,
        )
        store.tell_trial(trial, scores, 0.0)
    store.set_front("study", [0, 1], 0)
    yield store
    store.close()


def request(**override):
    return replace(Request(number=None, through=Through.TORCH, repeats=2), **override)


def test_a_point_that_does_not_hold_gives_way_to_the_next(store):
    workers, told = Scripted(), []
    trial = verify_on(
        store, RECORD, workers, request(), lambda trial, verdict: told.append(verdict.is_verified)
    )
    assert trial.number == 1
    assert told == [False, True]
    assert store.recommended("study") == 1
    assert [spec.through for spec in workers.specs[:3]] == ["trial", "torch", "torch"]
    first, second = (verdicts_of(store, RECORD, trial) for trial in store.trials("study"))
    assert "its peak is 500 MiB" in first[Through.TORCH].objection
    assert second[Through.TORCH].is_verified


def test_a_trial_by_number_stands_or_falls_alone(store):
    with pytest.raises(NothingFitsError, match=r"trial\(s\) 0 of study do not train through to"):
        verify_on(store, RECORD, Scripted(), request(number=0), lambda *_: None)
    assert store.recommended("study") == 0
    with pytest.raises(NoMeasurementsError, match="no trial 7 that completed"):
        verify_on(store, RECORD, Scripted(), request(number=7), lambda *_: None)


def test_the_files_that_a_program_reads_go_with_it(store):
    workers = Scripted()
    verify_on(
        store, RECORD, workers, request(number=1, through=Through.TRANSFORMERS), lambda *_: None
    )
    assert set(workers.specs[-1].handed) == {"config.json", "transformers.json"}
    assert '"max_steps": 10' in workers.specs[-1].handed["transformers.json"]


def test_what_needs_a_launcher_is_refused(store):
    config = make_config(zero_stage=2)
    trial = make_trial(2, config=config, state=TrialState.LEASED)
    store.open_trial(trial)
    store.record_measurement(trial, make_key(config=config), None, make_measurement())
    store.tell_trial(trial, Scores(), 0.0)
    with pytest.raises(SettingsError, match="zero_stage=2: verify trains in one process"):
        verify_on(store, RECORD, Scripted(), request(number=2, through=Through.ACCELERATE), print)
