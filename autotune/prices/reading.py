"""Price books from files: our own CSV and TOML, and the CSV files of the SkyPilot catalogue."""

import csv
import io
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from pathlib import Path

from autotune.errors import PriceBookError
from autotune.prices import skypilot
from autotune.prices.book import CPU, CURRENCY, ComponentRates, Offer, PriceBook, RowFault
from autotune.prices.gpus import Gpu, find_gpu
from autotune.prices.rows import (
    MOST_USD_PER_GPU_HOUR,
    RowError,
    amount_of,
    bytes_of,
    checked_prices,
    known_or_stated,
    num_gpus_of,
    number_of,
    price_of,
    text_of,
    window_of,
)
from search_spaces import did_you_mean

BOOK_KEYS = ("name", "dated", "currency", "source", "components", "offers")
COMPONENT_KEYS = ("device_usd_h", "device_gib_usd_h", "host_gib_usd_h", "nvme_gib_usd_h")
OFFER_KEYS = (
    *("provider", "instance", "gpu", "gpu_count", "vram_gib", "dram_gib", "disk_gib", "vcpus"),
    *("processor", "compute_capability", "on_demand_usd_h", "spot_usd_h", "region", "zone"),
    *("spot_mtbf_h", "hours_utc"),
)
ROW_KEYS = (*OFFER_KEYS, *COMPONENT_KEYS, "currency", "dated", "snapshot", "note")
PRICES = ("on_demand_usd_h", "spot_usd_h")
Row = Mapping[str, object]
NumberedRow = tuple[int, Row]


