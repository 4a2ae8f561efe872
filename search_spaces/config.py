"""One point of a search space: the knobs that decide how much memory a training step takes."""

import difflib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from functools import lru_cache
from typing import Self

from search_spaces.errors import InvalidConfigError

KnobValue = int | str


class AmpDtype(StrEnum):
    """Data type of the forward and backward pass under autocast; weights stay fp32.

    ``tf32`` is fp32 with matrix products in TensorFloat-32, which NVIDIA GPUs have from 8.0 on.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"


class Optimizer(StrEnum):
    """Update rule. AdamW keeps two values per parameter, Lion and SGD with momentum one."""

    ADAMW = "adamw"
    LION = "lion"
    SGD = "sgd"


class OffloadTarget(StrEnum):
    """Where optimizer state lives between steps; at ZeRO stage 3 parameters live there too.

    ``paged`` is memory that a GPU and the host share: what does not fit the GPU moves out by
    pages (bitsandbytes).
    """

    NONE = "none"
    CPU = "cpu"
    NVME = "nvme"
    PAGED = "paged"


class Sharding(StrEnum):
    """What shards over the devices of a job: DeepSpeed's ZeRO, or PyTorch's ``fully_shard``."""

    DEEPSPEED = "deepspeed"
    FSDP = "fsdp"


class ActivationOffload(StrEnum):
    """Where activations wait for the backward pass."""

    NONE = "none"
    CPU = "cpu"


class Switch(StrEnum):
    """Whether something is used."""

    OFF = "off"
    ON = "on"


OPTIMIZER_BITS = WEIGHT_BITS = (32, 8, 4)
MAX_ZERO_STAGE = 3


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NumericsClass:
    """The part of a config that changes the mathematics of training.

    Configs of one class reach the same quality: checkpointing, offload and the split of the
    effective batch into micro-batches leave the gradients unchanged.

    Attributes:
        amp_dtype: Data type under autocast.
        optimizer: Update rule.
        optimizer_bits: Bits per value of optimizer state.
        effective_batch_size: Samples per optimizer step over all devices.
        lora_rank: Of the adapters that are trained; 0 trains every weight.
        weight_bits: Bits per frozen weight.
    """

    amp_dtype: AmpDtype
    optimizer: Optimizer = Optimizer.ADAMW
    optimizer_bits: int
    effective_batch_size: int
    lora_rank: int = 0
    weight_bits: int = 32

    def __str__(self) -> str:
        """Name the class as a person would."""
        optimizer = "" if self.optimizer == Optimizer.ADAMW else f"{self.optimizer} "
        bits = f"{optimizer}{self.optimizer_bits}-bit"
        adapters = _adapters(self.lora_rank, self.weight_bits)
        return ", ".join([self.amp_dtype, bits, f"batch {self.effective_batch_size}", *adapters])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Training-memory configuration of one trial.

    Instances are valid by construction; whether a device can run one is for ``rules`` to say.

    Attributes:
        amp_dtype: Data type of the forward and backward pass.
        checkpoint_interval: 0 keeps all activations; N recomputes every Nth block.
        micro_batch_size: Samples per forward pass on one device.
        accumulation_steps: Micro-batches per optimizer step.
        optimizer: Update rule.
        optimizer_bits: Bits per value of optimizer state, 32, 8 or 4.
        zero_stage: What is sharded over the devices of a job: 0 nothing, 1 optimizer state,
            2 gradients too, 3 parameters too.
        offload_target: Where optimizer state lives between steps.
        activation_offload: Where activations wait for the backward pass.
        checkpoint_deepest: 0 lets every block recompute that the interval chooses; k only those
            among the last k.
        compile: Whether ``torch.compile`` compiles the model.
        sharding: By what; without effect at ``zero_stage`` 0.
        optimizer_in_backward: Whether each parameter is stepped as soon as its gradient is
            there, which then is freed.
        lora_rank: 0 trains every weight; r freezes them all and trains adapters of rank r
            beside the linear layers of the blocks.
        weight_bits: Bits per frozen weight of those layers, 32, 8 or 4.
    """

    amp_dtype: AmpDtype = AmpDtype.FP32
    checkpoint_interval: int = 0
    micro_batch_size: int = 1
    accumulation_steps: int = 1
    optimizer: Optimizer = Optimizer.ADAMW
    optimizer_bits: int = 32
    zero_stage: int = 0
    offload_target: OffloadTarget = OffloadTarget.NONE
    activation_offload: ActivationOffload = ActivationOffload.NONE
    checkpoint_deepest: int = 0
    compile: Switch = Switch.OFF
    sharding: Sharding = Sharding.DEEPSPEED
    optimizer_in_backward: Switch = Switch.OFF
    lora_rank: int = 0
    weight_bits: int = 32

    def __post_init__(self) -> None:
        """Reject values that are no value of their knob."""
        for name, knob in KNOBS.items():
            if not _is_value(name, getattr(self, name)):
                raise InvalidConfigError(f"{name} must be {knob.allowed}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> Self:
        """Build a config from knob names and values, as text or as numbers.

        Raises:
            InvalidConfigError: An unknown knob, or a value that is none of its knob's.
        """
        return cls(**{n: parse_knob(n, v) for n, v in values.items()})  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, KnobValue]:
        """Return knob names and plain values, in the order of ``KNOBS``."""
        return {k: str(v) if isinstance(v, StrEnum) else v for k, v in asdict(self).items()}

    def with_knobs(self, values: Mapping[str, object]) -> Self:
        """Return a copy with some knobs set anew."""
        return replace(self, **{n: parse_knob(n, v) for n, v in values.items()})  # type: ignore[arg-type]

    def effective_batch_size(self, num_devices: int = 1) -> int:
        """Return samples per optimizer step over all devices."""
        return self.micro_batch_size * self.accumulation_steps * num_devices

    def numerics_class(self, num_devices: int = 1) -> NumericsClass:
        """Return the class of configs that train to the same quality as this one."""
        return NumericsClass(
            amp_dtype=self.amp_dtype,
            optimizer=self.optimizer,
            optimizer_bits=self.optimizer_bits,
            effective_batch_size=self.effective_batch_size(num_devices),
            lora_rank=self.lora_rank,
            weight_bits=self.weight_bits,
        )

    @property
    def is_zero(self) -> bool:
        """Whether DeepSpeed's ZeRO trains it."""
        return self.zero_stage > 0 and self.sharding == Sharding.DEEPSPEED

    @property
    def hash(self) -> str:
        """A stable identity of the point: equal for equal knobs, across processes and versions.

        Knobs at their default are left out, so that one that comes later changes no hash.
        """
        usual = TrainingConfig().as_dict()
        return stable_hash({k: v for k, v in self.as_dict().items() if v != usual[k]})

    def __str__(self) -> str:
        """Show the knobs on one line; the rarer ones only where they are used."""
        rarer = {
            f"deepest {self.checkpoint_deepest}": self.checkpoint_deepest,
            self._shards: self.zero_stage > 0,
            f"offload {self.offload_target}": self.offload_target != OffloadTarget.NONE,
            "activations on cpu": self.activation_offload != ActivationOffload.NONE,
            "compiled": self.compile == Switch.ON,
            "stepped in backward": self.optimizer_in_backward == Switch.ON,
        }
        optimizer = "" if self.optimizer == Optimizer.ADAMW else f"{self.optimizer} "
        usual = [
            str(self.amp_dtype),
            f"ckpt {self.checkpoint_interval}" if self.checkpoint_interval else "no ckpt",
            f"batch {self.micro_batch_size}x{self.accumulation_steps}",
            f"{optimizer}{self.optimizer_bits}-bit",
        ]
        used = [text for text, is_used in rarer.items() if is_used]
        return ", ".join([*usual, *used, *_adapters(self.lora_rank, self.weight_bits)])

    @property
    def _shards(self) -> str:
        name = "FSDP" if self.sharding == Sharding.FSDP else "ZeRO"
        return f"{name}-{self.zero_stage}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """What may be written for one field of ``TrainingConfig``.

    Attributes:
        parse: Text or number to a value; raises ``InvalidConfigError``.
        allowed: The allowed values in words.
        is_ordered: More of it has a direction, so that a sampler may interpolate.
    """

    parse: Callable[[object], KnobValue]
    allowed: str
    is_ordered: bool


def parse_knob(name: str, value: object) -> KnobValue:
    """Read one knob's value.

    Raises:
        InvalidConfigError: No such knob, or no such value; the message names both.
    """
    if name not in KNOBS:
        raise InvalidConfigError(f"unknown knob {name!r}{did_you_mean(name, KNOBS)}")
    try:
        return KNOBS[name].parse(value)
    except (TypeError, ValueError) as error:
        raise InvalidConfigError(f"{name}={value!r}: must be {KNOBS[name].allowed}") from error


@lru_cache(typed=True)  # a space has few values and many configs; True is no 1
def _is_value(name: str, value: KnobValue) -> bool:
    try:
        return KNOBS[name].parse(value) == value
    except (TypeError, ValueError):
        return False


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the nearest known word and all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else ";"
    return f"{guess} known: {', '.join(names)}"


def stable_hash(value: object) -> str:
    """Return the first 16 hex digits of the SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _adapters(lora_rank: int, weight_bits: int) -> list[str]:
    if lora_rank == 0:
        return []
    return [f"LoRA {lora_rank}" if weight_bits == 32 else f"{weight_bits}-bit LoRA {lora_rank}"]


