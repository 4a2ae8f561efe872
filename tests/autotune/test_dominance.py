import math
from dataclasses import replace

import pytest

from autotune.dominance import beaten_seconds
from autotune.records import Objective, Scores
from tests.factories import make_config, make_rates, make_trial

BOTH = (Objective.COST, Objective.THROUGHPUT)
RATES = replace(make_rates(), device_usd_per_hour=3.6)
CONFIG = make_config(micro_batch_size=5, accumulation_steps=2)


def rival(number=0, *, throughput=110.0, cost=9.0, noise=10.0):
    scores = Scores(
        cost_usd_per_million_samples=cost,
        cost_half_width=1.0,
        throughput_samples_per_second=throughput,
        throughput_half_width=noise,
    )
    return replace(make_trial(number), scores=scores)


def beaten(*rivals, objectives=BOTH, rates=RATES, num_ranks=1):
    return beaten_seconds(CONFIG, rivals, objectives=objectives, rates=rates, num_ranks=num_ranks)


def test_a_step_is_too_long_once_it_loses_in_every_objective():
    """10 samples at 100 a second take 0.1 s; at $3.6 an hour, $10 a million are 0.1 s too."""
    assert beaten(rival()) == pytest.approx(0.1)
    assert beaten(rival(cost=19.0)) == pytest.approx(0.2)
    assert beaten(rival(throughput=60.0)) == pytest.approx(0.2)


def test_each_objective_counts_alone_where_it_is_alone():
    slow_and_cheap = rival(throughput=60.0)
    assert beaten(slow_and_cheap, objectives=(Objective.COST,)) == pytest.approx(0.1)
    assert beaten(slow_and_cheap, objectives=(Objective.THROUGHPUT,)) == pytest.approx(0.2)


def test_the_strongest_rival_counts_and_none_is_none():
    assert beaten(rival(), rival(1, throughput=1010.0, cost=0.0)) == pytest.approx(0.01)
    assert beaten() is None


def test_where_nothing_can_be_told_no_step_is_too_long():
    assert beaten(rival(noise=math.inf)) is None
    assert beaten(rival(), rates=replace(RATES, device_usd_per_hour=0.0)) is None
    assert beaten(rival(), objectives=(Objective.QUALITY,)) is None


def test_devices_of_a_trial_share_samples_and_price():
    assert beaten(rival(), num_ranks=2) == pytest.approx(0.2)
