"""The path that practitioners follow to save memory, step by step. Pure: it asks for readings."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from search_spaces import SearchSpace, TrainingConfig, config_of_batch, parse_knob

LEAST_SAVING = 0.01
"""Share of the peak that a step must save to be kept."""
LEAST_GAIN = 0.05
"""Share of the time that a step must win to be kept for that alone."""
LORA_RANK = 16
"""Of the adapters that are trained beside quantized weights."""
START = "profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One step of the path.

    Attributes:
        name: For people.
        ways: Knobs to set, in the order in which ways are tried; a way that cannot run here is
            passed over for the next.
        needs_blocks: Whether it is nothing without blocks to checkpoint.
    """

    name: str
    ways: tuple[Mapping[str, object], ...]
    needs_blocks: bool = False


MOVES = (
    Move(name="AMP", ways=({"amp_dtype": "bf16"}, {"amp_dtype": "fp16"})),
    Move(name="checkpointing", ways=({"checkpoint_interval": 1},), needs_blocks=True),
    Move(name="8-bit optimizer", ways=({"optimizer_bits": 8},)),
    Move(
        name="offload",
        ways=(
            {"offload_target": "cpu", "zero_stage": 0, "optimizer_bits": 32},
            {"offload_target": "cpu", "zero_stage": 1, "optimizer_bits": 32},
            {"offload_target": "paged", "zero_stage": 0},
        ),
    ),
    Move(
        name="quantized weights",
        ways=(
            {
                "weight_bits": 4,
                "lora_rank": LORA_RANK,
                "offload_target": "none",
                "zero_stage": 0,
            },
        ),
    ),
)
AGAIN = Move(name="checkpointing, again", ways=({"checkpoint_interval": 1},), needs_blocks=True)
"""After it was set aside: once the state of the optimizer is small, the peak is elsewhere."""


class Status(StrEnum):
    """What became of a step."""

    KEPT = "kept"
    SET_ASIDE = "set aside"
    NOT_POSSIBLE = "not possible"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is known of one config, by a trial or a prediction.

    Attributes:
        peak_bytes: Of device memory; None where it did not complete.
        seconds_per_sample: Of training.
        usd_per_million_samples: At the prices asked for.
        usd_per_million_units: The same of tokens, where the workload counts those.
        quality: The workload's metric; None where it was not measured.
        quality_half_width: Half its 95 % interval.
        is_out_of_memory: Whether it ran out of device memory.
        reason: Why it did not complete.
    """

    peak_bytes: int | None = None
    seconds_per_sample: float | None = None
    usd_per_million_samples: float | None = None
    usd_per_million_units: float | None = None
    quality: float | None = None
    quality_half_width: float | None = None
    is_out_of_memory: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step that was looked at.

    Attributes:
        name: Of the move.
        status: What became of it.
        why: In words.
        config: That it comes to; None where it is not possible or not tried.
        reading: Of that config.
        against: Reading of the config that it changes; None for the first step.
    """

    name: str
    status: Status
    why: str
    config: TrainingConfig | None = None
    reading: Reading | None = None
    against: Reading | None = None

    @property
    def saved_bytes(self) -> int | None:
        """Device memory saved against the last; negative where it takes more."""
        before, after = self._pair("peak_bytes")
        return None if before is None or after is None else int(before - after)

    @property
    def more_time(self) -> float | None:
        """Share of time lost against the last; negative where time is won."""
        return self._share("seconds_per_sample")

    @property
    def more_money(self) -> float | None:
        """Share of money lost against the last; negative where it is cheaper."""
        return self._share("usd_per_million_samples")

    def _share(self, name: str) -> float | None:
        before, after = self._pair(name)
        return None if not before or after is None else after / before - 1

    def _pair(self, name: str) -> tuple[float | None, float | None]:
        if self.against is None or self.reading is None:
            return None, None
        return getattr(self.against, name), getattr(self.reading, name)


