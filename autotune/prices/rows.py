"""One row of a price list, read with care: a value that cannot be right is refused."""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from autotune.prices.book import HourWindow, RowFault
from autotune.prices.gpus import Gpu, agrees, find_gpu, known_gpus, parse_capability, short_name

GIB = 1024**3
MOST_USD_PER_GPU_HOUR = Decimal(200)
"""No GPU is rented for as much; more is a price of something else, or of a month."""
MOST_MACHINE_GPUS = (16, 8)
"""Machines have up to 8 GPUs, or 16."""


class RowError(ValueError):
    """A row that says nothing usable; the message says why."""


def text_of(row: Mapping[str, object], name: str) -> str:
    """Return a cell without the space around it; empty where there is none."""
    value = row.get(name)
    return "" if value is None else str(value).strip()


def number_of(row: Mapping[str, object], name: str) -> Decimal | None:
    """Return a cell's number; None where it is empty.

    Raises:
        RowError: It is no finite number.
    """
    text = text_of(row, name)
    if text.lower() in ("", "nan", "none"):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise RowError(f"{name}={text!r} is no number") from None
    if not number.is_finite():
        raise RowError(f"{name}={text!r} is not finite")
    return number


def amount_of(row: Mapping[str, object], name: str) -> Decimal | None:
    """Return a cell's number above 0; None where it is empty.

    Raises:
        RowError: It is none, or not above 0.
    """
    number = number_of(row, name)
    if number is not None and number <= 0:
        raise RowError(f"{name}={number} is not above 0")
    return number


def price_of(row: Mapping[str, object], name: str, num_gpus: Decimal) -> Decimal | None:
    """Return an hour's price in US dollars; None where there is none.

    Raises:
        RowError: It is negative, 0, or more than such a machine can cost.
    """
    price = amount_of(row, name)
    most = MOST_USD_PER_GPU_HOUR * max(num_gpus, Decimal(1))
    if price is not None and price > most:
        raise RowError(f"{name}={price} is absurd: more than ${most} an hour")
    return price


def checked_prices(
    price: Decimal | None, spot: Decimal | None, line: int
) -> tuple[Decimal | None, Decimal | None, list[RowFault]]:
    """Return the prices on demand and on the spot, and what was left out of them.

    Raises:
        RowError: There is neither.
    """
    if price is None and spot is None:
        raise RowError("it has no price")
    if price is not None and spot is not None and spot > price:
        reason = "its spot price is above the one on demand, and is left out"
        return price, None, [RowFault(line=line, reason=reason)]
    return price, spot, []


def num_gpus_of(row: Mapping[str, object], name: str) -> Decimal:
    """Return how many GPUs a machine has; 0 where the cell is empty.

    Raises:
        RowError: No machine has so many.
    """
    number = number_of(row, name) or Decimal(0)
    most_whole, most_usual = MOST_MACHINE_GPUS
    is_share = 0 < number < 1
    is_whole = number == number.to_integral_value() and 0 <= number <= most_usual
    if not (is_share or is_whole or number == most_whole):
        raise RowError(f"{name}={number:f} is no number of GPUs that a machine has")
    return number


def window_of(row: Mapping[str, object], name: str) -> HourWindow | None:
    """Return the hours of a day in which a row holds; None where it always does.

    Raises:
        RowError: They are not two whole hours of a day.
    """
    text = text_of(row, name)
    if not text:
        return None
    found = re.fullmatch(r"(\d{1,2})-(\d{1,2})", text)
    start, end = (int(hour) for hour in found.groups()) if found else (-1, -1)
    if not (0 <= start < 24 and 0 < end <= 24 and start != end):
        raise RowError(f"{name}={text!r} are no hours of a day; write them like 22-6")
    window = HourWindow(start_hour=start, end_hour=end)
    return None if window.num_hours == 24 else window


def bytes_of(gib: Decimal) -> int:
    """Return GiB as bytes."""
    return int(gib * GIB)


def known_or_stated(name: str, memory_gib: float | None, capability: str = "") -> Gpu:
    """Return a GPU out of the table, or as a row describes one that is not in it.

    Args:
        name: As the row has it.
        memory_gib: Of a whole card; None where the row does not say.
        capability: Compute capability, as the row has it; empty where it does not say.

    Raises:
        RowError: Its memory is not known, or is none that this model has.
    """
    model = find_gpu(name, memory_gib)
    if model is not None and (memory_gib is None or agrees(model, memory_gib)):
        return model
    stated = "does not say which" if memory_gib is None else f"says {memory_gib:.4g}"
    sold = known_gpus().get(short_name(name))
    if sold:
        sizes = " or ".join(f"{gpu.memory_gib:g}" for gpu in sold)
        raise RowError(f"{name} has {sizes} GB, and the row {stated}")
    if memory_gib is None:
        raise RowError(f"the memory of {name} is not known")
    try:
        known = parse_capability(capability) if capability else None
    except ValueError:
        raise RowError(f"compute_capability={capability!r}: write it like 8.0") from None
    return Gpu(name=short_name(name), memory_gib=memory_gib, capability=known)
