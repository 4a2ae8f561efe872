"""A set of configs that may be tried: values per knob, a global batch, and the rules."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from search_spaces.config import (
    KNOBS,
    KnobValue,
    TrainingConfig,
    did_you_mean,
    parse_knob,
    stable_hash,
)
from search_spaces.errors import EmptySpaceError, InvalidConfigError
from search_spaces.rules import DeviceFacts, refusal

SPACE_FIELDS = ("name", "global_batch_size", "num_devices", "knobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A combination of the space that is not tried, and why."""

    config: TrainingConfig
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Values per knob; their product, less what the global batch and the rules exclude.

    Attributes:
        name: What a person calls the space; not part of its identity.
        values: Knob name to the values it may take, in the order of ``KNOBS``. With a global
            batch, ``accumulation_steps`` may be left out: it then follows from the micro-batch.
        global_batch_size: Samples per optimizer step over all devices, the same in every
            config; None leaves micro-batch and accumulation free.
        num_devices: Data-parallel devices of one training job.
    """

    name: str
    values: tuple[tuple[str, tuple[KnobValue, ...]], ...]
    global_batch_size: int | None = None
    num_devices: int = 1

    @classmethod
    def of(
        cls,
        knobs: Mapping[str, object],
        *,
        name: str = "space",
        global_batch_size: int | None = None,
        num_devices: int = 1,
    ) -> Self:
        """Build a space from lists of values; knobs left out keep their default value.

        Raises:
            InvalidConfigError: Unknown knob or value, no value, or a batch below 1.
            EmptySpaceError: No combination reaches the global batch.
        """
        unknown = [knob for knob in knobs if knob not in KNOBS]
        if unknown:
            raise InvalidConfigError(
                f"unknown knob {unknown[0]!r}{did_you_mean(unknown[0], KNOBS)}"
            )
        for label, number in (
            ("global_batch_size", global_batch_size),
            ("num_devices", num_devices),
        ):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
                raise InvalidConfigError(f"{label}={number!r}: must be a whole number from 1")
            if number is not None and number < 1:
                raise InvalidConfigError(f"{label}={number}: must be a whole number from 1")
        values = {knob: _knob_values(knob, listed) for knob, listed in knobs.items()}
        defaults = TrainingConfig().as_dict()
        is_derived = global_batch_size is not None and "accumulation_steps" not in values
        space = cls(
            name=name,
            values=tuple(
                (knob, values.get(knob, (parse_knob(knob, defaults[knob]),)))
                for knob in KNOBS
                if not (is_derived and knob == "accumulation_steps")
            ),
            global_batch_size=global_batch_size,
            num_devices=num_devices,
        )
        space._require_reachable_batch()
        return space

    @classmethod
    def from_mapping(cls, document: Mapping[str, object]) -> Self:
        """Read a space from a parsed file: ``name``, ``global_batch_size``, ``knobs``.

        Raises:
            InvalidConfigError: A key that is not known, or a value that is none of its knob's.
        """
        unknown = [key for key in document if key not in SPACE_FIELDS]
        if unknown:
            hint = did_you_mean(unknown[0], SPACE_FIELDS)
            raise InvalidConfigError(f"unknown key {unknown[0]!r} in the space{hint}")
        knobs = document.get("knobs")
        if not isinstance(knobs, Mapping) or not knobs:
            raise InvalidConfigError("a space needs a [knobs] table with at least one knob")
        return cls.of(
            knobs,
            name=str(document.get("name", "space")),
            global_batch_size=document.get("global_batch_size"),  # type: ignore[arg-type]
            num_devices=document.get("num_devices", 1),  # type: ignore[arg-type]
        )

    def as_dict(self) -> dict[str, object]:
        """Return what ``from_mapping`` reads."""
        return {
            "name": self.name,
            "global_batch_size": self.global_batch_size,
            "num_devices": self.num_devices,
            "knobs": {knob: [_plain(v) for v in listed] for knob, listed in self.values},
        }

    @property
    def hash(self) -> str:
        """A stable identity of the set of combinations, whatever the space is called."""
        return stable_hash({k: v for k, v in self.as_dict().items() if k != "name"})

    def pinned(self, values: Mapping[str, object]) -> Self:
        """Return the space with some knobs held at one value each."""
        kept = {knob: listed for knob, listed in self.values if knob not in values}
        return self._with_values({**kept, **{knob: (value,) for knob, value in values.items()}})

    def including(self, config: TrainingConfig) -> Self:
        """Return the space with a config's values added, so that it is a point of it."""
        merged: dict[str, object] = {}
        point = config.as_dict()
        for knob, listed in self.values:
            value = parse_knob(knob, point[knob])
            merged[knob] = listed if value in listed else (*listed, value)
        return self._with_values(merged)

    def combinations(self) -> Iterator[TrainingConfig]:
        """Yield every combination that reaches the global batch, rules aside, in a fixed order."""
        names = [knob for knob, _ in self.values]
        for point in itertools.product(*(listed for _, listed in self.values)):
            values = dict(zip(names, point, strict=True))
            if "accumulation_steps" not in values:
                steps = self._derived_accumulation(int(values["micro_batch_size"]))
                if steps is None:
                    continue
                values["accumulation_steps"] = steps
            config = TrainingConfig(**values)  # type: ignore[arg-type]
            if self._reaches_batch(config):
                yield config

    def configs(self, device: DeviceFacts) -> tuple[TrainingConfig, ...]:
        """Return every config that may be tried on a device.

        Raises:
            EmptySpaceError: None may; the message gives the reasons.
        """
        job = self._job_on(device)
        kept = tuple(c for c in self.combinations() if refusal(c, job) is None)
        if not kept:
            reasons = sorted({e.reason for e in self.exclusions(device)})
            raise EmptySpaceError(f"nothing to try in space {self.name!r}: {'; '.join(reasons)}")
        return kept

    def exclusions(self, device: DeviceFacts) -> tuple[Exclusion, ...]:
        """Return every combination that the rules keep from being tried, with its reason."""
        job = self._job_on(device)
        return tuple(
            Exclusion(config=config, reason=reason)
            for config in self.combinations()
            if (reason := refusal(config, job)) is not None
        )

    def refusal(self, config: TrainingConfig, device: DeviceFacts) -> str | None:
        """Return why a config cannot run on a device as part of this space's job, or None."""
        return refusal(config, self._job_on(device))

    def _job_on(self, device: DeviceFacts) -> DeviceFacts:
        return replace(device, num_devices=self.num_devices)

    def _with_values(self, values: Mapping[str, object]) -> Self:
        return type(self).of(
            values,
            name=self.name,
            global_batch_size=self.global_batch_size,
            num_devices=self.num_devices,
        )

    def _reaches_batch(self, config: TrainingConfig) -> bool:
        reached = config.effective_batch_size(self.num_devices)
        return self.global_batch_size is None or reached == self.global_batch_size

    def _derived_accumulation(self, micro_batch_size: int) -> int | None:
        assert self.global_batch_size is not None
        steps, rest = divmod(self.global_batch_size, micro_batch_size * self.num_devices)
        return steps if steps and not rest else None

    def _require_reachable_batch(self) -> None:
        if next(self.combinations(), None) is not None:
            return
        below, above = self._nearest_batches()
        near = " and ".join(str(batch) for batch in (below, above) if batch)
        raise EmptySpaceError(
            f"global batch {self.global_batch_size} is not reached by any micro-batch x "
            f"accumulation x {self.num_devices} device(s) of space {self.name!r}; "
            f"the nearest that are: {near}"
        )

    def _nearest_batches(self) -> tuple[int | None, int | None]:
        listed = dict(self.values)
        target = self.global_batch_size
        assert target is not None
        reached = set()
        for micro in listed["micro_batch_size"]:
            unit = int(micro) * self.num_devices
            steps = listed.get("accumulation_steps") or (target // unit, -(-target // unit))
            reached |= {unit * int(step) for step in steps if int(step) > 0}
        below = max((batch for batch in reached if batch < target), default=None)
        return below, min((batch for batch in reached if batch > target), default=None)


def _knob_values(knob: str, listed: object) -> tuple[KnobValue, ...]:
    items = listed if isinstance(listed, list | tuple) else [listed]
    values = tuple(dict.fromkeys(parse_knob(knob, item) for item in items))
    if not values:
        raise InvalidConfigError(f"{knob} has no values; give at least one")
    return values


def _plain(value: KnobValue) -> KnobValue:
    return value if isinstance(value, int) else str(value)
