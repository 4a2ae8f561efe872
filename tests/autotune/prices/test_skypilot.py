"""Rows of the SkyPilot catalogue with the quirks of each provider; see the assets' README."""

from decimal import Decimal
from pathlib import Path

import pytest

from autotune.prices.reading import read_book
from autotune.rates import GIB

ASSETS = Path(__file__).parents[2] / "assets" / "prices"


@pytest.fixture
def book():
    return lambda provider: read_book(ASSETS / provider / "vms.csv")


def offer(book, instance):
    return next(found for found in book.offers if found.instance == instance and found.gpu)


def reasons(book):
    return {fault.line: fault.reason for fault in book.faults}


def test_the_provider_is_the_folders_name(book):
    assert {offer.provider for offer in book("aws").offers} == {"aws"}


def test_columns_are_found_by_name_in_any_order(book):
    prices = {
        "aws": ("g6.2xlarge", "0.9776"),
        "azure": ("Standard_NC24ads_A100_v4", "3.673"),
        "lambda": ("gpu_1x_a6000", "1.09"),
        "runpod": ("1x_A100-80GB_SECURE", "1.39"),
    }
    for provider, (instance, price) in prices.items():
        assert offer(book(provider), instance).usd_per_hour == Decimal(price)


def test_memory_is_of_one_gpu_where_the_total_is_of_one_or_of_all(book):
    assert offer(book("lambda"), "gpu_8x_v100_n").gpu_memory_bytes == 16 * GIB
    assert offer(book("aws"), "g6.24xlarge").gpu_memory_bytes == pytest.approx(
        22.35 * GIB, rel=1e-3
    )


def test_memory_in_gib_under_a_name_that_says_mib_is_known_by_its_size(book):
    assert offer(book("runpod"), "2x_A100-80GB_SECURE").gpu_memory_bytes == 80 * GIB


def test_half_a_gpu_has_half_its_memory(book):
    half = offer(book("aws"), "gr6f.4xlarge")
    assert (half.num_gpus, str(half.gpu)) == (Decimal("0.5"), "L4 24GB")
    assert half.gpu_memory_bytes == 11444 * 1024**2


def test_a_plain_name_means_the_smaller_card(book):
    azure = book("azure")
    assert str(offer(azure, "Standard_NC12s_v3").gpu) == "V100 16GB"
    assert str(offer(azure, "Standard_ND40rs_v2").gpu) == "V100 32GB"


def test_rows_that_cannot_be_right_are_left_out_by_line(book):
    found = reasons(book("azure"))
    assert list(found) == [2, 6, 7, 8]
    assert found[6].startswith("it has no price")
    assert found[7].startswith("AcceleratorCount=12 is no number of GPUs")


def test_a_missing_spot_price_is_none(book):
    assert offer(book("lambda"), "gpu_1x_a6000").spot_usd_per_hour is None


def test_an_accelerators_price_is_added_to_its_machines(book):
    """0.73948 + 2.93391 on demand, 0.36975 + 1.5399 on the spot."""
    found = offer(book("gcp"), "a2-highgpu-1g")
    assert (found.usd_per_hour, found.spot_usd_per_hour) == (
        Decimal("3.67339"),
        Decimal("1.90965"),
    )
    assert (found.host_memory_bytes, str(found.gpu)) == (85 * GIB, "A100 40GB")


def test_an_accelerator_without_its_machine_is_left_out(book):
    found = reasons(book("gcp"))
    assert found[8].startswith("an accelerator alone: its price leaves out the machine")


def test_a_spot_price_above_the_one_on_demand_counts_for_the_whole_machine(book):
    """The A100's alone is above, with its machine's it is not; the H100's is above even so."""
    gcp = book("gcp")
    assert offer(gcp, "a2-ultragpu-1g").spot_usd_per_hour == Decimal("2.71018")
    assert offer(gcp, "a3-highgpu-1g").spot_usd_per_hour is None
    assert "spot price is above" in reasons(gcp)[7]


def test_gpu_info_that_cannot_be_read_is_no_guess(tmp_path):
    text = (ASSETS / "lambda" / "vms.csv").read_text().replace("'SizeInMiB': 49152", "'SizeInMiB'")
    (tmp_path / "vms.csv").write_text(text)
    found = read_book(tmp_path / "vms.csv")
    assert "GpuInfo cannot be read" in reasons(found)[4]
    assert len(found.offers) == 2
