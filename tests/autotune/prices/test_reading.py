from datetime import date, timedelta
from decimal import Decimal

import pytest

from autotune.errors import PriceBookError
from autotune.prices.book import FRESH_DAYS
from autotune.prices.reading import builtin_book, read_book
from autotune.prices.warnings import book_warnings
from autotune.rates import GIB
from tests.autotune.prices.books import A100, make_book, make_offer
from tests.factories import make_environment

HEADER = "provider,instance,gpu,gpu_count,vram_gib,dram_gib,on_demand_usd_h,spot_usd_h"
GOOD = "aws,x,A100,1,80,100,3.10,1.2"
TOML = """
name = "mine"
dated = 2026-11-20

[[components]]
gpu = "A100-80GB"
device_usd_h = "1.1"
device_gib_usd_h = 0.01
host_gib_usd_h = 0.002
nvme_gib_usd_h = 0.0001

[[offers]]
provider = "us"
instance = "box"
gpu = "A100-80GB"
gpu_count = 8
dram_gib = 1000
disk_gib = 4000
on_demand_usd_h = 16.10
"""


@pytest.fixture
def book(tmp_path):
    def write(text, name="book.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def rows(*lines, header=HEADER):
    return "\n".join([header, *lines]) + "\n"


def refusal(path, **options):
    with pytest.raises(PriceBookError) as caught:
        read_book(path, **options)
    return str(caught.value)


def test_a_row_becomes_an_offer_with_exact_money(book):
    (offer,) = read_book(book(rows(GOOD))).offers
    assert (offer.usd_per_hour, offer.spot_usd_per_hour) == (Decimal("3.10"), Decimal("1.2"))
    assert str(offer.gpu) == "A100 80GB" and offer.host_memory_bytes == 100 * GIB


def test_toml_has_parts_and_machines(book):
    found = read_book(book(TOML, "book.toml"))
    assert (found.name, found.dated) == ("mine", date(2026, 11, 20))
    assert found.offers[0].disk_bytes == 4000 * GIB
    assert found.components[0].device_usd_per_hour == Decimal("1.1")
    assert found.rates(A100).book == "mine"


def test_parts_may_stand_in_a_csv_too(book):
    header = "gpu,device_usd_h,device_gib_usd_h,host_gib_usd_h,nvme_gib_usd_h,dated"
    found = read_book(book(rows("cpu,0.01,0.002,0.002,0,2026-11-01", header=header)))
    rates = found.rates(make_environment(num_threads=4))
    assert (rates.device_usd_per_hour, rates.dated) == (0.04, "2026-11-01")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("aws,x,A100,1,80,100,-3,", "on_demand_usd_h=-3 is not above 0"),
        ("aws,x,A100,1,80,100,0,", "on_demand_usd_h=0 is not above 0"),
        ("aws,x,A100,1,80,100,3 dollars,", "on_demand_usd_h='3 dollars' is no number"),
        ("aws,x,A100,1,80,100,inf,", "on_demand_usd_h='inf' is not finite"),
        ("aws,x,A100,1,80,100,2250,", "on_demand_usd_h=2250 is absurd: more than $200"),
        ("aws,x,A100,1,80,100,,", "it has no price"),
        ("aws,x,A100,1,20,100,3,", "A100 has 40 or 80 GB, and the row says 20"),
        ("aws,x,A100,1,,100,3,", "A100 has 40 or 80 GB, and the row does not say which"),
        ("aws,x,A100,,80,100,3,", "gpu_count is empty: how many A100 is not known"),
        ("aws,x,A100,12,80,100,3,", "gpu_count=12 is no number of GPUs that a machine has"),
        ("aws,x,,2,,100,3,", "it has GPUs and does not name them"),
        ("aws,x,MI25,1,,100,3,", "the memory of MI25 is not known"),
        ("aws,,A100,1,80,100,3,", "it names no instance"),
        ("aws,x,A100,1,80,,3,", "dram_gib is empty"),
    ],
)
def test_a_bad_row_is_left_out_and_told_by_line(book, row, reason):
    found = read_book(book(rows(GOOD, row)))
    assert len(found.offers) == 1
    assert [fault.line for fault in found.faults] == [3]
    assert found.faults[0].reason.startswith(reason)


def test_a_bad_table_of_toml_is_told_by_line(book):
    bad = '\n[[offers]]\nprovider = "us"\ninstance = "b"\ndram_gib = 1\non_demand_usd_h = -2\n'
    (fault,) = read_book(book(TOML + bad, "book.toml")).faults
    assert TOML.count("\n") < fault.line <= TOML.count("\n") + 2


def test_a_spot_price_above_the_one_on_demand_is_left_out(book):
    found = read_book(book(rows("gcp,x,H100,1,80,200,4.2,5.3")))
    assert found.offers[0].usd_per_hour == Decimal("4.2")
    assert found.offers[0].spot_usd_per_hour is None
    assert "spot price is above" in found.faults[0].reason


