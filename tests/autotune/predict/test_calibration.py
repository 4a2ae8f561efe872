"""Corrections find what is wrong, and intervals hold as often as they say."""

import math
import random

import pytest

from autotune.predict.calibration import COVERAGE, Corrector, Prior

PRIOR = Prior(widths=(0.3, 1.0), noise=0.05)


def drawn(order, count, *, noise=0.05, truth=(0.1, 0.4)):
    """Trials whose error is linear in two features, and noise."""
    features = [(1.0, order.random()) for _ in range(count)]
    ratios = [
        sum(c * x for c, x in zip(truth, row, strict=True)) + order.gauss(0, noise)
        for row in features
    ]
    return features, ratios


def test_without_trials_nothing_is_corrected_and_the_range_is_the_priors():
    blank = Corrector.learnt(PRIOR)
    found = blank.corrected(100.0, (1.0, 0.5))
    assert found.mean == 100.0
    deviation = math.sqrt(0.05**2 + 0.3**2 + (1.0 * 0.5) ** 2)
    assert found.high == pytest.approx(100 * math.exp(1.6449 * deviation), rel=1e-4)
    assert blank.probability_below(100.0, 100.0, (1.0, 0.5)) == pytest.approx(0.5)


def test_many_trials_find_the_true_correction():
    learnt = Corrector.learnt(PRIOR, *drawn(random.Random(0), 500))
    assert learnt.coefficients == pytest.approx((0.1, 0.4), abs=0.02)


def test_three_trials_narrow_the_range():
    before = Corrector.learnt(PRIOR).corrected(1.0, (1.0, 0.5))
    after = Corrector.learnt(PRIOR, *drawn(random.Random(0), 3)).corrected(1.0, (1.0, 0.5))
    assert after.high / after.low < before.high / before.low


def test_leaving_a_trial_out_by_formula_is_learning_without_it():
    features, ratios = drawn(random.Random(1), 6)
    whole = Corrector.learnt(PRIOR, features, ratios)
    for index, (row, ratio) in enumerate(zip(features, ratios, strict=True)):
        others = [x for i, x in enumerate(features) if i != index]
        without = Corrector.learnt(PRIOR, others, [y for i, y in enumerate(ratios) if i != index])
        off = abs(ratio - math.log(without.corrected(1.0, row).mean))
        assert whole.score(row, ratio) == pytest.approx(off / without.deviation(row))


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.3])
def test_ranges_hold_as_often_as_stated_whatever_the_real_noise(noise):
    order, held, total = random.Random(2), 0, 0
    for _ in range(300):
        learnt = Corrector.learnt(PRIOR, *drawn(order, 20, noise=noise))
        for row, ratio in zip(*drawn(order, 5, noise=noise), strict=True):
            found = learnt.corrected(1.0, row)
            held += found.low <= math.exp(ratio) <= found.high
            total += 1
    assert COVERAGE - 0.03 <= held / total <= COVERAGE + 0.06


def test_a_limit_far_above_surely_holds_and_one_far_below_surely_not():
    learnt = Corrector.learnt(PRIOR, *drawn(random.Random(3), 50))
    mean = learnt.corrected(100.0, (1.0, 0.5)).mean
    chances = [learnt.probability_below(mean * f, 100.0, (1.0, 0.5)) for f in (0.5, 1.0, 2.0)]
    assert chances[0] < 0.01 and chances[1] == pytest.approx(0.5) and chances[2] > 0.99
