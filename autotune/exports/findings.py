"""What comes of reading a foreign file: the knobs it sets, and what is wrong with it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.errors import SettingsError
from search_spaces import (
    InvalidConfigError,
    KnobValue,
    TrainingConfig,
    config_of_batch,
    parse_knob,
)

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
BATCH_KNOBS = ("micro_batch_size", "accumulation_steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A config as a file has it, perhaps without its batch.

    Attributes:
        path: Of the file.
        knobs: Those it sets; others keep their default, a missing batch is the study's.
        notes: What was taken otherwise than it is written, for people.
        global_batch_size: Of the file; None where it leaves that to the study.
    """

    path: Path
    knobs: Mapping[str, object]
    notes: tuple[str, ...] = ()
    global_batch_size: int | None = None

    def config(self, global_batch_size: int, num_devices: int) -> TrainingConfig:
        """Return the config, what the file leaves open taken from a study's batch.

        Raises:
            SettingsError: The batch cannot be split so.
        """
        if all(knob in self.knobs for knob in BATCH_KNOBS):
            return TrainingConfig.from_mapping(self.knobs)
        total = self.global_batch_size or global_batch_size
        try:
            if total % num_devices:
                raise InvalidConfigError(f"{num_devices} devices do not divide a batch of {total}")
            return config_of_batch(self.knobs, total // num_devices)
        except InvalidConfigError as error:
            raise SettingsError(f"{str(self.path)!r}: {error}") from error


@dataclass(slots=True, kw_only=True)
class Findings:
    """Collects while a file is read.

    Attributes:
        path: Of the file.
        own: What a comment or side key of ours says of the config.
        faults: Why its own program would refuse it, or why it is no config of ours.
        notes: See Reading.
        global_batch_size: See Reading.
    """

    path: Path
    own: Mapping[str, object] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    global_batch_size: int | None = None

    def fault(self, text: str) -> None:
        """Add a fault; the file is not taken."""
        self.faults.append(text)

    def note(self, text: str) -> None:
        """Add a note; the file is taken."""
        self.notes.append(text)

    def reading(self, knobs: Mapping[str, object]) -> Reading:
        """Return what was read.

        Raises:
            SettingsError: There are faults; the message has all of them.
        """
        if self.faults:
            raise SettingsError(f"{str(self.path)!r}: {'; '.join(self.faults)}")
        return Reading(
            path=self.path,
            knobs=knobs,
            notes=tuple(dict.fromkeys(self.notes)),
            global_batch_size=self.global_batch_size,
        )

    def knobs_of(self, values: Mapping[str, tuple[str, object]]) -> dict[str, KnobValue]:
        """Return the knobs that can be read; each that cannot is a fault.

        Args:
            values: Key in the file to the knob it sets and its value.
        """
        knobs = {}
        for key, (knob, value) in values.items():
            try:
                knobs[knob] = parse_knob(knob, value)
            except InvalidConfigError as error:
                self.fault(f"{key}: {error}")
        return knobs

    def with_numbers(self, document: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """Return a document with numbers where it has them as text, which is noted.

        YAML takes ``2e-5`` for text; it wants a dot, ``2.0e-5``.
        """
        found: dict[str, Any] = {}
        for key, value in document.items():
            if isinstance(value, Mapping):
                found[key] = self.with_numbers(value, f"{where}{key}.")
                continue
            number = _number(value)
            found[key] = value if number is None else number
            if number is not None:
                self.note(f"{where}{key} is the text {value!r}, taken as the number {number}")
        return found


def _number(value: object) -> float | int | None:
    """Return the number that a text spells; None for anything else."""
    if not isinstance(value, str) or NUMBER.fullmatch(value) is None:
        return None
    return int(value) if value.lstrip("+-").isdigit() else float(value)