Evaluate = Callable[[TrainingConfig], Reading]
Refuse = Callable[[TrainingConfig], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """What the walk is to do.

    Attributes:
        start: The config before the first step.
        held: Knobs that no step may change.
        target_bytes: Device memory at which the walk ends; None to take every step.
        num_blocks: Of the workload.
    """

    start: TrainingConfig
    held: Mapping[str, object]
    target_bytes: int | None
    num_blocks: int


def space_of_path(held: Mapping[str, object], batch: int, num_devices: int) -> SearchSpace:
    """Return a space that holds every config that a walk may come to.

    Args:
        held: Knobs that no step may change.
        batch: Samples per optimizer step; at once, unless held.
        num_devices: Of the job.
    """
    start = config_of_batch(held, batch, num_devices).as_dict()
    values: dict[str, list[object]] = {knob: [value] for knob, value in start.items()}
    for way in (way for move in MOVES for way in move.ways):
        for knob, value in way.items():
            if knob not in held and value not in values[knob]:
                values[knob].append(value)
    return SearchSpace.of(values, name="playbook", num_devices=num_devices)


def walk(path: Path, evaluate: Evaluate, refuse: Refuse) -> Iterator[Step]:
    """Yield each step as it is taken: the start, one for each of ``MOVES``, perhaps ``AGAIN``.

    A step is kept when it saves memory, when it wins time for no more memory, or when the last
    config did not fit; each is held against what was kept before it.

    Args:
        path: What to walk.
        evaluate: Measures or predicts a config.
        refuse: Returns why a config cannot run here, or None.
    """
    reason = refuse(path.start)
    config, last = path.start, Reading(reason=reason or "")
    if reason is None:
        last = evaluate(config)
        yield Step(name=START, status=Status.KEPT, why=last.reason, config=config, reading=last)
    else:
        yield Step(name=START, status=Status.NOT_POSSIBLE, why=reason)
    is_checkpointing_set_aside = False
    for move in (*MOVES, AGAIN):
        if move is AGAIN and not is_checkpointing_set_aside:
            return
        if _fits(last, path.target_bytes):
            yield Step(name=move.name, status=Status.NOT_TRIED, why="it fits the target already")
            continue
        found, why = _possible(move, config, path, refuse)
        if found is None:
            yield Step(name=move.name, status=Status.NOT_POSSIBLE, why=why)
            continue
        step = _judged(move, found, evaluate(found), last)
        yield step
        if step.status == Status.KEPT and step.reading is not None:
            config, last = found, step.reading
        elif move.needs_blocks:
            is_checkpointing_set_aside = True


def end_of(steps: list[Step], target_bytes: int | None) -> str:
    """Return where a walk stopped, and why, as a sentence without its stop."""
    kept = [step for step in steps if step.status == Status.KEPT]
    completed = [step for step in kept if step.reading is not None and step.reading.peak_bytes]
    if not completed:
        return "no step fits"
    last = completed[-1]
    assert last.reading is not None
    if target_bytes is None:
        return f"every step was taken, since no target was given; the last kept is {last.name}"
    if _fits(last.reading, target_bytes):
        return f"it stops at {last.name}: it fits the target"
    return f"no step is left, and {last.name}, the last kept, does not fit the target"


def _possible(
    move: Move, config: TrainingConfig, path: Path, refuse: Refuse
) -> tuple[TrainingConfig | None, str]:
    """Return the first way that can run, or None and why there is none."""
    if move.needs_blocks and path.num_blocks == 0:
        return None, "the workload names no blocks; return them from blocks()"
    reasons = []
    for way in move.ways:
        changed = config.with_knobs(way)
        held = [
            f"{knob}={path.held[knob]}"
            for knob, value in way.items()
            if knob in path.held and parse_knob(knob, path.held[knob]) != parse_knob(knob, value)
        ]
        if held and "lora_rank" in way and path.held.get("lora_rank", "0") not in ("0", 0):
            changed = changed.with_knobs({"lora_rank": path.held["lora_rank"]})
            held = [each for each in held if not each.startswith("lora_rank=")]
        if held:
            reasons.append(f"held by --set {' '.join(held)}")
        elif changed == config:
            reasons.append("it is done already")
        elif (reason := refuse(changed)) is not None:
            reasons.append(reason)
        else:
            return changed, ""
    return None, reasons[0] if len(set(reasons)) == 1 else "; ".join(dict.fromkeys(reasons))


def _judged(move: Move, config: TrainingConfig, reading: Reading, last: Reading) -> Step:
    status, why = Status.KEPT, ""
    if reading.is_out_of_memory:
        status = Status.KEPT if last.peak_bytes is None else Status.SET_ASIDE
        why = f"does not fit: {reading.reason}"
    elif reading.peak_bytes is None:
        status, why = Status.NOT_POSSIBLE, reading.reason
    elif last.peak_bytes is None:
        why = "it fits where the last did not"
    elif reading.peak_bytes > (1 - LEAST_SAVING) * last.peak_bytes:
        status, why = _without_saving(reading, last)
    return Step(
        name=move.name, status=status, why=why, config=config, reading=reading, against=last
    )


def _without_saving(reading: Reading, last: Reading) -> tuple[Status, str]:
    """Judge a step that saves no memory: one that is clearly faster for no more is still kept."""
    peak, before = reading.peak_bytes, last.peak_bytes
    time, time_before = reading.seconds_per_sample, last.seconds_per_sample
    assert peak is not None and before is not None
    is_as_small = peak <= (1 + LEAST_SAVING) * before
    if is_as_small and time and time_before and time < (1 - LEAST_GAIN) * time_before:
        return Status.KEPT, "it saves no memory here, but time"
    return Status.SET_ASIDE, "it saves no memory here"


def _fits(reading: Reading, target_bytes: int | None) -> bool:
    if target_bytes is None or reading.peak_bytes is None:
        return False
    return reading.peak_bytes <= target_bytes
