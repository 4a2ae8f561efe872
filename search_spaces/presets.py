"""Named spaces, and spaces from a TOML file."""

import tomllib
from collections.abc import Callable
from pathlib import Path

from search_spaces.config import did_you_mean
from search_spaces.errors import InvalidConfigError
from search_spaces.space import SearchSpace


def default_space(global_batch_size: int, num_devices: int = 1) -> SearchSpace:
    """Return the six knobs at a fixed global batch, as most teams would try them."""
    return SearchSpace.of(
        {
            "amp_dtype": ["fp32", "bf16", "fp16"],
            "checkpoint_interval": [0, 1, 2, 4],
            "micro_batch_size": _powers_of_two(max(1, global_batch_size // num_devices)),
            "optimizer_bits": [32, 8],
            "offload_target": ["none"],
        },
        name="default",
        global_batch_size=global_batch_size,
        num_devices=num_devices,
    )


def small_space(global_batch_size: int, num_devices: int = 1) -> SearchSpace:
    """Return fp32 and bf16 with checkpointing on or off: a first look in a few trials."""
    return SearchSpace.of(
        {
            "amp_dtype": ["fp32", "bf16"],
            "checkpoint_interval": [0, 1],
            "micro_batch_size": _powers_of_two(max(1, global_batch_size // num_devices)),
        },
        name="small",
        global_batch_size=global_batch_size,
        num_devices=num_devices,
    )


def full_space(global_batch_size: int, num_devices: int = 1) -> SearchSpace:
    """Return every technique; what cannot run here is excluded with its reason.

    The optimizer stays AdamW, and every weight is trained: another update rule and adapters are
    another training, which is not for memory to decide. Both ways to shard are there where there
    is something to shard over.
    """
    return SearchSpace.of(
        {
            "amp_dtype": ["fp32", "tf32", "bf16", "fp16"],
            "checkpoint_interval": [0, 1, 2, 4, 8],
            "micro_batch_size": _powers_of_two(max(1, global_batch_size // num_devices)),
            "optimizer_bits": [32, 8, 4],
            "zero_stage": [0, 1, 2, 3],
            "offload_target": ["none", "cpu", "nvme"],
            "activation_offload": ["none", "cpu"],
            "compile": ["off", "on"],
            "sharding": ["deepspeed", "fsdp"] if num_devices > 1 else ["deepspeed"],
            "optimizer_in_backward": ["off", "on"],
        },
        name="full",
        global_batch_size=global_batch_size,
        num_devices=num_devices,
    )


def free_space(global_batch_size: int, num_devices: int = 1) -> SearchSpace:
    """Return micro-batch and accumulation as free ranges, up to a largest effective batch."""
    largest = max(1, global_batch_size // num_devices)
    return SearchSpace.of(
        {
            "amp_dtype": ["fp32", "bf16", "fp16"],
            "checkpoint_interval": [0, 1, 2, 4],
            "micro_batch_size": _powers_of_two(largest),
            "accumulation_steps": _powers_of_two(min(largest, 8)),
            "optimizer_bits": [32, 8],
        },
        name="free",
        num_devices=num_devices,
    )


PRESETS: dict[str, Callable[[int, int], SearchSpace]] = {
    "default": default_space,
    "small": small_space,
    "full": full_space,
    "free": free_space,
}


def load_space(name_or_file: str, *, global_batch_size: int, num_devices: int = 1) -> SearchSpace:
    """Return a preset by name, or the space that a TOML file describes.

    A file keeps its own global batch; without one it takes ``global_batch_size``, unless it
    lists ``accumulation_steps``, which makes both free.

    Raises:
        InvalidConfigError: No such preset or file, or a file that describes no space.
    """
    if name_or_file in PRESETS:
        return PRESETS[name_or_file](global_batch_size, num_devices)
    path = Path(name_or_file)
    if path.suffix != ".toml":
        hint = did_you_mean(name_or_file, PRESETS)
        raise InvalidConfigError(f"no space {name_or_file!r}{hint}; or give a .toml file")
    return _space_from_file(path, global_batch_size, num_devices)


def _space_from_file(path: Path, global_batch_size: int, num_devices: int) -> SearchSpace:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidConfigError(f"no space file {str(path)!r}; check the path") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidConfigError(f"space file {str(path)!r} cannot be read: {error}") from error
    document.setdefault("name", path.stem)
    document.setdefault("num_devices", num_devices)
    knobs = document.get("knobs")
    if not (isinstance(knobs, dict) and "accumulation_steps" in knobs):
        document.setdefault("global_batch_size", global_batch_size)
    try:
        return SearchSpace.from_mapping(document)
    except InvalidConfigError as error:
        raise type(error)(f"space file {str(path)!r}: {error}") from error


def _powers_of_two(largest: int) -> list[int]:
    return [2**k for k in range(largest.bit_length())]
