from dataclasses import replace

import pytest

from autotune.reruns import Rerun, nothing_again, rerun_of, reruns_of, verdict_text
from tests.factories import (
    MIB,
    make_measurement,
    make_oom,
    make_stored,
    make_timing,
    make_trial,
)
from trials.measurement import Failure, Measurement, Outcome, Where

BUDGET = 600 * MIB
HOST = Failure(reason="host out of memory", phase="build", where=Where.HOST)
FAULT = Measurement(outcome=Outcome.CRASHED, failure=Failure(reason="SIGKILL", phase="build"))


def taking(peak_bytes):
    measurement = make_measurement()
    memory = replace(measurement.memory, peak_device_bytes=peak_bytes, peak_reserved_bytes=None)
    return replace(measurement, memory=memory)


@pytest.mark.parametrize(
    ("measurement", "objection"),
    [
        (taking(BUDGET * 98 // 100), ""),
        (taking(BUDGET * 98 // 100 + 1), "it took 588 MiB of 600 MiB, and is to leave 2% free"),
        (make_oom(), "out of memory in warm-up, needs at least 900 MiB, has 600 MiB"),
        (replace(make_oom(), failure=HOST), "out of host memory in build"),
    ],
    ids=["within", "over", "out of memory", "out of host memory"],
)
def test_a_second_run_confirms_within_the_margin_alone(measurement, objection):
    rerun = rerun_of([make_stored(measurement)], BUDGET)
    assert (rerun.objection, rerun.is_confirmed) == (objection, not objection)


def test_what_the_allocator_reserves_counts_where_it_is_known():
    measurement = taking(MIB)
    reserved = replace(measurement.memory, peak_reserved_bytes=BUDGET)
    assert not rerun_of([make_stored(replace(measurement, memory=reserved))], BUDGET).is_confirmed


def test_a_fault_and_a_smaller_budget_say_nothing():
    smaller = make_stored(make_oom(), budget_bytes=BUDGET - 1)
    assert rerun_of([make_stored(FAULT), smaller], BUDGET) is None
    older = make_stored(taking(MIB))
    assert rerun_of([make_stored(FAULT), smaller, older], BUDGET).is_confirmed


def test_the_newest_run_that_says_something_decides():
    good, bad = make_stored(taking(MIB)), make_stored(make_oom())
    assert not rerun_of([bad, good], BUDGET).is_confirmed
    assert reruns_of({3: [good, bad], 4: [make_stored(FAULT)]}, BUDGET).keys() == {3}


def test_the_verdict_says_what_was_confirmed_and_what_was_not():
    good, bad = (rerun_of([make_stored(m)], BUDGET) for m in (taking(23 * MIB), make_oom()))
    trial = make_trial(2, measurement=taking(23 * MIB))
    told = verdict_text(trial, {1: bad, 2: good}).splitlines()
    assert told[0].startswith("Trial 1 is not recommended: run a second time, out of memory in")
    assert told[1].startswith("Confirmed by a second run: peak 23 MiB, ")
    assert verdict_text(trial, {}) == "Not confirmed: no second run of it has completed.\n"
    assert "trial 1: out of memory in warm-up" in nothing_again({1: bad})


def test_a_second_run_at_another_speed_is_doubted():
    slow = make_measurement(timing=make_timing(2.0))
    trial = make_trial(2, measurement=slow)
    told = verdict_text(trial, {2: Rerun(measurement=make_measurement(timing=make_timing(0.5)))})
    assert "its speed is not: it did 4 samples/s the first time" in told
    assert "speed" not in verdict_text(trial, {2: Rerun(measurement=slow)})
