"""A study as any tracker keeps it: runs with parameters, metrics and tags. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

from autotune.records import StudyRecord, StudyState, TrialRecord
from autotune.summary import short_reason
from search_spaces import KnobValue, stable_hash
from trials.measurement import Outcome

LONGEST_REASON = 400
"""Characters; what trackers show of a tag."""


class Standing(StrEnum):
    """How a run stands.

    running --> done       to its end
            --> failed     ended without what it was for: out of memory, diverged, ...
            --> stopped    by a person, or its driver is gone
    """

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """A study or a trial on its way to a tracker.

    Attributes:
        id: The same for the same trial whenever it is tracked, from any machine; hexadecimal.
        name: For people.
        standing: How it stands.
        seconds: Wall time that it took.
        params: What was set.
        metrics: What was measured; nothing for what was not.
        tags: What else is known of it.
    """

    id: str
    name: str
    standing: Standing
    seconds: float
    params: dict[str, KnobValue]
    metrics: dict[str, float]
    tags: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedStudy:
    """A study with its measured trials.

    Attributes:
        run: The study itself.
        begun_ms: When it was begun, in milliseconds since the epoch.
        trials: By number.
    """

    run: TrackedRun
    begun_ms: int
    trials: tuple[TrackedRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What tracking a study did.

    Attributes:
        place: Where its runs are.
        num_new: Trials that were not there.
        num_changed: Trials that were there otherwise.
        num_same: Trials that were there as they are.
    """

    place: str
    num_new: int
    num_changed: int
    num_same: int

    @classmethod
    def of(cls, place: str, done: Sequence["Done"]) -> Self:
        """Return a count of what was done with each trial."""
        return cls(
            place=place,
            num_new=done.count(Done.NEW),
            num_changed=done.count(Done.CHANGED),
            num_same=done.count(Done.SAME),
        )


class Done(StrEnum):
    """What was done with a run."""

    NEW = "new"
    CHANGED = "changed"
    SAME = "same"


class Tracker(Protocol):
    """Keeps studies."""

    def record(self, study: TrackedStudy) -> Recorded:
        """Add what is not there yet, and bring the rest up to date. Said twice, it adds nothing.

        Raises:
            TrackingError: The tracker refused or cannot be reached.
        """
        ...


def tracked_study(
    study: StudyRecord,
    trials: Sequence[TrialRecord],
    *,
    front: Collection[int],
    recommended: int | None,
    is_driven: bool,
) -> TrackedStudy:
    """Return a study as trackers keep it.

    Args:
        study: Finished, or running.
        trials: All of its trials; those without a measurement are left out.
        front: Numbers of the trials on it.
        recommended: Number of the recommended trial.
        is_driven: Whether a living driver runs it.
    """
    runs = tuple(
        _trial_run(study, trial, trial.number in front, trial.number == recommended)
        for trial in trials
        if trial.is_measured and trial.outcome is not None
    )
    begun_ms = int(study.created_at.timestamp() * 1000)
    return TrackedStudy(
        run=_study_run(study, recommended, is_driven), begun_ms=begun_ms, trials=runs
    )


def _id(study: StudyRecord, *rest: int) -> str:
    """Tell a study from another of its name, begun after it was deleted."""
    return stable_hash([study.spec.name, study.created_at.isoformat(), *rest])


def _study_run(study: StudyRecord, recommended: int | None, is_driven: bool) -> TrackedRun:
    standing = {
        StudyState.RUNNING: Standing.RUNNING if is_driven else Standing.STOPPED,
        StudyState.FINISHED: Standing.DONE,
        StudyState.INTERRUPTED: Standing.STOPPED,
        StudyState.FAILED: Standing.FAILED,
    }[study.state]
    return TrackedRun(
        id=_id(study),
        name=study.spec.name,
        standing=standing,
        seconds=study.worked.wall_seconds,
        params={"sampler": study.spec.sampler, "space": study.spec.space.hash},
        metrics={"device_seconds": study.worked.device_seconds},
        tags={
            **_study_tags(study),
            "state": str(standing),
            "stop_reason": study.stop_reason[:LONGEST_REASON],
            "objectives": ",".join(study.spec.objectives),
            "rates": study.spec.rates.label,
            "recommended_trial": "" if recommended is None else str(recommended),
        },
    )


def _trial_run(
    study: StudyRecord, trial: TrialRecord, is_on_front: bool, is_recommended: bool
) -> TrackedRun:
    assert trial.measurement is not None
    is_completed = trial.outcome == Outcome.COMPLETED
    return TrackedRun(
        id=_id(study, trial.number),
        name=f"{study.spec.name} trial {trial.number}",
        standing=Standing.DONE if is_completed else Standing.FAILED,
        seconds=trial.measurement.process_seconds,
        params=trial.config.as_dict(),
        metrics=_metrics(trial) if is_completed else {},
        tags={
            **_study_tags(study),
            "trial": str(trial.number),
            "outcome": str(trial.outcome),
            "on_front": _word(is_on_front),
            "recommended": _word(is_recommended),
            "baseline": _word(trial.config == study.spec.baseline),
            "source": str(trial.source),
            "reason": short_reason(trial, study.spec.memory_budget_bytes, LONGEST_REASON),
            "quality_name": study.facts.quality_name,
        },
    )


def _study_tags(study: StudyRecord) -> dict[str, str]:
    return {
        "study": study.spec.name,
        "workload": study.spec.workload,
        "device": study.environment.device_name,
        "date": f"{study.created_at:%Y-%m-%d}",
    }


def _metrics(trial: TrialRecord) -> dict[str, float]:
    """Return what a completed trial measured; a score that it has not is left out."""
    assert trial.measurement is not None
    timing, memory, scores = trial.measurement.timing, trial.measurement.memory, trial.scores
    found = {
        "throughput_samples_per_second": None if timing is None else timing.samples_per_second,
        "step_seconds": None if timing is None else timing.mean_seconds,
        "peak_device_bytes": None if memory is None else memory.peak_device_bytes,
        "peak_host_bytes": None if memory is None else memory.peak_host_bytes,
        "cost_usd_per_million_samples": scores.cost_usd_per_million_samples,
        "quality": scores.quality,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def _word(is_so: bool) -> str:
    return "yes" if is_so else "no"
