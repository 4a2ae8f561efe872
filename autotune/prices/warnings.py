"""What a person should know of a price book before trusting it. Pure."""

from datetime import date

from autotune.prices.book import FRESH_DAYS, PriceBook

MOST_LINES = 3
"""Lines of a file that are named for one reason."""


def book_warnings(book: PriceBook, today: date) -> list[str]:
    """Return what is wrong with a book in words: its age, its date, and rows left out."""
    warnings = []
    age = book.age_days(today)
    if not book.is_date_stated:
        warnings.append(
            f"price book {book.name!r} does not say its day; taken as {book.dated}, when the file "
            "last changed; give --rates-dated"
        )
    if age > FRESH_DAYS:
        warnings.append(
            f"price book {book.name!r} is {age} days old ({book.dated}); prices move, so give a "
            "newer one with --prices"
        )
    if age < 0:
        warnings.append(f"price book {book.name!r} is of a day to come ({book.dated})")
    by_reason: dict[str, list[int]] = {}
    for fault in book.faults:
        by_reason.setdefault(fault.reason, []).append(fault.line)
    warnings += [f"{book.name} {_lines(lines)}: {why}" for why, lines in by_reason.items()]
    return warnings


def _lines(lines: list[int]) -> str:
    named = ", ".join(map(str, lines[:MOST_LINES]))
    more = len(lines) - MOST_LINES
    return f"line{'s' * (len(lines) > 1)} {named}" + (f" and {more} more" if more > 0 else "")