def _whole_number(minimum: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise InvalidConfigError(f"{value!r} is no whole number")
        number = int(value)
        if number < minimum:
            raise InvalidConfigError(f"{number} is below {minimum}")
        return number

    return parse


def _one_of(allowed: tuple[int, ...]) -> Callable[[object], int]:
    def parse(value: object) -> int:
        number = _whole_number(1)(value)
        if number not in allowed:
            raise InvalidConfigError(f"{number} is none of {allowed}")
        return number

    return parse


def _zero_stage(value: object) -> int:
    stage = _whole_number(0)(value)
    if stage > MAX_ZERO_STAGE:
        raise InvalidConfigError(f"{stage} is above {MAX_ZERO_STAGE}")
    return stage


def _switch(value: object) -> Switch:
    if isinstance(value, bool):
        return Switch.ON if value else Switch.OFF
    return Switch(str(value))


KNOBS: dict[str, Knob] = {
    "amp_dtype": Knob(
        parse=lambda v: AmpDtype(str(v)), allowed="fp32, tf32, bf16 or fp16", is_ordered=False
    ),
    "checkpoint_interval": Knob(
        parse=_whole_number(0), allowed="0 (off) or a whole number N of blocks", is_ordered=True
    ),
    "micro_batch_size": Knob(
        parse=_whole_number(1), allowed="a whole number from 1", is_ordered=True
    ),
    "accumulation_steps": Knob(
        parse=_whole_number(1), allowed="a whole number from 1", is_ordered=True
    ),
    "optimizer": Knob(
        parse=lambda v: Optimizer(str(v)), allowed="adamw, lion or sgd", is_ordered=False
    ),
    "optimizer_bits": Knob(parse=_one_of(OPTIMIZER_BITS), allowed="32, 8 or 4", is_ordered=False),
    "zero_stage": Knob(parse=_zero_stage, allowed="0, 1, 2 or 3", is_ordered=False),
    "offload_target": Knob(
        parse=lambda v: OffloadTarget(str(v)), allowed="none, cpu, nvme or paged", is_ordered=False
    ),
    "activation_offload": Knob(
        parse=lambda v: ActivationOffload(str(v)), allowed="none or cpu", is_ordered=False
    ),
    "checkpoint_deepest": Knob(
        parse=_whole_number(0), allowed="0 (all) or a whole number of blocks", is_ordered=True
    ),
    "compile": Knob(parse=_switch, allowed="on or off", is_ordered=False),
    "sharding": Knob(
        parse=lambda v: Sharding(str(v)), allowed="deepspeed or fsdp", is_ordered=False
    ),
    "optimizer_in_backward": Knob(parse=_switch, allowed="on or off", is_ordered=False),
    "lora_rank": Knob(
        parse=_whole_number(0), allowed="0 (train all weights) or a rank", is_ordered=True
    ),
    "weight_bits": Knob(parse=_one_of(WEIGHT_BITS), allowed="32, 8 or 4", is_ordered=False),
}

assert list(KNOBS) == [field.name for field in fields(TrainingConfig)]
