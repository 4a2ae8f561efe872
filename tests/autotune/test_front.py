import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.front import hypervolume, pareto_front, recommend
from autotune.objective import Quality, judge
from autotune.records import Objective, Source, TrialState
from tests.factories import (
    GIB,
    make_config,
    make_measurement,
    make_memory,
    make_rates,
    make_scored,
    make_timing,
    make_told,
)
from trials.measurement import Direction, Outcome

COST, THROUGHPUT, QUALITY = Objective
ALL = tuple(Objective)
MINIMIZE, MAXIMIZE = Direction.MINIMIZE, Direction.MAXIMIZE
NOISE = 0.001


def front_of(trials, objectives=ALL, direction=MINIMIZE):
    return [trial.number for trial in pareto_front(trials, objectives, direction)]


def recommended(trials, objectives=ALL, direction=MINIMIZE):
    return recommend(pareto_front(trials, objectives, direction), objectives, direction)


def small_gpt(noise):
    """The runs of DESIGN section 5: fp32, bf16 and 8-bit, each cheaper than the one before."""
    return [
        make_scored(0, cost=3.0, quality=2.4956, noise=(0.01, 0.0, noise)),
        make_scored(1, cost=2.0, quality=2.4951, noise=(0.01, 0.0, noise)),
        make_scored(2, cost=1.0, quality=2.4952, noise=(0.01, 0.0, noise)),
    ]


def run_on_80_gib(number, offload_target, *, seconds, peak_bytes):
    measurement = make_measurement(
        timing=make_timing(seconds), memory=make_memory(peak_device_bytes=peak_bytes)
    )
    quality = Quality(value=2.5, half_width=NOISE)
    verdict = judge(measurement, budget_bytes=80 * GIB, rates=make_rates(), quality=quality)
    config = make_config(offload_target=offload_target)
    return make_told(
        number, measurement, config=config, scores=verdict.scores, violation=verdict.violation
    )


