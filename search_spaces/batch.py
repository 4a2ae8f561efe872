"""The global batch of a config, kept whatever its split."""

from collections.abc import Mapping
from math import isqrt

from search_spaces.config import TrainingConfig
from search_spaces.errors import InvalidConfigError

MOST_TRIED = 10**6
"""Numbers that are tried as divisors, to name the nearest at once."""


def config_of_batch(
    knobs: Mapping[str, object], global_batch_size: int, num_devices: int = 1
) -> TrainingConfig:
    """Return a config with some knobs set that keeps the global batch of all devices.

    Of ``micro_batch_size`` and ``accumulation_steps``, the one that is not set follows from the
    other; where neither is, the batch is one micro-batch. Both set are taken as they are.

    Raises:
        InvalidConfigError: The batch is no multiple of the one that is set; the message names
            the nearest that divide it.
    """
    config = TrainingConfig().with_knobs(knobs)
    given = [knob for knob in ("micro_batch_size", "accumulation_steps") if knob in knobs]
    if len(given) == 2:
        return config
    if global_batch_size % num_devices:
        raise InvalidConfigError(
            f"{num_devices} devices do not divide the global batch of {global_batch_size}; the "
            f"nearest numbers that do: {_nearest_divisors(global_batch_size, num_devices)}; "
            "or another batch"
        )
    if not given:
        return config.with_knobs({"micro_batch_size": global_batch_size // num_devices})
    (knob,) = given
    size = config.effective_batch_size()
    global_batch_size //= num_devices
    if global_batch_size % size:
        each = "" if num_devices == 1 else " that each device has"
        raise InvalidConfigError(
            f"{knob}={size} does not divide the global batch of {global_batch_size}{each}; the "
            f"nearest that do: {_nearest_divisors(global_batch_size, size)}; or another batch"
        )
    other = "accumulation_steps" if knob == "micro_batch_size" else "micro_batch_size"
    return config.with_knobs({other: global_batch_size // size})


def _nearest_divisors(number: int, size: int) -> str:
    """Name the divisors of a number on both sides of a size: of a huge number, small ones."""
    small = [d for d in range(1, min(isqrt(number), MOST_TRIED) + 1) if number % d == 0]
    divisors = {*small, *(number // divisor for divisor in small)}
    below = [divisor for divisor in divisors if divisor < size]
    above = [divisor for divisor in divisors if divisor > size]
    nearest = [*([max(below)] if below else []), *([min(above)] if above else [])]
    return " and ".join(map(str, nearest))
