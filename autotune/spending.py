"""What a study has spent, and which limit of its budget that reaches."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from autotune.rates import Rates
from autotune.records import Budget, Source, TrialRecord


@dataclass(slots=True)
class Spending:
    """Running total of one study over all its sessions. Not frozen: it grows.

    Attributes:
        budget: The limits.
        rates: For the money.
        trials: Trials that ran, those under way included.
        device_seconds: Time of trial processes together.
        earlier_seconds: Wall time of earlier sessions.
        started: Of this session, on the monotonic clock.
    """

    budget: Budget
    rates: Rates
    trials: int = 0
    device_seconds: float = 0.0
    earlier_seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def count_earlier(self, trials: Iterable[TrialRecord]) -> None:
        """Add what earlier sessions ran."""
        for trial in trials:
            if trial.source == Source.RUN and trial.measurement is not None:
                self.trials += 1
                self.device_seconds += trial.measurement.process_seconds

    @property
    def seconds(self) -> float:
        """Wall time over all sessions."""
        return self.earlier_seconds + time.monotonic() - self.started

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
