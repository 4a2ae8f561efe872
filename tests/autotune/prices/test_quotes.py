from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from autotune.prices.gpus import find_gpu
from autotune.prices.quotes import (
    Basis,
    PriceRequest,
    needs_of,
    quote_machines,
    quote_parts,
    shortfalls,
)
from autotune.rates import GIB
from search_spaces import AmpDtype
from tests.autotune.prices.books import A100, make_offer, make_trial_on_gpu
from tests.factories import make_environment, make_rates

DEAR = {"instance": "large", "usd_per_hour": Decimal(9)}
CPU = make_environment(device_name="Some CPU", num_threads=4)


def quoted(trial, *offers, environment=A100, **options):
    request = PriceRequest(**options)
    return quote_machines([trial], environment, offers, request).get(trial.number)


def test_the_cheapest_machine_that_holds_a_trial_is_quoted():
    quote = quoted(make_trial_on_gpu(), make_offer(**DEAR), make_offer())
    assert (quote.offer.instance, quote.basis) == ("one-a100", Basis.MEASURED)


def test_money_is_the_price_of_an_hour_over_its_samples():
    """8 samples in 3.6 s are a million in 125 hours, at 2 $; 64 units a sample."""
    quote = quoted(make_trial_on_gpu(seconds=3.6), make_offer())
    assert quote.usd_per_million_samples == pytest.approx(Decimal(250))
    assert quote.usd_per_million_units == pytest.approx(Decimal(250) / 64)
    assert quote.usd_for(10_000) == pytest.approx(Decimal("2.5"))


@pytest.mark.parametrize(
    ("trial", "offer"),
    [
        ({"device_gib": 77}, {}),
        ({"host_gib": 195}, {}),
        ({"disk_gib": 100}, {}),
        ({"disk_gib": 100}, {"disk_bytes": 104 * GIB}),
        ({"ranks": 2}, {}),
        ({}, {"num_gpus": Decimal("0.5")}),
    ],
)
def test_a_machine_too_small_in_anything_is_passed_over(trial, offer):
    small = make_offer(**offer)
    large = make_offer(
        **DEAR,
        num_gpus=Decimal(8),
        gpu_memory_bytes=90 * GIB,
        host_memory_bytes=900 * GIB,
        disk_bytes=900 * GIB,
    )
    assert quoted(make_trial_on_gpu(**trial), small, large).offer is large
    assert quoted(make_trial_on_gpu(**trial), small) is None


def test_headroom_is_kept_free():
    trial = make_trial_on_gpu(device_gib=76)
    assert quoted(trial, make_offer(), headroom=0.05) is not None
    assert quoted(trial, make_offer(), headroom=0.06) is None


@pytest.mark.parametrize(("dtype", "is_held"), [("bf16", False), ("tf32", False), ("fp16", True)])
def test_bf16_and_tf32_need_compute_capability_8(dtype, is_held):
    v100 = make_offer(gpu=find_gpu("V100-32GB"), gpu_memory_bytes=32 * GIB)
    trial = make_trial_on_gpu(amp_dtype=dtype)
    assert (quoted(trial, v100) is not None) == is_held


def test_another_model_is_estimated_at_the_slower_end_of_its_roofline():
    """A100 to H100 in bf16: between 312 / 989.5 and 2039 / 3350 of the time."""
    quote = quoted(make_trial_on_gpu(seconds=3.6), make_offer(gpu=find_gpu("H100")))
    assert quote.basis == Basis.ESTIMATED
    assert quote.slowdown == pytest.approx(2039 / 3350)
    assert float(quote.usd_per_million_samples) == pytest.approx(250 * 2039 / 3350)
    assert float(quote.least_usd_per_million_samples) == pytest.approx(250 * 312 / 989.5)


