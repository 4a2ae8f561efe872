"""Runs under preemption: Daly's vectors, and a simulation that knows no formula."""

import math

import numpy as np
import pytest

from autotune.prices.spot import (
    Preemption,
    daly_first_interval,
    daly_interval,
    expect_on_spot,
    state_bytes,
    wall_seconds,
    young_interval,
)
from tests.factories import make_config, make_measurement, make_memory

MINUTE, HOUR = 60.0, 3600.0
RUNS = 4000
"""Simulated for each case; the mean is then known to about 0.3 %."""


def make_risk(**override):
    values = {
        "mtbf_seconds": 6 * HOUR,
        "restart_seconds": 10 * MINUTE,
        "checkpoint_seconds": 5 * MINUTE,
    }
    return Preemption(**{**values, **override})


def passed_without_preemption(needed, lost, mtbf, random):
    """Add to each run the time of attempts until one is as long as needed; vectorised."""
    todo = np.arange(len(lost))
    while len(todo):
        drawn = random.exponential(mtbf, len(todo))
        has_passed = drawn >= needed
        lost[todo] += np.where(has_passed, needed, drawn)
        todo = todo[~has_passed]
        yield todo


def simulate(work, interval, risk, random):
    """Return mean wall seconds of ``RUNS`` runs, drawing every preemption.

    Preemptions are memoryless, so those of each stretch are drawn afresh.
    """
    times = np.zeros(RUNS)
    while work > 0:
        stretch = min(work, interval)
        for failed in passed_without_preemption(
            stretch + risk.checkpoint_seconds, times, risk.mtbf_seconds, random
        ):
            again = np.zeros(len(failed))
            for _ in passed_without_preemption(
                risk.restart_seconds, again, risk.mtbf_seconds, random
            ):
                pass
            times[failed] += again
        work -= stretch
    return times.mean()


@pytest.mark.parametrize(("mtbf", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_dalys_published_intervals(mtbf, minutes):
    found = daly_interval(5 * MINUTE, mtbf * HOUR) / MINUTE
    assert found == pytest.approx(minutes, abs=0.5 if minutes > 10 else 0.05)


def test_the_orders_of_approximation():
    assert young_interval(300, 86400) == pytest.approx(7200)
    assert daly_first_interval(300, 86400, 600) == pytest.approx(math.sqrt(600 * 87000) - 300)
    assert daly_first_interval(300, 10, 10) == 0
    assert daly_interval(300, 100) == 100


@pytest.mark.parametrize("mtbf", [24 * HOUR, 6 * HOUR, HOUR])
@pytest.mark.parametrize("minutes", [30, 57])
def test_a_simulation_agrees_within_a_hundredth(mtbf, minutes):
    risk = make_risk(mtbf_seconds=mtbf)
    work = 50 * HOUR
    simulated = simulate(work, minutes * MINUTE, risk, np.random.default_rng(1))
    assert wall_seconds(work, minutes * MINUTE, risk) == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize("mtbf", [24 * HOUR, 6 * HOUR, HOUR, 0.25 * HOUR])
def test_dalys_interval_is_as_good_as_the_best(mtbf):
    """Over a long run, and all intervals 1 % apart; none is better by more than 1 %."""
    risk = make_risk(mtbf_seconds=mtbf)
    found = wall_seconds(500 * HOUR, daly_interval(5 * MINUTE, mtbf), risk)
    tried = [MINUTE * 1.01**n for n in range(600)]
    best = min(wall_seconds(500 * HOUR, each, risk) for each in tried)
    assert found <= best * 1.01


def test_a_run_that_would_hardly_end_has_no_end():
    found = expect_on_spot(100 * HOUR, make_risk(mtbf_seconds=5.0))
    assert math.isinf(found.wall_seconds)


def test_a_short_run_saves_at_its_end_alone():
    found = expect_on_spot(10 * MINUTE, make_risk())
    assert found.interval_seconds is None


def test_without_a_checkpoint_to_write_work_is_lost_to_the_end():
    risk = make_risk(checkpoint_seconds=0.0, restart_seconds=0.0)
    found = expect_on_spot(6 * HOUR, risk)
    assert found.wall_seconds == pytest.approx(6 * HOUR * (math.e - 1))


def test_eight_bit_state_makes_spot_faster():
    """The same times; a checkpoint of 1 + 2 GiB takes longer than one of 1 + 0.5."""
    times = []
    for state in (2 * 2**30, 2**29):
        memory = make_memory(by_kind={"parameters": 2**30, "optimizer_state": state})
        size = state_bytes(make_config(), make_measurement(memory=memory))
        assert size == 2**30 + state
        risk = make_risk(checkpoint_seconds=size / 1e7)
        times.append(expect_on_spot(50 * HOUR, risk).wall_seconds)
    assert times[1] < times[0]


def test_state_counts_wherever_it_lies_and_all_of_its_shards():
    memory = make_memory(
        by_kind={"parameters": 100, "gradients": 100, "optimizer_state": 0},
        elsewhere={"optimizer_state": {"host": 40, "disk": 10}},
    )
    measured = make_measurement(memory=memory, num_ranks=2)
    assert state_bytes(make_config(zero_stage=0), measured) == 150
    assert state_bytes(make_config(zero_stage=2), measured) == 200
    assert state_bytes(make_config(zero_stage=3), measured) == 300