def dominates(one, other):
    """Compare (cost, throughput, quality) with cost and quality minimised."""
    pairs = list(zip((one[0], -one[1], one[2]), (other[0], -other[1], other[2]), strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


SMALL = st.integers(0, 4).map(float)
POINTS = st.lists(st.tuples(SMALL, SMALL, SMALL), min_size=1, max_size=25)
NOISES = st.tuples(*[st.floats(0.0, 3.0)] * 3)
NOISY = st.lists(st.tuples(SMALL, SMALL, SMALL, NOISES), min_size=1, max_size=12)


@given(POINTS)
def test_without_noise_the_front_is_that_of_brute_force(points):
    trials = [
        make_scored(number, cost=cost, throughput=throughput, quality=quality)
        for number, (cost, throughput, quality) in enumerate(points)
    ]
    expected = {
        number
        for number, point in enumerate(points)
        if not any(dominates(other, point) for other in points) and point not in points[:number]
    }
    assert set(front_of(trials)) == expected


@given(NOISY)
def test_noise_never_empties_the_front(points):
    trials = [
        make_scored(number, cost=cost, throughput=throughput, quality=quality, noise=noise)
        for number, (cost, throughput, quality, noise) in enumerate(points)
    ]
    assert front_of(trials)


@given(NOISY)
def test_noise_only_takes_points_from_the_front(points):
    exact, noisy = [], []
    for number, (cost, throughput, quality, noise) in enumerate(points):
        scores = {"cost": cost, "throughput": throughput, "quality": quality}
        exact.append(make_scored(number, **scores))
        noisy.append(make_scored(number, **scores, noise=noise))
    assert set(front_of(noisy)) <= set(front_of(exact))


def test_points_that_beat_each_other_in_a_circle_all_stay():
    noise = (1.06, 1.06, 1.06)  # two of these make a margin of 1.5
    circle = [
        make_scored(0, cost=0.0, throughput=-1.0, quality=2.0, noise=noise),
        make_scored(1, cost=2.0, throughput=0.0, quality=1.0, noise=noise),
        make_scored(2, cost=1.0, throughput=-2.0, quality=0.0, noise=noise),
    ]
    assert sorted(front_of(circle)) == [0, 1, 2]


def test_a_point_that_ties_with_both_does_not_save_the_beaten_one():
    noise = (0.5, 0.0, 0.01)  # two of these make a margin of 0.71 in cost
    trials = [
        make_scored(0, cost=1.0, quality=2.503, noise=noise),
        make_scored(1, cost=2.0, quality=2.501, noise=noise),
        make_scored(2, cost=1.5, quality=2.502, noise=noise),
    ]
    assert front_of(trials, (COST, QUALITY)) == [0, 2]


def test_of_losses_that_tie_the_cheaper_config_wins():
    assert front_of(small_gpt(NOISE), (COST, QUALITY)) == [2]
    assert front_of(small_gpt(NOISE)) == [2]


def test_the_same_losses_would_all_differ_without_their_noise():
    assert front_of(small_gpt(0.0), (COST, QUALITY)) == [2, 1]


def test_a_metric_that_is_maximised_ties_the_same_way():
    trials = [
        make_scored(0, cost=2.0, quality=0.9012, noise=(0.01, 0.0, NOISE)),
        make_scored(1, cost=1.0, quality=0.9009, noise=(0.01, 0.0, NOISE)),
        make_scored(2, cost=0.5, quality=0.8, noise=(0.01, 0.0, NOISE)),
    ]
    assert front_of(trials, (COST, QUALITY), MAXIMIZE) == [2, 1]


def test_a_cheaper_point_that_trains_worse_stays_and_is_not_recommended():
    trials = [
        make_scored(0, cost=2.0, quality=2.4951, noise=(0.01, 0.0, NOISE)),
        make_scored(1, cost=1.0, quality=2.6, noise=(0.01, 0.0, NOISE)),
    ]
    assert front_of(trials) == [1, 0]
    assert recommended(trials).number == 0


def test_a_point_that_ties_in_everything_leaves_one_of_the_two():
    noise = (0.1, 1.0, NOISE)
    trials = [make_scored(0, noise=noise), make_scored(1, noise=noise)]
    assert front_of(trials) == [0]


@pytest.mark.parametrize(
    "override",
    [
        {"violation": 0.01},
        {"violation": None},
        {"outcome": Outcome.OUT_OF_MEMORY},
        {"state": TrialState.MEASURED},
        {"state": TrialState.LEASED},
        {"state": TrialState.LOST},
        {"source": Source.PREDICTED, "outcome": Outcome.OUT_OF_MEMORY, "measurement": None},
    ],
)
def test_only_trials_that_completed_within_every_limit_and_were_told_are_on_it(override):
    best = make_scored(0, cost=0.1, throughput=1e6, quality=0.0, **override)
    assert front_of([best, make_scored(1)]) == [1]
    assert front_of([best]) == []


def test_an_answer_from_the_store_is_on_it_like_a_run():
    assert front_of([make_scored(0, source=Source.CACHED)]) == [0]


def test_a_single_objective_has_a_front_of_one():
    speeds = enumerate((3.0, 9.0, 5.0))
    trials = [make_scored(number, throughput=speed) for number, speed in speeds]
    assert front_of(trials, (THROUGHPUT,)) == [1]
    assert recommended(trials, (THROUGHPUT,)).number == 1


def test_the_front_is_ordered_by_the_first_objective():
    trials = [
        make_scored(0, cost=2.0, throughput=20.0),
        make_scored(1, cost=3.0, throughput=30.0),
        make_scored(2, cost=1.0, throughput=10.0),
    ]
    assert front_of(trials, (COST, THROUGHPUT)) == [2, 0, 1]
    assert front_of(trials, (THROUGHPUT, COST)) == [1, 0, 2]


def test_offload_at_half_the_speed_is_not_on_the_front_however_little_memory_it_takes():
    trials = [
        run_on_80_gib(0, "none", seconds=0.5, peak_bytes=72 * GIB),
        run_on_80_gib(1, "cpu", seconds=1.0, peak_bytes=40 * GIB),
    ]
    assert front_of(trials) == [0]
    assert recommended(trials).number == 0


def test_the_recommendation_says_why_with_the_numbers_that_decided():
    reason = recommended(small_gpt(NOISE)).reason
    assert reason == (
        "the cheapest of the 1 point of the front ($1 per million samples, 16 samples/s); "
        "its quality 2.495 is as good as any within ±0.001 of noise"
    )


def test_the_recommendation_counts_the_points_that_train_worse():
    trials = [make_scored(0, cost=2.0), make_scored(1, cost=1.0, quality=9.0)]
    assert recommended(trials).reason.endswith("; 1 point trains measurably worse")


@pytest.mark.parametrize(
    ("objectives", "word"),
    [
        ((COST,), "cheapest"),
        ((THROUGHPUT, COST), "fastest"),
        ((QUALITY, COST), "best in quality"),
    ],
)
def test_the_first_objective_names_the_recommendation(objectives, word):
    assert recommended([make_scored()], objectives).reason.startswith(f"the {word} of the 1")


def test_a_study_without_quality_recommends_without_a_word_on_it():
    trials = [make_scored(0, quality=None), make_scored(1, cost=99.0, quality=None)]
    chosen = recommended(trials, (COST, THROUGHPUT))
    assert chosen.number == 0
    assert "quality" not in chosen.reason


def test_an_empty_front_recommends_nothing():
    assert recommend([], ALL, MINIMIZE) is None


def test_the_hypervolume_is_the_area_up_to_the_reference():
    """Two boxes of 2 x 6 and 1 x 8 that share 1 x 6."""
    trials = [
        make_scored(0, cost=1.0, throughput=10.0),
        make_scored(1, cost=2.0, throughput=12.0),
    ]
    assert hypervolume(trials[:1], (COST, THROUGHPUT), MINIMIZE, (3.0, 4.0)) == 12.0
    assert hypervolume(trials, (COST, THROUGHPUT), MINIMIZE, (3.0, 4.0)) == 14.0
