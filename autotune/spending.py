"""What a study has spent, and which limit of its budget that reaches."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from autotune.rates import Rates
from autotune.records import Budget, Source, TrialRecord, WorkTime


@dataclass(slots=True)
class Spending:
    """Running total of one study over all its sessions. Not frozen: it grows.

    Attributes:
        budget: The limits.
        rates: For the money.
        earlier: Time of earlier sessions.
        trials: Trials that ran, those under way included.
        session_device_seconds: Time of this session's trial processes together.
        started: Of this session, on the monotonic clock.
    """

    budget: Budget
    rates: Rates
    earlier: WorkTime = field(default_factory=WorkTime)
    trials: int = 0
    session_device_seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def count_earlier(self, trials: Iterable[TrialRecord]) -> None:
        """Add the trials that earlier sessions ran."""
        self.trials += sum(t.source == Source.RUN and t.measurement is not None for t in trials)

    @property
    def seconds(self) -> float:
        """Wall time over all sessions."""
        return self.earlier.wall_seconds + time.monotonic() - self.started

    @property
    def device_seconds(self) -> float:
        """Time of trial processes over all sessions."""
        return self.earlier.device_seconds + self.session_device_seconds

    @property
    def usd(self) -> float:
        """Device time at the device rate."""
        return self.device_seconds / 3600 * self.rates.device_usd_per_hour

    def reached(self) -> str | None:
        """Return which limit is reached, in words, or None."""
        limits = (
            (self.trials, self.budget.trials, "{:.0f} trials"),
            (self.seconds, self.budget.seconds, "{:g} s of wall time"),
            (self.device_seconds, self.budget.device_seconds, "{:g} s of device time"),
            (self.usd, self.budget.usd, "${:g} of device time"),
        )
        for spent, limit, words in limits:
            if limit is not None and spent >= limit:
                return f"budget of {words.format(limit)} spent"
        return None
