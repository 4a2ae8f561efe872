"""What a running study tells whoever watches it."""

from collections.abc import Callable
from dataclasses import dataclass

from autotune.records import StudyRecord, TrialRecord
from autotune.reruns import Rerun
from trials.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersStarting:
    """Workers are about to start, which takes seconds."""

    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsForeseen:
    """Every config was predicted before the first trial, or none was, for a reason.

    Attributes:
        num_configs: Of the space.
        seconds: That it took.
        reason: Why none was; empty where they were.
        put_off: Which of the first configs is not tried first, and why; empty if none is.
    """

    num_configs: int
    seconds: float
    reason: str
    put_off: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyBegan:
    """A study is about to run, or to go on.

    Attributes:
        study: The study.
        num_configs: Configs of its space that can run here.
        exclusions: Configs that cannot, by reason.
        num_slots: Trials at once.
    """

    study: StudyRecord
    num_configs: int
    exclusions: dict[str, int]
    num_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A trial was sent to a slot.

    Attributes:
        number: Its.
        config: In words.
        slot: Where it runs.
        why: What it was expected to bring; empty where the sampler does not say.
    """

    number: int
    config: str
    slot: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTold:
    """A trial's result is in the store and with the sampler."""

    trial: TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLost:
    """A trial brought no result.

    Attributes:
        number: Its.
        reason: Why.
        again: Number of the trial that tries its config again; None if none does.
        is_ended_by_user: Whether a person ended it.
    """

    number: int
    reason: str
    again: int | None
    is_ended_by_user: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityMeasured:
    """A quality run of a numerics class is over."""

    numerics: str
    seed: int
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRerun:
    """The recommended config was run a second time.

    Attributes:
        number: Of its trial.
        measurement: What the second run found.
        rerun: What that says of the config; None for a fault of the machine.
    """

    number: int
    measurement: Measurement
    rerun: Rerun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Nothing happened, and the study goes on."""

    num_trials: int
    num_in_flight: int
    seconds: float
    device_seconds: float
    usd: float
    front: tuple[TrialRecord, ...]


Event = (
    WorkersStarting
    | ConfigsForeseen
    | StudyBegan
    | TrialStarted
    | TrialTold
    | TrialLost
    | QualityMeasured
    | PointRerun
    | Heartbeat
)
Listener = Callable[[Event], None]
