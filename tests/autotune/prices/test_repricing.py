from decimal import Decimal

import pytest

from autotune.errors import NoMeasurementsError, NoOfferFitsError, PriceBookError
from autotune.prices.book import ComponentRates
from autotune.prices.gpus import find_gpu
from autotune.prices.quotes import Basis, Model, PriceRequest
from autotune.prices.repricing import reprice
from autotune.rates import GIB
from tests.autotune.prices.books import A100, make_book, make_offer, make_trial_on_gpu
from tests.factories import make_oom, make_study_record, make_told

STUDY = make_study_record(environment=A100)
LARGE = make_trial_on_gpu(0, device_gib=60, seconds=1.0)
SMALL = make_trial_on_gpu(1, device_gib=5, seconds=1.5)
CHEAP_L4 = make_offer(
    instance="l4", gpu=find_gpu("L4"), gpu_memory_bytes=24 * GIB, usd_per_hour=Decimal("0.1")
)


def parts(**override):
    names = ("device_usd", "device_gib_usd", "host_gib_usd", "nvme_gib_usd")
    return ComponentRates(**{f"{name}_per_hour": Decimal(0) for name in names} | override)


def test_the_recommendation_follows_the_prices():
    """Where only memory costs, the slower and smaller is cheaper; where only time, the faster."""
    by_memory = make_book(components=(parts(device_gib_usd_per_hour=Decimal("0.01")),))
    by_time = make_book(components=(parts(device_usd_per_hour=Decimal(2)),))
    chosen = [
        reprice(STUDY, [LARGE, SMALL], book, PriceRequest()).recommendation.number
        for book in (by_memory, by_time)
    ]
    assert chosen == [1, 0]


def test_parts_are_counted_where_the_book_has_them_and_machines_elsewhere():
    with_parts = make_book(make_offer(), components=(parts(device_usd_per_hour=Decimal(2)),))
    assert reprice(STUDY, [LARGE], with_parts, PriceRequest()).model == Model.COMPONENT
    assert reprice(STUDY, [LARGE], make_book(make_offer()), PriceRequest()).model == Model.INSTANCE


def test_a_small_config_can_go_to_a_small_machine():
    found = reprice(STUDY, [LARGE, SMALL], make_book(make_offer(), CHEAP_L4), PriceRequest())
    assert found.quotes[0].offer.instance == "one-a100"
    assert found.quotes[1].offer.instance == "l4"
    assert found.quotes[1].basis == Basis.ESTIMATED


def test_the_throughput_is_the_quoted_machines():
    """From 2039 GB/s to 300: 6.8 times as long at most, and arithmetic changes less."""
    (trial,) = reprice(STUDY, [SMALL], make_book(CHEAP_L4), PriceRequest()).trials
    assert trial.scores.throughput_samples_per_second == pytest.approx(8 / 1.5 * 300 / 2039)


def test_what_no_machine_holds_is_apart():
    found = reprice(STUDY, [LARGE, SMALL], make_book(CHEAP_L4), PriceRequest())
    assert found.unheld == (LARGE,)
    assert [trial.number for trial in found.front] == [1]


def test_a_book_that_holds_nothing_says_which_limit_is_missed_by_how_much():
    with pytest.raises(NoOfferFitsError) as caught:
        reprice(STUDY, [LARGE], make_book(CHEAP_L4), PriceRequest())
    message = str(caught.value)
    assert "nearest: cloud l4 here, which misses device memory" in message
    assert "(63 GiB needed, 24 GiB there, 39 GiB short)" in message


def test_of_several_misses_the_nearest_is_told():
    far = make_trial_on_gpu(2, device_gib=200)
    offers = (CHEAP_L4, make_offer(host_memory_bytes=8 * GIB))
    with pytest.raises(NoOfferFitsError, match=r"trial 0 .* misses host memory \(21 GiB needed"):
        reprice(STUDY, [far, LARGE], make_book(*offers), PriceRequest())


@pytest.mark.parametrize(
    ("offer", "request_", "words"),
    [
        ({}, {"is_spot": True}, "has no spot prices of instances with GPUs"),
        ({"gpu": None}, {}, "has no prices on demand of instances with GPUs"),
        ({"gpu": find_gpu("A4000")}, {}, "has the figures that an estimate needs"),
        (
            {"gpu": find_gpu("H100")},
            {"is_measured_only": True},
            "the book has no instance with it",
        ),
    ],
)
def test_a_book_without_a_price_for_the_device_says_so(offer, request_, words):
    book = make_book(make_offer(**offer))
    with pytest.raises(NoOfferFitsError, match=words):
        reprice(STUDY, [LARGE], book, PriceRequest(model=Model.INSTANCE, **request_))


def test_a_book_without_parts_cannot_be_counted_by_parts():
    with pytest.raises(PriceBookError, match="--by instance"):
        reprice(STUDY, [LARGE], make_book(make_offer()), PriceRequest(model=Model.COMPONENT))


@pytest.mark.parametrize("trials", [[], [make_told(0, make_oom())]])
def test_a_study_without_a_feasible_trial_has_nothing_to_price(trials):
    with pytest.raises(NoMeasurementsError, match="nothing to price"):
        reprice(STUDY, trials, make_book(make_offer()), PriceRequest())
