from dataclasses import replace
from decimal import Decimal

import pytest

from autotune.prices.reading import builtin_book
from tests.factories import (
    GIB,
    make_environment,
    make_measurement,
    make_memory,
    make_rates,
    make_timing,
)

H100 = make_environment(
    device_kind="cuda", device_name="NVIDIA H100", device_memory_bytes=80 * GIB, num_threads=0
)


def builtin_rates(environment, num_devices=1):
    return builtin_book().rates(environment, num_devices)


def occupying(device_gib, host_gib, **timing):
    memory = make_memory(peak_device_bytes=device_gib * GIB, peak_host_bytes=host_gib * GIB)
    return make_measurement(memory=memory, timing=make_timing(**timing))


def test_an_hour_costs_the_device_and_the_memory_it_occupies():
    """2 + 10 x 0.01 + 50 x 0.002."""
    assert make_rates().usd_per_hour(occupying(10, 50)) == pytest.approx(2.2)


def test_a_million_samples_cost_the_hours_that_they_take():
    """A hundred samples in 3.6 s make a million in ten hours, at 2.2 $ each."""
    measurement = occupying(10, 50, mean_seconds=3.6, samples_per_step=100)
    assert make_rates().usd_per_million_samples(measurement) == pytest.approx(22.0)


def test_what_lies_on_disk_costs_too():
    """2 + 10 x 0.01 + 50 x 0.002 + 1000 x 0.0001."""
    disk = {"optimizer_state": {"disk": 600 * GIB, "host": GIB}, "parameters": {"disk": 400 * GIB}}
    memory = make_memory(peak_device_bytes=10 * GIB, peak_host_bytes=50 * GIB, elsewhere=disk)
    assert make_rates().usd_per_hour(make_measurement(memory=memory)) == pytest.approx(2.3)


def test_parts_are_exact_where_floats_are_not():
    parts = make_rates(device_usd_per_hour=0.1).parts_per_hour(occupying(20, 0))
    assert sum(parts.values()) == Decimal("0.3")


def test_half_the_speed_costs_twice_as_much():
    quick, slow = occupying(1, 1, mean_seconds=1.0), occupying(1, 1, mean_seconds=2.0)
    price = make_rates().usd_per_million_samples
    assert price(slow) == pytest.approx(2 * price(quick))


def test_of_two_equally_fast_the_one_with_less_memory_is_cheaper():
    price = make_rates().usd_per_million_samples
    assert price(occupying(10, 1)) < price(occupying(20, 1))


def test_a_cpu_costs_the_cores_that_a_trial_has():
    rates = builtin_rates(make_environment(num_threads=4))
    assert rates.device_usd_per_hour == pytest.approx(0.064)
    assert rates.device_gib_usd_per_hour == rates.host_gib_usd_per_hour


def test_the_default_rates_reproduce_the_price_of_an_h100():
    """A Nebius H100 at 2.95 $, with its 80 GiB and 168 GiB of host memory."""
    rates = builtin_rates(H100)
    assert rates.usd_per_hour(occupying(80, 168)) == pytest.approx(2.95, abs=0.01)


def test_default_rates_are_dated():
    assert builtin_rates(H100).label == "2026-06-30 (built-in)"


def test_every_device_of_a_trial_is_paid():
    alone = make_measurement()
    assert make_rates().usd_per_hour(replace(alone, num_ranks=2)) == pytest.approx(
        2 * make_rates().usd_per_hour(alone)
    )


def test_processes_of_one_trial_share_the_cores_that_are_paid():
    environment = make_environment(num_threads=8)
    alone = builtin_rates(environment).device_usd_per_hour
    assert builtin_rates(environment, 2).device_usd_per_hour == pytest.approx(alone / 2)
