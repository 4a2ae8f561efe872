"""What a study store promises. The driver is its only writer; anyone may read."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from autotune.records import (
    Budget,
    MeasurementKey,
    Owner,
    Scores,
    StoredMeasurement,
    StoredQuality,
    StudyRecord,
    StudyState,
    StudySummary,
    TrialRecord,
    WorkTime,
)
from trials.measurement import Measurement


class StudyStore(ABC):
    """Studies, measurements, trials, quality and the front, in one place.

    Every method is one transaction: after a crash it has happened or it has not. Values in,
    values out; what is returned shares nothing with the store. Errors of the database come out
    as ``StoreUnreachableError``, a row that it refuses as ``StoreError``; neither holds a secret
    of the URL.
    """

    @abstractmethod
    def create_study(self, record: StudyRecord) -> None:
        """Add a study.

        Raises:
            StudyExistsError: One of that name is there.
        """

    @abstractmethod
    def study(self, name: str) -> StudyRecord:
        """Return a study.

        Raises:
            StudyNotFoundError: None of that name; the message names those that are.
        """

    @abstractmethod
    def studies(self) -> list[StudySummary]:
        """Return one line per study, newest first."""

    @abstractmethod
    def delete_study(self, name: str) -> None:
        """Remove a study, its trials and its front. Measurements and qualities stay.

        Raises:
            StudyNotFoundError: None of that name.
            StudyBusyError: A living driver runs it.
        """

    @abstractmethod
    def claim(
        self, name: str, owner: Owner, lease_seconds: float, budget: Budget | None = None
    ) -> int:
        """Make a driver the owner of a study, until the lease runs out, and return its epoch.

        The study is running from then on, under the budget if one is given.

        A lease that ran out, that was released, or whose process on this machine is dead is
        free to take. Each claim has a higher epoch than the one before.

        Raises:
            StudyNotFoundError: None of that name.
            StudyBusyError: Another living driver holds it; the message says who and how long.
        """

    @abstractmethod
    def renew(self, name: str, epoch: int, lease_seconds: float, worked: WorkTime) -> None:
        """Prolong a claim and add to the time that the study took.

        Raises:
            LeaseLostError: A later claim exists, or this one was released.
        """

    @abstractmethod
    def release(self, name: str, epoch: int, state: StudyState, stop_reason: str) -> None:
        """End a claim, and say how the study stands. Quiet when a later claim exists."""

    @abstractmethod
    def open_trial(self, trial: TrialRecord) -> None:
        """Add a trial: leased before it is dispatched, or measured at once when it is cached.

        Raises:
            StudyNotFoundError: No such study.
            StoreError: The study has a trial of that number.
        """

    @abstractmethod
    def record_measurement(
        self,
        trial: TrialRecord,
        key: MeasurementKey,
        memory_budget_bytes: int | None,
        measurement: Measurement,
    ) -> bool:
        """Keep a measurement, and attach it to its trial if the trial's lease still stands.

        The measurement is kept in either case. The trial becomes ``measured`` with its outcome
        and reason.

        Returns:
            Whether it was attached; False for a late result.
        """

    @abstractmethod
    def measurements(self, key: MeasurementKey) -> list[StoredMeasurement]:
        """Return every measurement of a key, newest first."""

    @abstractmethod
    def later_measurements(self, study: str) -> dict[int, list[StoredMeasurement]]:
        """Return the measurements of each trial's key that came after its own, newest first.

        By number; a trial without any is left out, and so is one that did not complete.
        """

    @abstractmethod
    def record_quality(self, quality: StoredQuality) -> None:
        """Keep a quality run; a second one of the same key and seed replaces the first."""

    @abstractmethod
    def qualities(self, workload: str, environment: str, samples: int) -> list[StoredQuality]:
        """Return the quality runs of a workload in an environment, by numerics and seed."""

    @abstractmethod
    def tell_trial(self, trial: TrialRecord, scores: Scores, violation: float) -> None:
        """Set a measured or predicted trial's scores and make it ``told``, or tell it anew.

        A reason that the trial has now, such as a lost quality, replaces the stored one.

        Raises:
            StoreError: The trial has no result.
        """

    @abstractmethod
    def lose_trial(self, study: str, number: int, reason: str) -> None:
        """Make a leased trial ``lost``; its lease stands no longer. Quiet in another state."""

    @abstractmethod
    def trials(self, study: str) -> list[TrialRecord]:
        """Return a study's trials with their measurements, by number.

        Raises:
            StudyNotFoundError: None of that name.
        """

    @abstractmethod
    def set_front(self, study: str, numbers: Sequence[int], recommended: int | None) -> None:
        """Replace a study's front: told trials, cheapest first, and the recommended one."""

    @abstractmethod
    def front(self, study: str) -> list[TrialRecord]:
        """Return the trials of a study's front, in the order given.

        Raises:
            StudyNotFoundError: None of that name.
        """

    @abstractmethod
    def recommended(self, study: str) -> int | None:
        """Return the number of the recommended trial, or None."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""
