"""Where runs go: on demand or on the spot, in the hours of a price, and by class of job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest

from autotune.errors import NoMeasurementsError, NoOfferFitsError
from autotune.prices.book import HourWindow
from autotune.prices.flips_picture import draw_sensitivity
from autotune.prices.gpus import find_gpu
from autotune.prices.placing import RunRequest, place
from autotune.prices.quotes import Basis
from autotune.prices.routing import JobClass, place_both, plan_routes
from autotune.prices.sensitivity import analyse_spot
from autotune.prices.windows import stay_in
from tests.autotune.prices.books import A100, make_book, make_offer, make_trial_on_gpu
from tests.factories import GIB, make_study_record

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
HOUR = 3600
SMALL = make_trial_on_gpu(0, device_gib=10, seconds=14.4)
LARGE = make_trial_on_gpu(1, device_gib=60, seconds=7.2)
A100_40 = make_offer(
    instance="a100-40",
    gpu=find_gpu("A100-40GB"),
    gpu_memory_bytes=40 * GIB,
    usd_per_hour=Decimal(1),
)
STUDY = make_study_record(environment=A100)


def make_request(**override):
    """20,000 samples: 10 h of the small trial, 5 h of the large one."""
    return RunRequest(**{"samples": 20_000, "begins_at": NOON, **override})


def test_a_run_costs_its_hours():
    found = place(STUDY, [LARGE], [make_offer()], make_request(), is_spot=False)[1]
    assert found.work_seconds == pytest.approx(5 * HOUR)
    assert float(found.usd) == pytest.approx(10.0, rel=0.001)
    assert found.finishes_at - NOON == timedelta(seconds=found.paid_seconds)


def test_the_class_follows_from_the_measured_peak():
    plan = plan_routes(STUDY, [SMALL, LARGE], make_book(make_offer(), A100_40), make_request())
    assert plan.rule.entry == A100_40 and "40 GiB" in str(plan.rule)
    chosen = {route.job_class: route.chosen for route in plan.routes}
    assert chosen[JobClass.FRUGAL].number == 0
    assert chosen[JobClass.FRUGAL].offer.instance == "a100-40"
    assert chosen[JobClass.FRUGAL].basis == Basis.ESTIMATED
    assert chosen[JobClass.INTENSIVE].number == 1
    assert chosen[JobClass.INTENSIVE].offer.instance == "one-a100"
    assert plan.routes[0].chosen.usd == min(each.usd for each in chosen.values())


def test_headroom_moves_a_config_to_the_other_class():
    tight = make_trial_on_gpu(0, device_gib=39)
    book = make_book(make_offer(), A100_40)
    (route,) = plan_routes(STUDY, [tight], book, make_request()).routes
    assert route.job_class == JobClass.INTENSIVE
    (route,) = plan_routes(STUDY, [tight], book, make_request(headroom=0.01)).routes
    assert route.job_class == JobClass.FRUGAL


def test_a_class_without_a_config_is_told():
    plan = plan_routes(STUDY, [SMALL], make_book(make_offer()), make_request())
    assert "no config of the study is memory-intensive" in plan.notes


def test_spot_needs_a_rate_of_preemption():
    """Of 5 h at 2 h between preemptions and 0.98 of the price, spot costs more."""
    offer = make_offer(spot_usd_per_hour=Decimal("1.96"))
    (route,) = plan_routes(STUDY, [LARGE], make_book(offer), make_request()).routes
    assert route.on_spot is None
    plan = plan_routes(STUDY, [LARGE], make_book(offer), make_request(mtbf_seconds=2 * HOUR))
    assert not plan.routes[0].chosen.is_spot and plan.routes[0].on_spot is not None
    assert any("as often as --mtbf says" in note for note in plan.notes)


def test_the_book_may_say_the_rate_and_a_flag_overrides_it():
    offer = make_offer(spot_usd_per_hour=Decimal(1), spot_mtbf_hours=Decimal(24))
    book = make_book(offer)
    usual = plan_routes(STUDY, [LARGE], book, make_request()).routes[0].chosen
    assert usual.is_spot and usual.mtbf_seconds == 24 * HOUR
    given = plan_routes(STUDY, [LARGE], book, make_request(mtbf_seconds=HOUR)).routes[0].chosen
    assert given.mtbf_seconds == HOUR and given.usd > usual.usd


def test_the_price_of_hours_pauses_a_run():
    """5 h of work in 22-2: four hours this night, the rest the next, and a pause that is paid."""
    night = make_offer(usd_per_hour=Decimal("0.50"), hours=HourWindow(start_hour=22, end_hour=2))
    book = make_book(make_offer(), hourly=(night,))
    found = plan_routes(STUDY, [LARGE], book, make_request()).routes[0].chosen
    assert found.offer == night
    assert found.starts_at == NOON.replace(hour=22)
    assert found.finishes_at > NOON.replace(hour=22) + timedelta(hours=25)
    assert 5 * HOUR + 300 < found.paid_seconds < 5 * HOUR + 400


def test_a_stay_within_hours():
    window = HourWindow(start_hour=10, end_hour=14)
    stay = stay_in(window, NOON, 3 * HOUR, pause_seconds=600)
    assert stay.starts_at == NOON
    assert stay.finishes_at == NOON + timedelta(hours=22 + 1, minutes=10)
    assert stay.paid_seconds == 3 * HOUR + 600


def test_hours_shorter_than_a_pause_are_of_no_use():
    window = HourWindow(start_hour=10, end_hour=11)
    assert stay_in(window, NOON, 9 * HOUR, pause_seconds=2 * HOUR) is None
    assert stay_in(window, NOON, 0.5 * HOUR, pause_seconds=2 * HOUR) is not None


def test_a_run_of_ten_years_has_no_place():
    assert stay_in(None, NOON, 4e8, pause_seconds=0) is None


def test_a_book_that_holds_nothing_names_the_limit():
    with pytest.raises(NoOfferFitsError, match=r"misses device memory \(63 GiB needed, 40 GiB"):
        plan_routes(STUDY, [LARGE], make_book(A100_40), make_request())


def test_a_study_without_measurements_is_told():
    with pytest.raises(NoMeasurementsError, match="nothing to price"):
        plan_routes(STUDY, [], make_book(make_offer()), make_request())


def spot_multiplied(book, multiplier):
    offers = tuple(
        replace(offer, spot_usd_per_hour=offer.spot_usd_per_hour * multiplier)
        for offer in book.offers
    )
    return replace(book, offers=offers)


def test_brute_force_agrees_on_each_side_of_a_spot_flip():
    """Everything is placed anew with multiplied spot prices, a hundredth below and above."""
    book = make_book(
        make_offer(spot_usd_per_hour=Decimal("0.5"), spot_mtbf_hours=Decimal(1)),
        replace(A100_40, spot_usd_per_hour=Decimal("0.6"), spot_mtbf_hours=Decimal(48)),
    )
    request, trials = make_request(), [SMALL, LARGE]
    found = analyse_spot(place_both(STUDY, trials, book, request), request.samples)
    assert found.component == "spot" and found.flips
    for before, after in pairwise(found.reigns):
        for factor, winner in ((Fraction(99, 100), before), (Fraction(101, 100), after)):
            at = after.start * factor
            multiplier = Decimal(at.numerator) / Decimal(at.denominator)
            placed = place_both(STUDY, trials, spot_multiplied(book, multiplier), request)
            each = [*placed.on_demand.values(), *placed.on_spot.values()]
            best = min(each, key=lambda placement: placement.usd)
            assert (best.number, best.is_spot) == (winner.line.number, winner.line.slope > 0)


def test_a_spot_flip_is_exact():
    """One config on one machine: spot wins until its expected cost is that on demand."""
    offer = make_offer(spot_usd_per_hour=Decimal(1), spot_mtbf_hours=Decimal(24))
    placed = place_both(STUDY, [LARGE], make_book(offer), make_request())
    found = analyse_spot(placed, 20_000)
    assert found.flips == [placed.on_demand[1].exact_usd / placed.on_spot[1].exact_usd]
    picture = draw_sensitivity([found], title="", subtitle="")
    assert "trial 1, on the spot, x0 to" in picture and "trial 1, on demand, from" in picture


def refusal(offer, request):
    with pytest.raises(NoOfferFitsError) as caught:
        plan_routes(STUDY, [LARGE], make_book(hourly=(offer,)), request)
    return str(caught.value)


def test_a_run_that_would_not_end_is_told():
    night = make_offer(hours=HourWindow(start_hour=22, end_hour=2))
    told = refusal(night, make_request(samples=10**10))
    assert "would finish a run of 10000000000 samples within ten years" in told


def test_a_book_of_spot_prices_alone_asks_for_the_rate():
    offer = make_offer(usd_per_hour=None, spot_usd_per_hour=Decimal(1))
    assert "cloud one-a100 here has a spot price alone" in refusal(offer, make_request())


def test_the_nearest_miss_may_be_an_offer_of_some_hours():
    night = replace(A100_40, hours=HourWindow(start_hour=22, end_hour=2))
    assert "a100-40 here, which misses device memory" in refusal(night, make_request())
