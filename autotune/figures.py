"""Numbers as people read them: bytes in a unit of their size, and never an exponent. Pure."""

from math import ceil, floor, log10

UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
MOST_DIGITS = 999.5
"""From here on a number of three digits has a larger unit."""
DIGITS = 3
"""Of bytes, at least."""


def shown_bytes(size: int) -> str:
    """Return bytes in three digits, or more TiB, in the unit that suits their size."""
    unit = _unit_of(size)
    return f"{shown_number(size / UNITS[unit], DIGITS)} {unit}"


def shown_shortage(needed_bytes: int, budget_bytes: int) -> str:
    """Return what a config needs at least and what it has, in as many digits as tell them apart.

    Args:
        needed_bytes: More than the budget. One byte more stands for a need that is not known:
            what was held and asked for came to less than the budget.
        budget_bytes: What it has.
    """
    if needed_bytes - budget_bytes <= 1:
        return f"needs more than the {shown_bytes(budget_bytes)} that it has"
    unit = _unit_of(budget_bytes)
    needed, has = needed_bytes / UNITS[unit], budget_bytes / UNITS[unit]
    places = _places(needed, DIGITS)
    while _raised(needed, places) <= round(has, places):
        places += 1
    shown = _trimmed(_raised(needed, places), places)
    return f"needs at least {shown} {unit}, has {_trimmed(has, places)} {unit}"


def rounded_up(size: int) -> str:
    """Return a size above the given one, of two digits, as a flag takes it."""
    unit = _unit_of(size)
    number = (size + 1) / UNITS[unit]
    step = 10.0 ** (int(log10(number)) - 1) if number >= 1 else 0.1
    return f"{shown_number(ceil(number / step) * step)}{unit}"


def shown_number(value: float, digits: int = 4) -> str:
    """Return a number in so many digits, and in more where its whole part has more."""
    return f"{value:g}" if value == 0 else _trimmed(value, _places(value, digits))


def shown_count(count: int, one: str, several: str | None = None) -> str:
    """Return a number with the word for what is counted.

    Args:
        count: Of it.
        one: The word for one.
        several: For none or several; left out, with an ``s``.
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def shown_parameters(count: int) -> str:
    """Return how many parameters a model has: in millions, or as they are where they are few."""
    if count < 100_000:
        return shown_count(count, "parameter")
    return f"{shown_number(count / 1e6, 3)} M parameters"


def shown_usd(usd: float) -> str:
    """Return money: to the cent, or in two digits where it is less than a dollar."""
    return f"${usd:,.2f}" if usd >= 1 else f"${shown_number(usd, 2)}"


def _unit_of(size: int) -> str:
    return next((unit for unit, one in UNITS.items() if size / one < MOST_DIGITS), "TiB")


def _places(value: float, digits: int) -> int:
    """Return the decimal places that give a number so many digits."""
    return max(0, digits - 1 - floor(log10(abs(value))))


def _raised(value: float, places: int) -> float:
    scale = 10.0**places
    return ceil(value * scale) / scale


def _trimmed(value: float, places: int) -> str:
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
