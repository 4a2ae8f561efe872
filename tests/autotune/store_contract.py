"""What every study store must do. Inherit it, and give a fresh ``store``."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autotune.errors import (
    LeaseLostError,
    StoreError,
    StudyBusyError,
    StudyExistsError,
    StudyNotFoundError,
)
from autotune.records import (
    Budget,
    Owner,
    Scores,
    Source,
    StudyState,
    TrialRecord,
    TrialState,
    WorkTime,
)
from autotune.store.base import StudyStore
from autotune.store.leases import this_process
from tests.factories import (
    make_config,
    make_environment,
    make_key,
    make_measurement,
    make_oom,
    make_quality,
    make_study_record,
    make_trial,
)
from trials.measurement import Failure, Outcome

WORKED = WorkTime(wall_seconds=1.5, device_seconds=2.5)
ELSEWHERE = Owner(host="elsewhere", pid=1, started_at=0.0)
SCORES = Scores(
    cost_usd_per_million_samples=12.5,
    cost_half_width=0.25,
    throughput_samples_per_second=16.0,
    throughput_half_width=0.3,
    quality=2.4956,
    quality_half_width=0.001,
)


def open_and_measure(store: StudyStore, number: int, measurement=None, **override) -> TrialRecord:
    trial = make_trial(number, **override)
    store.open_trial(trial)
    key = make_key(trial)
    assert store.record_measurement(trial, key, None, measurement or make_measurement())
    return store.trials(trial.study)[number]


class StudyStoreContract:
    @pytest.fixture
    def study(self, store):
        """Name of a study in the store."""
        store.create_study(make_study_record("study"))
        return "study"

    def test_a_study_comes_back_as_it_went_in(self, store):
        record = make_study_record("a", worked=WORKED, stop_reason="so", state="finished")
        store.create_study(record)
        assert store.study("a") == record

    def test_a_name_is_taken_once(self, store, study):
        with pytest.raises(StudyExistsError, match="'study' exists already"):
            store.create_study(make_study_record(study))

    def test_an_unknown_study_is_answered_with_those_there_are(self, store, study):
        for ask in (store.study, store.trials, store.front, store.delete_study):
            with pytest.raises(StudyNotFoundError, match=r"'stady'.*mean 'study'"):
                ask("stady")

    def test_an_empty_store_says_that_it_is(self, store):
        with pytest.raises(StudyNotFoundError, match="none yet"):
            store.study("a")

    def test_studies_are_listed_newest_first(self, store):
        for day, name in enumerate(("old", "older", "new")):
            created_at = datetime(2026, 9, [2, 1, 3][day], tzinfo=UTC)
            store.create_study(make_study_record(name, created_at=created_at))
        assert [line.name for line in store.studies()] == ["new", "old", "older"]

    def test_a_summary_counts_told_trials_by_outcome(self, store, study):
        for number, measurement in enumerate([make_measurement(), make_oom(), make_oom()]):
            trial = open_and_measure(store, number, measurement)
            store.tell_trial(trial, SCORES, 0.0)
        open_and_measure(store, 3)
        (line,) = store.studies()
        assert (line.num_trials, line.num_completed, line.num_out_of_memory) == (3, 1, 2)

    def test_a_study_without_trials_counts_none(self, store, study):
        (line,) = store.studies()
        assert (line.num_trials, line.num_completed, line.num_out_of_memory) == (0, 0, 0)

    def test_deleting_a_study_keeps_what_was_measured(self, store, study):
        trial = open_and_measure(store, 0)
        store.tell_trial(trial, SCORES, 0.0)
        store.set_front(study, [0], recommended=0)
        store.record_quality(make_quality())
        store.delete_study(study)
        assert store.studies() == []
        assert len(store.measurements(make_key(trial))) == 1
        assert len(store.qualities("byte-gpt-1", make_environment().hash, 64)) == 1

    def test_a_name_is_free_once_its_study_is_deleted(self, store, study):
        open_and_measure(store, 0)
        store.delete_study(study)
        store.create_study(make_study_record(study))
        assert store.trials(study) == []
        assert store.front(study) == []

    def test_each_claim_has_a_higher_epoch(self, store, study):
        first = store.claim(study, this_process(), 60)
        store.release(study, first, StudyState.INTERRUPTED, "stopped")
        assert store.claim(study, this_process(), 60) > first

    def test_a_claim_keeps_the_budget_that_it_is_given(self, store, study):
        epoch = store.claim(study, this_process(), 60, Budget(trials=7))
        store.release(study, epoch, StudyState.INTERRUPTED, "stopped")
        store.claim(study, this_process(), 60)
        record = store.study(study)
        assert record.spec == replace(make_study_record().spec, budget=Budget(trials=7))

    def test_a_claimed_study_is_running(self, store):
        store.create_study(make_study_record(state=StudyState.INTERRUPTED, stop_reason="ctrl-c"))
        store.claim("study", this_process(), 60)
        assert store.study("study").state == StudyState.RUNNING
        assert store.study("study").stop_reason == ""

    def test_a_living_driver_keeps_its_study(self, store, study):
        store.claim(study, this_process(), 60)
        with pytest.raises(StudyBusyError, match=rf"process {this_process().pid} on .* \d\d s"):
            store.claim(study, ELSEWHERE, 60)
        with pytest.raises(StudyBusyError):
            store.delete_study(study)

    def test_a_lease_that_ran_out_is_free(self, store, study):
        store.claim(study, ELSEWHERE, -1)
        assert store.claim(study, this_process(), 60) == 2

    def test_a_dead_process_of_this_machine_holds_nothing(self, store, study):
        store.claim(study, replace(this_process(), started_at=1.0), 60)
        assert store.claim(study, this_process(), 60) == 2

    def test_a_silent_driver_of_another_machine_is_waited_for(self, store, study):
        store.claim(study, ELSEWHERE, 60)
        with pytest.raises(StudyBusyError, match="process 1 on elsewhere"):
            store.claim(study, this_process(), 60)

    def test_an_unknown_study_cannot_be_claimed(self, store):
        with pytest.raises(StudyNotFoundError):
            store.claim("study", this_process(), 60)

    def test_renewing_prolongs_and_adds_up_wall_time(self, store, study):
        epoch = store.claim(study, ELSEWHERE, -1)
        store.renew(study, epoch, 60, WORKED)
        store.renew(study, epoch, 60, WorkTime(wall_seconds=2.0, device_seconds=0.5))
        assert store.study(study).worked == WorkTime(wall_seconds=3.5, device_seconds=3.0)
        with pytest.raises(StudyBusyError):
            store.claim(study, this_process(), 60)

    def test_a_lease_taken_over_cannot_be_renewed(self, store, study):
        epoch = store.claim(study, ELSEWHERE, -1)
        store.claim(study, this_process(), 60)
        with pytest.raises(LeaseLostError, match="'study'"):
            store.renew(study, epoch, 60, WORKED)

    def test_a_released_lease_cannot_be_renewed(self, store, study):
        epoch = store.claim(study, this_process(), 60)
        store.release(study, epoch, StudyState.FINISHED, "budget spent")
        with pytest.raises(LeaseLostError):
            store.renew(study, epoch, 60, WORKED)

    def test_a_release_says_how_the_study_stands(self, store, study):
        epoch = store.claim(study, this_process(), 60)
        store.release(study, epoch, StudyState.FINISHED, "budget spent")
        assert store.study(study).state == StudyState.FINISHED
        assert store.study(study).stop_reason == "budget spent"

    def test_a_late_release_changes_nothing(self, store, study):
        epoch = store.claim(study, ELSEWHERE, -1)
        store.claim(study, this_process(), 60)
        store.release(study, epoch, StudyState.FAILED, "late")
        assert store.study(study).state == StudyState.RUNNING

    def test_a_trial_comes_back_as_it_went_in(self, store, study):
        trial = make_trial(
            source=Source.PREDICTED, attempt=2, slot="slot-1", outcome=Outcome.OUT_OF_MEMORY
        )
        trial = replace(trial, reason="too big", scores=SCORES, violation=0.5)
        store.open_trial(trial)
        assert store.trials(study) == [trial]

    def test_trials_are_listed_by_number(self, store, study):
        for number in (2, 0, 10, 1):
            store.open_trial(make_trial(number))
        assert [trial.number for trial in store.trials(study)] == [0, 1, 2, 10]

    def test_a_trial_needs_its_study(self, store):
        with pytest.raises(StudyNotFoundError):
            store.open_trial(make_trial())

    def test_a_number_is_given_once_per_study(self, store, study):
        store.create_study(make_study_record("other"))
        store.open_trial(make_trial(0))
        store.open_trial(make_trial(0, study="other"))
        with pytest.raises(StoreError, match="refused a row"):
            store.open_trial(make_trial(0, config=make_config(amp_dtype="bf16")))
        assert store.trials(study) == [make_trial(0)]

    def test_a_measurement_is_attached_to_its_trial(self, store, study):
        trial = open_and_measure(store, 0, make_oom())
        assert trial.state == TrialState.MEASURED
        assert trial.outcome == Outcome.OUT_OF_MEMORY
        assert trial.reason == make_oom().reason
        assert trial.measurement == make_oom()
        assert trial.measurement_id == store.measurements(make_key(trial))[0].id

    def test_a_late_result_is_kept_as_evidence_only(self, store, study):
        store.open_trial(make_trial(0, lease="first"))
        store.lose_trial(study, 0, "slot died")
        late = make_trial(0, lease="first")
        assert not store.record_measurement(late, make_key(late), None, make_measurement())
        assert len(store.measurements(make_key(late))) == 1
        assert store.trials(study)[0].state == TrialState.LOST

    def test_a_result_under_another_lease_is_not_attached(self, store, study):
        store.open_trial(make_trial(0, lease="second"))
        late = make_trial(0, lease="first")
        assert not store.record_measurement(late, make_key(late), None, make_measurement())
        assert store.trials(study) == [make_trial(0, lease="second")]

    def test_a_second_result_is_not_attached(self, store, study):
        trial = open_and_measure(store, 0, make_oom())
        again = make_trial(0)
        assert not store.record_measurement(again, make_key(again), None, make_measurement())
        assert store.trials(study) == [trial]

    def test_a_cached_trial_is_measured_at_once(self, store, study):
        (found,) = store.measurements(make_key(open_and_measure(store, 0)))
        cached = make_trial(1, source=Source.CACHED, state=TrialState.MEASURED, lease="")
        cached = replace(cached, outcome=Outcome.COMPLETED, measurement_id=found.id)
        store.open_trial(cached)
        assert store.trials(study)[1] == replace(cached, measurement=found.measurement)

    def test_measurements_after_a_trials_own_are_found_by_its_number(self, store, study):
        old = open_and_measure(store, 0)
        open_and_measure(store, 1, config=make_config(micro_batch_size=64))
        assert store.later_measurements(study) == {}
        again, last = make_measurement(process_seconds=2.0), make_oom()
        for budget, measurement in ((100, again), (None, last)):
            assert not store.record_measurement(old, make_key(old), budget, measurement)
        other = make_key(old, protocol="protocol-2")
        store.record_measurement(old, other, 100, again)
        (found,) = store.later_measurements(study).values()
        assert store.later_measurements(study).keys() == {0}
        assert [(m.memory_budget_bytes, m.measurement) for m in found] == [
            (None, last),
            (100, again),
        ]
        assert store.trials(study)[0] == old

    def test_a_trial_that_never_completed_has_no_second_run(self, store, study):
        failed = open_and_measure(store, 0, make_oom())
        store.record_measurement(failed, make_key(failed), 2**31, make_measurement())
        assert store.later_measurements(study) == {}

    def test_measurements_are_listed_newest_first(self, store, study):
        first, second = make_measurement(), make_oom()
        for budget, measurement in ((100, first), (None, second)):
            store.record_measurement(make_trial(7), make_key(), budget, measurement)
        found = store.measurements(make_key())
        assert [m.measurement for m in found] == [second, first]
        assert [m.memory_budget_bytes for m in found] == [None, 100]

    @pytest.mark.parametrize("part", ["workload", "config", "environment", "protocol"])
    def test_a_measurement_of_another_key_is_not_found(self, store, part):
        store.record_measurement(make_trial(), make_key(), None, make_measurement())
        other = make_config(optimizer_bits=8) if part == "config" else "other"
        assert store.measurements(make_key(**{part: other})) == []

    def test_byte_counts_beyond_32_bits_are_kept(self, store, study):
        h200 = 141 * 1024**3
        trial = make_trial(0)
        store.open_trial(trial)
        store.record_measurement(trial, make_key(trial), h200, make_measurement())
        assert store.measurements(make_key(trial))[0].memory_budget_bytes == h200

    def test_a_reason_in_broken_text_loses_no_result(self, store, study):
        broken = Failure(reason="killed\0 by \udcff", phase="timing")
        trial = open_and_measure(store, 0, make_measurement(failure=broken))
        assert trial.reason == "killed by ?"

    def test_a_second_quality_run_of_a_seed_replaces_the_first(self, store):
        for value in (2.5, 2.4):
            store.record_quality(make_quality(value))
        (found,) = store.qualities("byte-gpt-1", make_environment().hash, 64)
        assert found == make_quality(2.4)

    def test_qualities_are_listed_by_numerics_and_seed(self, store):
        for numerics, seed in (("b", 0), ("a", 10), ("a", 2)):
            store.record_quality(make_quality(2.5 - seed, seed=seed, numerics=numerics))
        found = store.qualities("byte-gpt-1", make_environment().hash, 64)
        assert [(q.key.numerics, q.seed) for q in found] == [("a", 2), ("a", 10), ("b", 0)]

    @pytest.mark.parametrize("part", ["workload", "environment", "samples"])
    def test_a_quality_run_of_another_kind_is_not_found(self, store, part):
        store.record_quality(make_quality(**{part: 65 if part == "samples" else "other"}))
        assert store.qualities("byte-gpt-1", make_environment().hash, 64) == []

    def test_telling_keeps_the_reason_or_sets_a_new_one(self, store, study):
        trial = open_and_measure(store, 0, make_oom())
        store.tell_trial(replace(trial, reason=""), SCORES, 1.0)
        assert store.trials(study)[0].reason == trial.reason != ""
        store.tell_trial(replace(trial, reason="quality run lost"), SCORES, 1.0)
        assert store.trials(study)[0].reason == "quality run lost"

    def test_telling_sets_scores_and_violation(self, store, study):
        trial = open_and_measure(store, 0)
        store.tell_trial(trial, SCORES, -0.25)
        told = replace(trial, state=TrialState.TOLD, scores=SCORES, violation=-0.25)
        assert store.trials(study) == [told]

    def test_a_told_trial_can_be_told_anew(self, store, study):
        trial = open_and_measure(store, 0)
        store.tell_trial(trial, SCORES, 0.0)
        store.tell_trial(trial, Scores(), 0.0)
        assert store.trials(study)[0].scores == Scores()

    def test_a_predicted_trial_can_be_told(self, store, study):
        store.open_trial(make_trial(0, source=Source.PREDICTED, outcome=Outcome.OUT_OF_MEMORY))
        store.tell_trial(make_trial(0), Scores(), 0.5)
        assert store.trials(study)[0].state == TrialState.TOLD

    def test_a_trial_without_result_cannot_be_told(self, store, study):
        store.open_trial(make_trial(0))
        with pytest.raises(StoreError, match="no result"):
            store.tell_trial(make_trial(0), SCORES, 0.0)

    def test_losing_a_trial_keeps_the_reason(self, store, study):
        store.open_trial(make_trial(0))
        store.lose_trial(study, 0, "slot died")
        lost = replace(make_trial(0), state=TrialState.LOST, reason="slot died")
        assert store.trials(study) == [lost]

    def test_a_measured_trial_cannot_be_lost(self, store, study):
        trial = open_and_measure(store, 0)
        store.lose_trial(study, 0, "too late")
        assert store.trials(study) == [trial]

    def test_a_front_keeps_its_order(self, store, study):
        for number in range(4):
            open_and_measure(store, number)
        store.set_front(study, [3, 0, 2], recommended=0)
        assert [trial.number for trial in store.front(study)] == [3, 0, 2]
        assert store.front(study)[0] == store.trials(study)[3]
        assert store.recommended(study) == 0

    def test_a_new_front_replaces_the_old(self, store, study):
        for number in range(2):
            open_and_measure(store, number)
        store.set_front(study, [0, 1], recommended=1)
        store.set_front(study, [1], recommended=None)
        assert [trial.number for trial in store.front(study)] == [1]
        assert store.recommended(study) is None

    def test_a_front_may_be_empty(self, store, study):
        open_and_measure(store, 0)
        store.set_front(study, [0], recommended=0)
        store.set_front(study, [], recommended=None)
        assert store.front(study) == []

    def test_studies_keep_their_fronts_apart(self, store, study):
        store.create_study(make_study_record("other"))
        store.open_trial(make_trial(0, study="other"))
        store.open_trial(make_trial(0))
        store.set_front(study, [0], recommended=0)
        store.set_front("other", [0], recommended=None)
        assert (store.recommended(study), store.recommended("other")) == (0, None)
