"""What a user's program may say in its report, one JSON object a line. Pure."""

import json
import math
from dataclasses import dataclass, fields

from search_spaces import KNOBS, did_you_mean
from trials.codec import from_plain
from trials.errors import SpecError, WorkloadError
from trials.measurement import Direction

DEFAULT_KNOBS = ("amp_dtype", "micro_batch_size", "accumulation_steps")
"""What a program is taken to honour, unless its facts say otherwise."""
_SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsReport:
    """What the program trains. See ``WorkloadFacts``.

    Attributes:
        num_parameters: Parameters of the model.
        unit: What ``units`` counts.
        quality_name: Of what the program reports as ``quality``.
        quality_direction: Which way that gets better.
        global_batch_size: The effective batch that the program suggests.
        quality_samples: Samples to train before evaluating.
        num_trainable: Trained parameters; all of them if left out.
        num_blocks: Blocks that checkpointing can cover.
        knobs: The knobs that the program honours.
    """

    num_parameters: int
    unit: str
    quality_name: str
    quality_direction: Direction
    global_batch_size: int
    quality_samples: int
    num_trainable: int | None = None
    num_blocks: int = 0
    knobs: tuple[str, ...] = DEFAULT_KNOBS

    def __post_init__(self) -> None:
        """Reject counts of nothing, and knobs that are none."""
        for name in ("num_parameters", "global_batch_size", "quality_samples"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name}={getattr(self, name)}: must be at least 1")
        for knob in self.knobs:
            if knob not in KNOBS:
                raise SpecError(f"unknown knob {knob!r}{did_you_mean(knob, KNOBS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One optimizer step.

    Attributes:
        step_seconds: Compute, until the device was done; waiting for data excluded.
        samples: Trained in it; if left out, what the config makes.
        units: Trained in it, as ``unit`` counts them; the samples if left out.
        loss: Mean over its units.
        skipped: A gradient scaler found inf or NaN and did not step.
        data_wait_seconds: Waiting for its batches.
    """

    step_seconds: float
    samples: int | None = None
    units: int | None = None
    loss: float | None = None
    skipped: bool = False
    data_wait_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Reject times that are none."""
        if not (math.isfinite(self.step_seconds) and self.step_seconds > 0):
            raise SpecError(f"step_seconds={self.step_seconds}: must be above 0")
        if not (math.isfinite(self.data_wait_seconds) and self.data_wait_seconds >= 0):
            raise SpecError(f"data_wait_seconds={self.data_wait_seconds}: must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """Bytes by kind, and under ``peak_device_bytes`` the device memory that the program took."""

    memory: dict[str, int]

    def __post_init__(self) -> None:
        """Reject what is no number of bytes."""
        for kind, count in dict(self.memory).items():
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise SpecError(f"{kind}={count!r}: must be a whole number of bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReport:
    """The metric after training."""

    quality: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyReport:
    """Everything is imported and nothing is built: count memory from here on."""

    ready: bool


Report = FactsReport | StepReport | MemoryReport | QualityReport | ReadyReport
_BY_KEY: dict[str, type[StepReport | MemoryReport | QualityReport | ReadyReport]] = {
    "step_seconds": StepReport,
    "memory": MemoryReport,
    "quality": QualityReport,
    "ready": ReadyReport,
}


def parse_report(text: str, number: int) -> Report:
    """Read one line of a report.

    Args:
        text: The line.
        number: Which one it is, from 1.

    Raises:
        WorkloadError: It is none; the message names it and says what is wrong.
    """
    try:
        return _parse(text)
    except (SpecError, ValueError, TypeError) as error:
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
        raise WorkloadError(f"line {number} of the program's report, {shown!r}: {error}") from None


def _parse(text: str) -> Report:
    document = json.loads(text)
    if isinstance(document, dict):
        if set(document) == {"facts"}:
            return from_plain(FactsReport, document["facts"])
        for key, kind in _BY_KEY.items():
            if key in document:
                return from_plain(kind, document)
    keys = ", ".join(["facts", *_BY_KEY])
    known = ", ".join(field.name for field in fields(StepReport))
    raise SpecError(f"a line is a JSON object with one of {keys}; a step has {known}")