def read_book(path: Path, dated: date | None = None) -> PriceBook:
    """Read a price book.

    Args:
        path: File of our own (``.toml``, ``.csv``) or of the SkyPilot catalogue (``.csv``).
        dated: Day of its prices, where it does not say so itself.

    Raises:
        PriceBookError: It cannot be read, mixes currencies, or has no row that says a price.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
    except (OSError, UnicodeDecodeError) as error:
        raise PriceBookError(f"price book {str(path)!r} cannot be read: {error}") from error
    try:
        book = _from_toml(text, path) if path.suffix == ".toml" else _from_csv(text, path)
    except RowError as error:
        raise PriceBookError(f"price book {str(path)!r}: {error}") from None
    if not (book.offers or book.hourly or book.components):
        first = f"; the first row: {book.faults[0].reason}" if book.faults else ""
        raise PriceBookError(f"price book {str(path)!r} has no row that can be used{first}")
    if book.dated != date.min:
        return book
    return replace(book, dated=dated or changed, is_date_stated=dated is not None)


@cache
def builtin_book() -> PriceBook:
    """Return the book that comes with the program; it needs no network, and grows old."""
    text = files("autotune.prices").joinpath("builtin.toml").read_text(encoding="utf-8")
    return _from_toml(text, Path("builtin.toml"))


def _from_toml(text: str, path: Path) -> PriceBook:
    try:
        document = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise RowError(f"it is no TOML: {error}") from None
    _require_known(document, BOOK_KEYS, "key")
    _require_currency(text_of(document, "currency") or CURRENCY, "the book")
    offers = _tables(document, "offers", text)
    components = _tables(document, "components", text)
    day = document.get("dated")
    book = PriceBook(
        name=text_of(document, "name") or path.stem,
        dated=date.min if day is None else _day(str(day)),
        source=text_of(document, "source"),
    )
    return _with_rows(book, [*components, *offers])


def _from_csv(text: str, path: Path) -> PriceBook:
    reader = csv.DictReader(io.StringIO(text))
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    rows: list[NumberedRow] = [(reader.line_num, row) for row in reader]
    if skypilot.is_catalogue(columns):
        offers, faults = skypilot.read_offers(rows, provider=path.resolve().parent.name)
        stem = f"{path.resolve().parent.name}/{path.name}"
        book = PriceBook(name=stem, dated=date.min, source="SkyPilot catalogue")
        return replace(book, offers=tuple(offers), faults=tuple(faults))
    _require_known(columns, ROW_KEYS, "column")
    for line, row in rows:
        _require_currency(text_of(row, "currency") or CURRENCY, f"line {line}")
    days = {text_of(row, "dated") for _, row in rows} - {""}
    if len(days) > 1:
        raise RowError(f"it has prices of {len(days)} days, such as {', '.join(sorted(days)[:2])}")
    day = _day(days.pop()) if days else date.min
    return _with_rows(PriceBook(name=path.name, dated=day), rows)


def _with_rows(book: PriceBook, rows: Sequence[NumberedRow]) -> PriceBook:
    offers: list[Offer] = []
    components: list[ComponentRates] = []
    faults: list[RowFault] = []
    for line, row in rows:
        try:
            if any(text_of(row, key) for key in COMPONENT_KEYS):
                components.append(_components(row))
            else:
                offer, without = _offer(row, line)
                offers.append(offer)
                faults += without
        except RowError as error:
            faults.append(RowFault(line=line, reason=f"{error}; the row is left out"))
    return replace(
        book,
        offers=tuple(offer for offer in offers if offer.hours is None),
        hourly=tuple(offer for offer in offers if offer.hours is not None),
        components=tuple(components),
        faults=tuple(faults),
    )


def _components(row: Row) -> ComponentRates:
    gpu = text_of(row, "gpu")
    if gpu not in ("", CPU) and find_gpu(gpu) is None:
        raise RowError(f"gpu={gpu!r} is no model that is known, or leaves its memory open")
    rates = {}
    for key in COMPONENT_KEYS:
        rate = number_of(row, key)
        if rate is None or not 0 <= rate <= MOST_USD_PER_GPU_HOUR:
            raise RowError(
                f"{key}={text_of(row, key)!r} is no rate: give all of {', '.join(COMPONENT_KEYS)}"
            )
        rates[key.removesuffix("_h") + "_per_hour"] = rate
    return ComponentRates(gpu=gpu, **rates)


def _offer(row: Row, line: int) -> tuple[Offer, list[RowFault]]:
    gpu, num_gpus = _gpu(row)
    on_demand, on_spot = (price_of(row, name, num_gpus) for name in PRICES)
    price, spot, faults = checked_prices(on_demand, on_spot, line)
    host, disk = amount_of(row, "dram_gib"), amount_of(row, "disk_gib")
    if not text_of(row, "instance"):
        raise RowError("it names no instance: the price of an accelerator leaves out its machine")
    if host is None:
        raise RowError("dram_gib is empty: what the host holds is not known")
    share = min(num_gpus, Decimal(1))
    vram = amount_of(row, "vram_gib") or (
        None if gpu is None else _decimal(gpu.memory_gib) * share
    )
    offer = Offer(
        provider=text_of(row, "provider"),
        instance=text_of(row, "instance"),
        region=text_of(row, "zone") or text_of(row, "region"),
        gpu=gpu,
        num_gpus=num_gpus,
        gpu_memory_bytes=0 if vram is None else bytes_of(vram),
        host_memory_bytes=bytes_of(host),
        disk_bytes=None if disk is None else bytes_of(disk),
        num_cores=amount_of(row, "vcpus"),
        processor=text_of(row, "processor"),
        usd_per_hour=price,
        spot_usd_per_hour=spot,
        spot_mtbf_hours=amount_of(row, "spot_mtbf_h"),
        hours=window_of(row, "hours_utc"),
        is_zone=bool(text_of(row, "zone")),
    )
    return offer, faults


def _gpu(row: Row) -> tuple[Gpu | None, Decimal]:
    name, number = text_of(row, "gpu"), num_gpus_of(row, "gpu_count")
    if not name and number:
        raise RowError("it has GPUs and does not name them")
    if not name:
        return None, number
    if not number:
        raise RowError(f"gpu_count is empty: how many {name} is not known")
    vram = amount_of(row, "vram_gib")
    whole = None if vram is None else float(vram / min(number, Decimal(1)))
    return known_or_stated(name, whole, text_of(row, "compute_capability")), number


def _decimal(number: float) -> Decimal:
    return Decimal(repr(number))


def _tables(document: Row, key: str, text: str) -> list[NumberedRow]:
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise RowError(f"{key} must be tables, each begun by [[{key}]]")
    starts = re.finditer(rf"^\s*\[\[\s*{key}\s*\]\]", text, re.MULTILINE)
    lines = [text.count("\n", 0, start.end()) + 1 for start in starts]
    for table in tables:
        _require_known(table, ROW_KEYS, f"key of {key}")
    return list(zip(lines or [1] * len(tables), tables, strict=False))


def _require_known(found: Row | Sequence[str], known: Sequence[str], what: str) -> None:
    for name in found:
        if name not in known:
            raise RowError(f"unknown {what} {name!r}{did_you_mean(name, known)}")


def _require_currency(found: str, where: str) -> None:
    if found != CURRENCY:
        raise RowError(
            f"{where} is in {found}, and prices are counted in {CURRENCY} alone: convert it, "
            "and date it by the day of the exchange rate"
        )


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise RowError(f"dated={text!r} is no day; write it like 2026-06-30") from None
