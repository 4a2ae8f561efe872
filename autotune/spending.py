"""What a study has spent, and which limit of its budget that reaches."""

import time
from collections.abc import Iterable, Iterator
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
        return next((f"budget of {words} spent" for words, _ in self._reached_limits()), None)

    def remedy(self) -> str | None:
        """Return which flag raises the limit that is reached; None where none is."""
        return next(
            (f"give {flag} for more than {words}" for words, flag in self._reached_limits()), None
        )

    def _reached_limits(self) -> Iterator[tuple[str, str]]:
        limits = (
            (self.trials, self.budget.trials, "{:.0f} trials", "--trials N"),
            (self.seconds, self.budget.seconds, "{:g} s of wall time", "--seconds S"),
            (
                self.device_seconds,
                self.budget.device_seconds,
                "{:g} s of device time",
                "--device-seconds S",
            ),
            (self.usd, self.budget.usd, "${:g} of device time", "--usd X"),
        )
        for spent, limit, words, flag in limits:
            if limit is not None and spent >= limit:
                yield words.format(limit), flag
