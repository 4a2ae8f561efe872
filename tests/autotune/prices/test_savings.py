"""Savings against today's configuration; their interval is checked by simulation."""

import math

import numpy as np
import pytest

from autotune.prices.savings import saving, savings_of
from tests.autotune.prices.books import make_trial_on_gpu
from tests.factories import make_scored

Z95 = 1.959964


def test_savings_of_two_trials():
    baseline = make_scored(0, cost=4.0, throughput=100.0, noise=(0.4, 10.0, 0.0))
    chosen = make_scored(1, cost=2.2, throughput=200.0, noise=(0.022, 2.0, 0.0))
    found = savings_of(chosen, baseline)
    assert (found.baseline, found.chosen) == (0, 1)
    assert found.usd.share == pytest.approx(0.45) and found.hours.share == pytest.approx(0.5)
    assert found.usd.least_share < 0.45 < found.usd.most_share
    assert found.usd_of_run(500_000) == pytest.approx(0.9)
    assert found.hours_of_run(720_000) == pytest.approx(1.0)
    assert found.usd.is_sure
    assert str(found.usd).startswith("45.0% less (95 % interval 3")


def test_the_interval_holds_the_true_share_19_times_in_20():
    """20,000 pairs of noisy means of a true ratio of 0.8; covered between 94.5 and 95.5 %."""
    draws = np.random.default_rng(0).normal(size=(2, 20_000))
    before, after = 10 + 0.5 * draws[0], 8 + 0.4 * draws[1]
    hits = 0
    for old, new in zip(before, after, strict=True):
        found = saving(old, new, before_noise=Z95 * 0.5 / old, after_noise=Z95 * 0.4 / new)
        hits += found.least_share <= 0.2 <= found.most_share
    assert 0.945 < hits / 20_000 < 0.955


def test_noise_is_called_noise():
    found = saving(1.0, 0.97, before_noise=0.1, after_noise=0.1)
    assert not found.is_sure and "may be noise" in str(found)


def test_a_baseline_without_a_known_time_leaves_the_end_open():
    found = saving(1.0, 0.5, before_noise=1.2, after_noise=0.1)
    assert found.least_share == -math.inf and "any" in str(found)


def test_a_loss_is_said_as_one():
    assert str(saving(1.0, 1.5, before_noise=0.01, after_noise=0.01)).startswith("50.0% more")


def test_against_itself_nothing_is_saved():
    trial = make_trial_on_gpu(0)
    assert savings_of(trial, trial) is None
