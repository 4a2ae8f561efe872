"""Each flip is checked against brute force at both of its sides."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from autotune.prices.flips_picture import draw_sensitivity, to_page
from autotune.prices.sensitivity import Line, Sensitivity, analyse, lower_envelope
from autotune.rates import Component
from tests.autotune.prices.books import make_trial_on_gpu
from tests.factories import make_rates
from trials.measurement import Direction

amounts = st.fractions(min_value=0, max_value=50, max_denominator=30)
some_lines = st.lists(st.tuples(amounts, amounts), min_size=1, max_size=12).map(
    lambda pairs: [Line(number=n, fixed=f, slope=s) for n, (f, s) in enumerate(pairs)]
)
trials_of_any_size = st.lists(
    st.tuples(st.integers(1, 80), st.integers(1, 200), st.integers(0, 500), st.floats(0.1, 5.0)),
    min_size=1,
    max_size=8,
)


def cheapest(lines, multiplier):
    """All that cost least, by evaluating every line."""
    least = min(line.at(multiplier) for line in lines)
    return [line for line in lines if line.at(multiplier) == least]


@given(some_lines, st.lists(amounts, max_size=5))
def test_brute_force_agrees_everywhere(lines, elsewhere):
    reigns = lower_envelope(lines)
    found = Sensitivity(component=Component.NVME, lines=tuple(lines), reigns=reigns)
    for multiplier in [*elsewhere, *found.flips, Fraction(0), Fraction(10**9)]:
        assert found.winner_at(multiplier) in cheapest(lines, multiplier)


@given(some_lines)
def test_at_each_side_of_a_flip_another_wins_alone(lines):
    reigns = lower_envelope(lines)
    flips = [reign.start for reign in reigns[1:]]
    for before, after in pairwise(reigns):
        nearby = [abs(flip - after.start) for flip in flips if flip != after.start]
        step = min([*nearby, after.start, Fraction(1)]) / 2
        left, right = (cheapest(lines, after.start + s) for s in (-step, step))
        assert before.line in left and after.line not in left
        assert after.line in right and before.line not in right


@given(some_lines)
def test_reigns_leave_no_gap_and_have_no_end(lines):
    reigns = lower_envelope(lines)
    assert reigns[0].start == 0 and reigns[-1].end is None
    for before, after in pairwise(reigns):
        assert before.start < before.end == after.start


@given(trials_of_any_size)
def test_a_flip_of_measured_trials_is_one_of_their_costs(sizes):
    """Costs by ``Rates`` itself, at rates multiplied to just below and above a flip."""
    trials = [
        make_trial_on_gpu(n, device_gib=device, host_gib=host, disk_gib=disk, seconds=seconds)
        for n, (device, host, disk, seconds) in enumerate(sizes)
    ]
    (found,) = analyse(trials, make_rates(), Direction.MINIMIZE, [Component.DEVICE_MEMORY])
    for before, after in pairwise(found.reigns):
        for factor, winner, loser in ((0.999, before, after), (1.001, after, before)):
            rate = 0.01 * float(after.start) * factor
            price = make_rates(device_gib_usd_per_hour=rate).usd_per_million_samples
            costs = {trial.number: price(trial.measurement) for trial in trials}
            assert costs[winner.line.number] <= costs[loser.line.number] * (1 + 1e-12)


def test_a_flip_is_exact():
    """2 + 60m/100 an hour of 1 s, and 2 + 5m/100 of 1.5 s: equal at m = 1 / 0.525."""
    trials = [
        make_trial_on_gpu(0, device_gib=60, host_gib=0, seconds=1.0),
        make_trial_on_gpu(1, device_gib=5, host_gib=0, seconds=1.5),
    ]
    (found,) = analyse(trials, make_rates(), Direction.MINIMIZE, [Component.DEVICE_MEMORY])
    assert found.flips == [Fraction(1) / Fraction(525, 1000)]
    assert [reign.line.number for reign in found.reigns] == [0, 1]


def test_nvme_has_a_price_of_its_own():
    """400 GiB on disk save 50 GiB of the device: worth it until disks cost 12.5 times as much."""
    trials = [
        make_trial_on_gpu(0, device_gib=60, host_gib=0),
        make_trial_on_gpu(1, device_gib=10, host_gib=0, disk_gib=400),
    ]
    (found,) = analyse(trials, make_rates(), Direction.MINIMIZE, [Component.NVME])
    assert found.flips == [Fraction(25, 2)]


def test_a_trial_that_trains_worse_cannot_win():
    trials = [
        make_trial_on_gpu(0, seconds=2.0, quality=2.0, noise=(0, 0, 0.1)),
        make_trial_on_gpu(1, seconds=1.0, quality=3.0, noise=(0, 0, 0.1)),
    ]
    for found in analyse(trials, make_rates(), Direction.MINIMIZE):
        assert [reign.line.number for reign in found.reigns] == [0]


def test_the_picture_names_every_winner_and_marks_every_flip():
    trials = [
        make_trial_on_gpu(0, device_gib=60, seconds=1.0),
        make_trial_on_gpu(1, device_gib=5, seconds=1.5),
        make_trial_on_gpu(2, device_gib=70, seconds=9.0),
    ]
    found = analyse(trials, make_rates(), Direction.MINIMIZE, [Component.DEVICE_MEMORY])
    picture = draw_sensitivity(found, title="who <wins>", subtitle="at 2026-06-30")
    assert picture.count("<circle") == len(found[0].flips) == 1
    assert "trial 0, x0 to x1.9" in picture and "trial 1, from x1.9" in picture
    assert "who &lt;wins&gt;" in picture and "2026-06-30" in picture
    assert picture in to_page(picture, "who <wins>")


def test_a_picture_of_free_prices_can_be_drawn():
    rates = make_rates(device_usd_per_hour=0, device_gib_usd_per_hour=0, host_gib_usd_per_hour=0)
    found = analyse([make_trial_on_gpu(0)], rates, Direction.MINIMIZE)
    assert "trial 0" in draw_sensitivity(found, title="", subtitle="")
