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
MOST_DIGITS = 100
"""Of a whole number; Python refuses to read one of thousands."""


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
            SettingsError: A knob is none, or the batch cannot be split so.
        """
        total = self.global_batch_size or global_batch_size
        try:
            return config_of_batch(self.knobs, total, num_devices)
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
            raise SettingsError(f"{str(self.path)!r}: {'; '.join(dict.fromkeys(self.faults))}")
        return Reading(
            path=self.path,
            knobs=knobs,
            notes=tuple(dict.fromkeys(self.notes)),
            global_batch_size=self.global_batch_size,
        )

    def block(self, document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        """Return the block of keys that a key holds, empty where it is not set.

        A value that is none is a fault.
        """
        value = document.get(key)
        if value is None or isinstance(value, Mapping):
            return value or {}
        self.fault(f"{key}={value!r}: must be a block of keys and values")
        return {}

    def switch(self, document: Mapping[str, Any], key: str, where: str = "") -> bool:
        """Return whether a key is true; false where it is not set.

        A value that is neither is a fault: as a text, programs take even ``"false"`` for true.

        Args:
            document: With the key, or without.
            key: Of a truth value.
            where: What stands before the key in a fault.
        """
        value = document.get(key)
        if value is not None and not isinstance(value, bool):
            self.fault(f"{where}{key}={value!r}: must be true or false, without quotes")
        return value is True

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
    if value.lstrip("+-").isdigit() and len(value) <= MOST_DIGITS:
        return int(value)
    return float(value)
