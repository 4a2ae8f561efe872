"""What a study has spent, and which limit of its budget that reaches."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from autotune.rates import Rates
from autotune.records import Budget, Source, TrialRecord, WorkTime
from trials.measurement import Measurement, Outcome


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
        reserved: Kept back of every limit of time and money, for a second run.
    """

    budget: Budget
    rates: Rates
    earlier: WorkTime = field(default_factory=WorkTime)
    trials: int = 0
    session_device_seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)
    reserved: WorkTime = field(default_factory=WorkTime)

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

    @property
    def is_time_up(self) -> bool:
        """Whether a limit of time or money is reached, the reserve being spent."""
        return any(spent >= limit for spent, limit, _, _ in self._limits(WorkTime())[1:] if limit)

    def reserve(self, measurement: Measurement) -> None:
        """Keep back as much time as a trial took, for a second run; only completed ones have it.

        Args:
            measurement: Of the trial; the processes of a group ran side by side, a rank each.
        """
        if measurement.outcome != Outcome.COMPLETED:
            return
        seconds, kept = measurement.process_seconds, self.reserved
        self.reserved = WorkTime(
            wall_seconds=max(kept.wall_seconds, seconds / measurement.num_ranks),
            device_seconds=max(kept.device_seconds, seconds),
        )

    def reached(self) -> str | None:
        """Return which limit is reached, in words, or None."""
        return next((f"budget of {words} spent" for words, _ in self._reached()), None)

    def remedy(self) -> str | None:
        """Return which flag raises the limit that is reached; None where none is."""
        return next(
            (f"give {flag} for more than {words}" for words, flag in self._reached()), None
        )

    def _reached(self) -> Iterator[tuple[str, str]]:
        for spent, limit, words, flag in self._limits(self.reserved):
            if limit is not None and spent >= limit:
                yield words.format(limit), flag

    def _limits(self, reserve: WorkTime) -> tuple[tuple[float, float | None, str, str], ...]:
        """Return what is spent, the limit, its words and its flag; trials first."""
        device_seconds = self.device_seconds + reserve.device_seconds
        usd = device_seconds / 3600 * self.rates.device_usd_per_hour
        seconds, limit = self.seconds + reserve.wall_seconds, self.budget
        return (
            (self.trials, limit.trials, "{:.0f} trials", "--trials N"),
            (seconds, limit.seconds, "{:g} s of wall time", "--seconds S"),
            (device_seconds, limit.device_seconds, "{:g} s of device time", "--device-seconds S"),
            (usd, limit.usd, "${:g} of device time", "--usd X"),
        )