def test_the_cheapest_for_the_work_wins_and_not_the_cheapest_hour():
    h100 = make_offer(gpu=find_gpu("H100"), instance="h100", usd_per_hour=Decimal(3))
    assert quoted(make_trial_on_gpu(), make_offer(), h100).offer is h100
    dearer = replace(h100, usd_per_hour=Decimal(4))
    assert quoted(make_trial_on_gpu(), make_offer(), dearer).offer.instance == "one-a100"


def test_only_measured_devices_count_if_asked():
    h100 = make_offer(gpu=find_gpu("H100"), usd_per_hour=Decimal(1))
    quote = quoted(make_trial_on_gpu(), h100, make_offer(), is_measured_only=True)
    assert quote.basis == Basis.MEASURED


def test_a_model_without_a_data_sheet_is_not_quoted():
    assert quoted(make_trial_on_gpu(), make_offer(gpu=find_gpu("A4000"))) is None


def test_spot_prices_are_those_of_machines_that_have_one():
    cheap = make_offer(instance="spot", usd_per_hour=Decimal(9), spot_usd_per_hour=Decimal(1))
    quote = quoted(make_trial_on_gpu(), make_offer(), cheap, is_spot=True)
    assert (quote.offer.instance, quote.usd_per_hour) == ("spot", Decimal(1))


def test_on_cpu_a_machine_counts_whose_processor_is_named_so():
    trial = make_trial_on_gpu(device_gib=1, host_gib=1, amp_dtype="bf16")
    box = {"gpu": None, "num_gpus": Decimal(0), "gpu_memory_bytes": 0, "num_cores": Decimal(4)}
    assert quoted(trial, make_offer(**box), environment=CPU) is None
    named = make_offer(**box, processor="Some CPU")
    assert quoted(trial, named, environment=CPU).basis == Basis.MEASURED
    few = replace(named, num_cores=Decimal(2))
    assert quoted(trial, few, environment=CPU) is None


def test_on_cpu_the_host_holds_what_is_the_devices_elsewhere():
    needs = needs_of(make_trial_on_gpu(device_gib=3, host_gib=2), CPU)
    assert (needs.device_bytes, needs.host_bytes) == (0, 5 * GIB)


def test_what_is_missed_is_said_with_numbers():
    needs = needs_of(make_trial_on_gpu(device_gib=100), A100)
    (missed,) = shortfalls(needs, make_offer(), headroom=0.05)
    assert missed == "device memory (105 GiB needed, 80 GiB there, 25 GiB short)"


def test_parts_are_added_up_exactly():
    """Floats would make 0.1 + 0.2 something else."""
    rates = make_rates(
        device_usd_per_hour=0.1,
        device_gib_usd_per_hour=0.2,
        host_gib_usd_per_hour=0.0,
        nvme_gib_usd_per_hour=0.7,
    )
    trial = make_trial_on_gpu(device_gib=1, disk_gib=1)
    assert quote_parts(trial.measurement, rates).usd_per_hour == Decimal("1.0")


def test_many_trials_over_many_offers_match_one_by_one():
    order = np.random.default_rng(3)
    offers = [
        make_offer(
            instance=str(i),
            gpu=find_gpu(("A100-80GB", "H100", "V100-16GB", "L4", "A4000")[i % 5]),
            gpu_memory_bytes=int(order.integers(8, 140)) * GIB,
            host_memory_bytes=int(order.integers(8, 300)) * GIB,
            usd_per_hour=Decimal(int(order.integers(1, 1000))) / 100,
        )
        for i in range(60)
    ]
    trials = [
        make_trial_on_gpu(
            i,
            device_gib=int(order.integers(1, 120)),
            host_gib=int(order.integers(1, 250)),
            amp_dtype=str(list(AmpDtype)[i % 4]),
        )
        for i in range(200)
    ]
    quotes = quote_machines(trials, A100, offers, PriceRequest())
    assert 20 < len(quotes) < 200
    for trial in trials:
        each = [quoted(trial, offer) for offer in offers]
        costs = [quote.usd_per_million_samples for quote in each if quote is not None]
        found = quotes.get(trial.number)
        assert (found and found.usd_per_million_samples) == min(costs, default=None)
