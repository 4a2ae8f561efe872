import math
from dataclasses import replace

import pytest

from trials.spec import TimingPolicy
from trials.timing import (
    StepReading,
    half_width,
    is_beaten,
    is_enough,
    skips_too_much,
    timed_steps,
    timing_of,
)

POLICY = TimingPolicy(min_steps=3, max_steps=100, max_seconds=10.0, relative_half_width=0.02)


def readings(*seconds, skipped=()):
    return [
        StepReading(
            seconds=value, data_wait_seconds=0, units=1, is_skipped=index in skipped, loss=1.0
        )
        for index, value in enumerate(seconds)
    ]


def test_the_half_width_is_students():
    # 1, 2, 3: standard deviation 1, t(0.975, 2) = 4.303, over the root of 3.
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.303 / math.sqrt(3))


def test_one_value_says_nothing_of_its_spread():
    assert half_width([1.0]) == math.inf


def test_the_half_width_stays_monotone_beyond_the_table():
    widths = [half_width([1.0, 2.0] * (n // 2)) for n in range(20, 80, 2)]
    assert widths == sorted(widths, reverse=True)


def test_steady_steps_are_enough_at_once():
    assert is_enough(readings(1.0, 1.0, 1.0), 0.1, POLICY)


def test_noisy_steps_are_timed_until_the_time_is_up():
    noisy = readings(1.0, 2.0, 3.0, 1.0)
    assert not is_enough(noisy, 0.1, POLICY)
    assert is_enough(noisy, 10.0, POLICY)


def test_two_steps_are_never_enough_however_long_they_took():
    assert not is_enough(readings(99.0, 99.0), 999.0, POLICY)


def test_timing_stops_at_the_most_steps():
    assert is_enough(readings(*[1.0, 5.0] * 50), 0.1, POLICY)


def test_six_skipped_then_fifty_good_counts_from_the_first_good():
    steps = readings(*[0.1] * 6, *[1.0] * 50, skipped=range(6))
    assert not skips_too_much(steps)
    assert [step.seconds for step in timed_steps(steps)] == [1.0] * 50


@pytest.mark.parametrize("skipped", [range(15), range(5, 20), [i for i in range(20) if i % 4]])
def test_fifteen_of_twenty_skipped_is_no_throughput(skipped):
    assert skips_too_much(readings(*[0.1] * 20, skipped=skipped))


def test_an_early_skip_in_a_short_run_is_normal():
    assert not skips_too_much(readings(0.1, 0.1, 1.0, 1.0, 1.0, skipped=(0, 1)))


def test_a_timing_counts_the_steps_that_were_taken():
    timing = timing_of(
        readings(5.0, 5.0, skipped=[0]),
        readings(1.0, 9.0, 3.0, skipped=[1]),
        samples_per_step=8,
        warm_up_seconds=10.0,
    )
    assert timing.step_seconds == (1.0, 3.0) and timing.mean_seconds == 2.0
    assert (timing.low_seconds, timing.high_seconds) == (0.0, 2.0 + half_width([1.0, 3.0]))
    assert (timing.optimizer_steps, timing.skipped_steps) == (3, 2)
    assert (timing.samples_per_step, timing.units_per_step) == (8, 1)


def waits(*seconds):
    found = [
        replace(r, data_wait_seconds=s) for s, r in zip(seconds, readings(*seconds), strict=True)
    ]
    return timing_of([], found, samples_per_step=1, warm_up_seconds=0.0).data_wait_seconds


def test_the_first_wait_starts_the_loader_and_does_not_count():
    assert waits(5.0, 0.1, 0.3) == pytest.approx(0.2)


def test_of_a_single_step_its_wait_counts():
    assert waits(5.0) == 5.0


@pytest.mark.parametrize(
    ("seconds", "limit", "is_over"),
    [
        ((2.0, 2.1, 2.2), 1.5, True),
        ((2.0, 2.1, 2.2), 1.9, False),  # the mean may be 1.85
        ((2.0, 2.1), 1.5, False),
        ((2.0, 2.1, 2.2), None, False),
    ],
)
def test_timing_ends_early_once_the_mean_is_surely_too_long(seconds, limit, is_over):
    assert is_beaten(readings(*seconds), POLICY, limit) == is_over
