import json
from dataclasses import replace

import pytest

from autotune.errors import (
    NoMeasurementsError,
    NothingFitsError,
    SettingsError,
    UnsupportedExportError,
)
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
from trials.spec import SWAP_FOLDER, Through

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


@pytest.mark.parametrize(
    ("through", "name", "text"),
    [
        (Through.TRANSFORMERS, "transformers.json", '"max_steps": 10'),
        (Through.DEEPSPEED, "deepspeed.json", '"train_micro_batch_size_per_gpu": 4'),
        (Through.LIGHTNING, "lightning.yaml", "max_steps: 10"),
    ],
)
def test_the_files_that_a_program_reads_go_with_it(store, through, name, text):
    workers = Scripted()
    verify_on(store, RECORD, workers, request(number=1, through=through), lambda *_: None)
    assert set(workers.specs[-1].handed) == {"config.json", name}
    assert text in workers.specs[-1].handed[name]


def add_trial(store, **knobs):
    config = make_config(**knobs)
    trial = make_trial(2, config=config, state=TrialState.LEASED)
    store.open_trial(trial)
    store.record_measurement(trial, make_key(config=config), None, make_measurement())
    store.tell_trial(trial, Scores(), 0.0)


FSDP = {"zero_stage": 3, "sharding": "fsdp"}
ADAPTERS = {"lora_rank": 8}


@pytest.mark.parametrize(
    ("through", "knobs", "words"),
    [
        (Through.ACCELERATE, {"zero_stage": 2}, "one process .* or use --through deepspeed"),
        (Through.ACCELERATE, FSDP, "one process .* or launch the exported file itself"),
        (Through.DEEPSPEED, FSDP, "sharding=fsdp is PyTorch's fully_shard"),
        (Through.DEEPSPEED, ADAPTERS, "lora_rank=8: a file for deepspeed has no key for it"),
        (Through.LIGHTNING, ADAPTERS, "lora_rank=8: a file for lightning has no key for it"),
        (Through.LIGHTNING, {"zero_stage": 2}, "zero_stage=2 with sharding=deepspeed: Lightning"),
    ],
)
def test_what_a_file_does_not_say_is_refused_before_any_run(store, through, knobs, words):
    add_trial(store, **knobs)
    workers = Scripted()
    with pytest.raises((SettingsError, UnsupportedExportError), match=words):
        verify_on(store, RECORD, workers, request(number=2, through=through), lambda *_: None)
    assert workers.specs == []


def test_state_on_disk_goes_to_the_folder_of_the_run(store):
    add_trial(store, zero_stage=3, offload_target="nvme")
    on_disk = replace(RECORD, spec=replace(RECORD.spec, nvme_path="/mnt/fast"))
    workers = Scripted()
    verify_on(
        store, on_disk, workers, request(number=2, through=Through.DEEPSPEED), lambda *_: None
    )
    zero = json.loads(workers.specs[-1].handed["deepspeed.json"])["zero_optimization"]
    assert zero["offload_optimizer"]["nvme_path"] == SWAP_FOLDER
    assert workers.specs[-1].nvme_path == "/mnt/fast"
