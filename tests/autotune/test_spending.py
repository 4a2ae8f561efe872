import time

import pytest

from autotune.records import Budget, Source, TrialState, WorkTime
from autotune.spending import Spending
from tests.factories import make_measurement, make_oom, make_rates, make_told, make_trial

HOUR = make_measurement(process_seconds=3600.0)


def spending(earlier=None, **limits):
    rates = make_rates(device_usd_per_hour=2.0)
    return Spending(budget=Budget(**limits), rates=rates, earlier=earlier or WorkTime())


def test_nothing_spent_reaches_no_limit():
    assert spending(trials=1, seconds=60, device_seconds=1, usd=0.01).reached() is None


def test_without_limits_nothing_is_ever_reached():
    found = spending()
    found.count_earlier([make_told(number, HOUR) for number in range(1000)])
    assert found.reached() is None


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"device_seconds": 7200.0}, "budget of 7200 s of device time spent"),
        ({"usd": 4.0}, "budget of $4 of device time spent"),
    ],
)
def test_each_limit_is_reached_when_it_is_spent(limit, words):
    found = spending(WorkTime(device_seconds=3600.0), **limit)
    assert found.reached() is None
    found.session_device_seconds = 3600.0
    assert found.reached() == words


def test_trials_are_counted_over_all_sessions():
    found = spending(trials=2)
    found.count_earlier([make_told(0, HOUR)])
    assert found.reached() is None
    found.trials += 1
    assert found.reached() == "budget of 2 trials spent"
    assert found.remedy() == "give --trials N for more than 2 trials"


def test_below_its_limits_a_study_needs_no_remedy():
    assert spending(trials=1).remedy() is None


def test_wall_time_counts_over_all_sessions():
    found = spending(WorkTime(wall_seconds=50.0), seconds=90.0)
    assert found.reached() is None
    found.started = time.monotonic() - 41.0
    assert found.reached() == "budget of 90 s of wall time spent"


def test_device_time_costs_its_rate():
    found = spending(WorkTime(device_seconds=3600.0))
    found.session_device_seconds = 3600.0
    assert found.usd == pytest.approx(4.0)


@pytest.mark.parametrize(
    "free",
    [
        make_told(0, HOUR, source=Source.CACHED),
        make_told(0, source=Source.PREDICTED, measurement=None),
        make_trial(0, state=TrialState.LOST, reason="slot died"),
    ],
    ids=["cached", "predicted", "lost"],
)
def test_only_trials_that_ran_to_a_result_count(free):
    found = spending(trials=1)
    found.count_earlier([free])
    assert found.trials == 0


def test_a_trial_that_waits_for_its_quality_counts():
    found = spending(trials=1)
    found.count_earlier([make_told(0, HOUR, state=TrialState.MEASURED)])
    assert found.reached() == "budget of 1 trials spent"


def test_time_for_a_second_run_is_kept_back_of_time_and_not_of_trials():
    found = spending(WorkTime(device_seconds=3600.0), device_seconds=9000.0, trials=1)
    found.trials = 0
    assert found.reached() is None
    found.reserve(make_measurement(process_seconds=5400.0))
    found.reserve(make_measurement(process_seconds=1.0))
    assert found.reached() == "budget of 9000 s of device time spent"
    assert not found.is_time_up
    found.session_device_seconds = 5400.0
    assert found.is_time_up


def test_no_time_is_kept_back_for_a_trial_that_will_not_run_again():
    found = spending(seconds=10.0)
    found.reserve(make_oom(process_seconds=120.0))
    assert found.reserved == WorkTime() and found.reached() is None


def test_ranks_of_a_group_share_the_wall_time_that_is_kept_back():
    found = spending(seconds=3000.0, device_seconds=7200.0)
    found.reserve(make_measurement(process_seconds=4000.0, num_ranks=2))
    assert found.reserved == WorkTime(wall_seconds=2000.0, device_seconds=4000.0)
    assert found.reached() is None
    found.session_device_seconds = 3200.0
    assert found.reached() == "budget of 7200 s of device time spent"
