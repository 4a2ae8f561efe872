"""Price books and GPU trials for tests; each takes overrides by keyword."""

from datetime import date
from decimal import Decimal
from typing import Any

from autotune.prices.book import Offer, PriceBook
from autotune.prices.gpus import find_gpu
from tests.factories import (
    GIB,
    make_config,
    make_environment,
    make_measurement,
    make_memory,
    make_scored,
    make_timing,
)

A100 = make_environment(
    device_kind="cuda",
    device_name="NVIDIA A100-SXM4-80GB",
    device_memory_bytes=int(79.2 * GIB),
    num_threads=0,
)


def make_offer(**override: Any) -> Offer:
    """One A100 of 80 GB at 2 $ an hour."""
    values = {
        "provider": "cloud",
        "instance": "one-a100",
        "region": "here",
        "gpu": find_gpu("A100-80GB"),
        "num_gpus": Decimal(1),
        "gpu_memory_bytes": 80 * GIB,
        "host_memory_bytes": 200 * GIB,
        "usd_per_hour": Decimal(2),
    }
    return Offer(**{**values, **override})


def make_book(*offers: Offer, **override: Any) -> PriceBook:
    values = {"name": "book", "dated": date(2026, 11, 1), "offers": offers}
    return PriceBook(**{**values, **override})


def make_trial_on_gpu(
    number: int = 0,
    *,
    device_gib: float = 10,
    host_gib: float = 20,
    disk_gib: float = 0,
    seconds: float = 3.6,
    amp_dtype: str = "bf16",
    ranks: int = 1,
    **scores: Any,
):
    """A feasible trial of 8 samples a step."""
    disk = {"optimizer_state": {"disk": int(disk_gib * GIB)}} if disk_gib else {}
    memory = make_memory(
        peak_device_bytes=int(device_gib * GIB),
        peak_host_bytes=int(host_gib * GIB),
        elsewhere=disk,
    )
    measurement = make_measurement(
        memory=memory, timing=make_timing(mean_seconds=seconds), num_ranks=ranks
    )
    config = make_config(amp_dtype=amp_dtype, checkpoint_interval=number)
    return make_scored(number, measurement=measurement, config=config, **scores)