def test_two_currencies_are_refused_by_line(book):
    header = f"{HEADER},currency"
    message = refusal(book(rows(f"{GOOD},USD", f"{GOOD},EUR", header=header)))
    assert "line 3 is in EUR, and prices are counted in USD alone" in message


def test_a_toml_in_another_currency_is_refused(book):
    assert "the book is in EUR" in refusal(book('currency = "EUR"\n' + TOML, "b.toml"))


def test_a_book_of_two_days_is_refused(book):
    lines = [f"{GOOD},2026-11-01", f"{GOOD},2026-10-01"]
    message = refusal(book(rows(*lines, header=f"{HEADER},dated")))
    assert "prices of 2 days, such as 2026-10-01, 2026-11-01" in message


def test_a_misspelt_column_is_refused(book):
    message = refusal(book(rows(GOOD, header=HEADER.replace("dram_gib", "dram_gb"))))
    assert "unknown column 'dram_gb'" in message and "did you mean 'dram_gib'" in message


@pytest.mark.parametrize("text", ["", rows(), rows("aws,x,A100,1,80,100,-3,")])
def test_a_book_without_a_usable_row_is_refused(book, text):
    assert "has no row that can be used" in refusal(book(text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "gone.toml' cannot be read" in refusal(tmp_path / "gone.toml")


def test_a_given_day_dates_a_book_that_has_none(book):
    found = read_book(book(rows(GOOD)), date(2026, 11, 3))
    assert (found.dated, found.is_date_stated) == (date(2026, 11, 3), True)


def test_a_book_without_any_day_is_as_old_as_its_file_and_says_so(book):
    found = read_book(book(rows(GOOD)))
    (warning,) = book_warnings(found, found.dated)
    assert "does not say its day" in warning and "--rates-dated" in warning


def test_an_old_book_warns_and_a_fresh_one_does_not():
    book = make_book(make_offer())
    assert book_warnings(book, book.dated + timedelta(days=FRESH_DAYS)) == []
    (warning,) = book_warnings(book, book.dated + timedelta(days=FRESH_DAYS + 1))
    assert "is 91 days old (2026-11-01)" in warning


def test_rows_left_out_for_one_reason_are_one_warning(book):
    bad = "aws,,A100,1,80,100,3,"
    found = read_book(book(rows(GOOD, *[bad] * 5)), date(2026, 11, 3))
    (warning,) = book_warnings(found, found.dated)
    assert warning.startswith("book.csv lines 3, 4, 5 and 2 more: it names no instance")


def test_the_built_in_book_is_whole_and_dated():
    book = builtin_book()
    assert book.faults == () and len(book.offers) == 26
    assert book.dated == date(2026, 6, 30) and book.source
    assert {offer.provider for offer in book.offers} >= {"aws", "azure", "lambda", "runpod"}


def test_without_parts_the_cheapest_machine_with_the_device_is_paid_whole():
    book = make_book(
        make_offer(usd_per_hour=Decimal(5)),
        make_offer(usd_per_hour=Decimal(3)),
        make_offer(usd_per_hour=Decimal(12), num_gpus=Decimal(8)),
    )
    assert book.rates(A100).device_usd_per_hour == 3.0
    assert book.rates(A100, 2).device_usd_per_hour == 6.0
    assert book.rates(A100).device_gib_usd_per_hour == 0.0


def test_a_book_without_the_device_has_no_rates_of_it():
    assert make_book(make_offer()).rates(make_environment()) is None


def test_an_offer_may_say_its_hours_and_how_often_it_is_preempted(book):
    header = f"{HEADER},hours_utc,spot_mtbf_h,region,zone"
    text = rows(f"{GOOD},22-6,12.5,west,west-1", f"{GOOD},0-24,,west,", header=header)
    found = read_book(book(text))
    (night,), (always,) = found.hourly, found.offers
    assert (str(night.hours), night.hours.num_hours) == ("22-6", 8)
    assert night.spot_mtbf_hours == Decimal("12.5")
    assert night.is_zone and night.region == "west-1"
    assert not always.is_zone and always.hours is None and always.spot_mtbf_hours is None


@pytest.mark.parametrize("hours", ["6", "22-25", "24-6", "7-7", "22:00-6:00", "-1-5"])
def test_hours_that_no_day_has_leave_the_row_out(book, hours):
    text = rows(f"{GOOD},{hours}", f"{GOOD},", header=f"{HEADER},hours_utc")
    (fault,) = read_book(book(text)).faults
    assert fault.line == 2 and f"hours_utc={hours!r} are no hours of a day" in fault.reason


def test_a_negative_time_between_preemptions_leaves_the_row_out(book):
    text = rows(f"{GOOD},-3", f"{GOOD},", header=f"{HEADER},spot_mtbf_h")
    (fault,) = read_book(book(text)).faults
    assert "spot_mtbf_h=-3 is not above 0" in fault.reason
