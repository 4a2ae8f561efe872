"""A trial of several processes, seen from its host: one end for all of them.

When a process fails, the others would wait in a collective for one that never comes; the group
ends them at once, and what the first one found is what the trial found.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol

from trials.measurement import Measurement, MemoryUse, Outcome, StepTiming
from trials.spec import TrialSpec

BLAMED = (
    Outcome.OUT_OF_MEMORY,
    Outcome.CRASHED,
    Outcome.TIMED_OUT,
    Outcome.DIVERGED,
    Outcome.INVALID,
)
"""Which outcome explains another: a lost connection reads as ``invalid``."""
GRACE_SECONDS = 1.0
"""A process that runs out of memory breaks the others' connections; for so long after a first
failure the others may still say that it was they who failed first."""


class TrialProcess(Protocol):
    """What a group needs of each of its processes."""

    @property
    def waitables(self) -> tuple[Any, ...]:
        """What to wait on for news."""

    @property
    def seconds_left(self) -> float:
        """Time until the deadline."""

    def poll(self, timeout_seconds: float) -> Measurement | None:
        """Return the measurement once there is one."""

    def cancel(self) -> None:
        """End it now."""

    def end(self) -> None:
        """Make sure that nothing of it runs any more."""


class TrialGroup:
    """Processes that do one trial together."""

    def __init__(
        self, spec: TrialSpec, start: Callable[[TrialSpec], TrialProcess], folder: Path
    ) -> None:
        """Start them all.

        Args:
            spec: Of the trial, with ``num_ranks`` above 1.
            start: Starts one process.
            folder: For the file by which they find each other.
        """
        self.spec = spec
        self._rendezvous = folder / f"{spec.trial_id}.ranks"
        self._found: dict[int, Measurement] = {}
        self._ranks: list[TrialProcess] = []
        with ExitStack() as undo:
            undo.callback(self.end)
            for rank in range(spec.num_ranks):
                self._ranks.append(start(spec.of_rank(rank, str(self._rendezvous))))
            undo.pop_all()

    @property
    def waitables(self) -> tuple[Any, ...]:
        """What ``multiprocessing.connection.wait`` can wait on for news of the trial."""
        return tuple(w for rank in self._unfinished for w in self._ranks[rank].waitables)

    @property
    def seconds_left(self) -> float:
        """Time until the first deadline; not negative."""
        return min((self._ranks[rank].seconds_left for rank in self._unfinished), default=0.0)

    def poll(self, timeout_seconds: float) -> Measurement | None:
        """Return the measurement of all once there is one, or None after a while without."""
        until = time.monotonic() + timeout_seconds
        while True:
            self._look()
            if self._failed:
                return self._fail()
            if not self._unfinished:
                return self._complete()
            left = until - time.monotonic()
            if left <= 0:
                return None
            wait(self.waitables, min(left, max(0.01, self.seconds_left)))

    def result(self) -> Measurement:
        """Return the measurement once there is one, by the deadline at the latest."""
        while (measurement := self.poll(max(0.01, self.seconds_left))) is None:
            pass
        return measurement

    def cancel(self) -> None:
        """End all now; ``poll`` returns that they were. May be called from another thread."""
        for rank in self._ranks:
            rank.cancel()

    def end(self) -> None:
        """Make sure that nothing of the trial runs any more. Safe to call twice."""
        for rank in self._ranks:
            rank.end()
        self._rendezvous.unlink(missing_ok=True)

    @property
    def _unfinished(self) -> list[int]:
        return [rank for rank in range(len(self._ranks)) if rank not in self._found]

    @property
    def _failed(self) -> list[int]:
        return [r for r, found in self._found.items() if found.outcome != Outcome.COMPLETED]

    def _look(self) -> None:
        for rank in self._unfinished:
            found = self._ranks[rank].poll(0.0)
            if found is not None:
                self._found[rank] = found

    def _fail(self) -> Measurement:
        """Return the failure that caused the others: the worst, and of equal ones the first."""
        until = time.monotonic() + GRACE_SECONDS
        while self._unfinished and self._blame(self._culprit) > 0 and time.monotonic() < until:
            wait(self.waitables, max(0.0, until - time.monotonic()))
            self._look()
        rank = self._culprit
        found = self._found[rank]
        self.end()
        assert found.failure is not None
        failure = replace(found.failure, rank=rank, reason=f"rank {rank}: {found.failure.reason}")
        return replace(self._together(found), failure=failure)

    @property
    def _culprit(self) -> int:
        return min(self._failed, key=self._blame)

    def _blame(self, rank: int) -> int:
        return BLAMED.index(self._found[rank].outcome)

    def _complete(self) -> Measurement:
        self.end()
        found = [self._found[rank] for rank in range(len(self._ranks))]
        first = self._together(found[0])
        if first.timing is None:
            return first
        return replace(
            first,
            timing=_timing_of_all([one.timing for one in found if one.timing is not None]),
            memory=_fullest([one.memory for one in found if one.memory is not None]),
        )

    def _together(self, measurement: Measurement) -> Measurement:
        seconds = sum(one.process_seconds for one in self._found.values())
        return replace(measurement, num_ranks=len(self._ranks), process_seconds=seconds)


def _timing_of_all(timings: list[StepTiming]) -> StepTiming:
    """Return the first rank's times, which all waited for, with the samples of all."""
    return replace(
        timings[0],
        samples_per_step=sum(timing.samples_per_step for timing in timings),
        units_per_step=sum(timing.units_per_step for timing in timings),
    )


def _fullest(memories: list[MemoryUse]) -> MemoryUse:
    return max(memories, key=lambda memory: memory.peak_device_bytes)
