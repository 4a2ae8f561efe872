"""A run in certain hours of each day: when it starts and ends, and what its pauses cost. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from autotune.prices.book import HourWindow

DAY = timedelta(days=1)
MOST_DAYS = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """When a run has a machine.

    Attributes:
        starts_at: In UTC.
        finishes_at: In UTC.
        paid_seconds: In between, pauses aside.
    """

    starts_at: datetime
    finishes_at: datetime
    paid_seconds: float


def stay_in(
    window: HourWindow | None, begins_at: datetime, seconds: float, *, pause_seconds: float
) -> Stay | None:
    """Return when a run is on a machine that it may have in some hours of each day.

    Args:
        window: The hours; None for all.
        begins_at: When it could start, in UTC.
        seconds: That it takes without a pause.
        pause_seconds: More for each pause: a checkpoint before, a restart after.

    Returns:
        Its stay; None where the hours are too short to get on, or it would take ten years.
    """
    if seconds > MOST_DAYS * DAY.total_seconds():
        return None
    if window is None:
        end = begins_at + timedelta(seconds=seconds)
        return Stay(starts_at=begins_at, finishes_at=end, paid_seconds=seconds)
    opens, closes = _next(window, begins_at, pause_seconds)
    starts_at, paid = opens, 0.0
    for _ in range(MOST_DAYS):
        room = (closes - opens).total_seconds()
        if seconds <= room:
            end = opens + timedelta(seconds=seconds)
            return Stay(starts_at=starts_at, finishes_at=end, paid_seconds=paid + seconds)
        if room <= pause_seconds:
            return None
        paid += room
        seconds += pause_seconds - room
        opens = closes - timedelta(hours=window.num_hours) + DAY
        closes += DAY
    return None


def _next(window: HourWindow, now: datetime, least_seconds: float) -> tuple[datetime, datetime]:
    """Return the first hours from now on that are left and long enough to get on in."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    opens = midnight - DAY + timedelta(hours=window.start_hour)
    while True:
        closes = opens + timedelta(hours=window.num_hours)
        begin = max(opens, now)
        if begin == opens or (closes - begin).total_seconds() > least_seconds:
            return begin, closes
        opens += DAY
