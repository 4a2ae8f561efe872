"""The global batch of a config of one device, kept whatever its split."""

from collections.abc import Mapping

from search_spaces.config import TrainingConfig
from search_spaces.errors import InvalidConfigError


def config_of_batch(knobs: Mapping[str, object], global_batch_size: int) -> TrainingConfig:
    """Return a config of one device with some knobs set that keeps the global batch.

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
    if not given:
        return config.with_knobs({"micro_batch_size": global_batch_size})
    (knob,) = given
    size = config.effective_batch_size()
    if global_batch_size % size:
        raise InvalidConfigError(
            f"{knob}={size} does not divide the global batch of {global_batch_size}; the nearest "
            f"that do: {_nearest_divisors(global_batch_size, size)}; or another batch"
        )
    other = "accumulation_steps" if knob == "micro_batch_size" else "micro_batch_size"
    return config.with_knobs({other: global_batch_size // size})


def _nearest_divisors(number: int, size: int) -> str:
    """Name the divisors of a number on both sides of a size."""
    divisors = [divisor for divisor in range(1, number + 1) if number % divisor == 0]
    below = [divisor for divisor in divisors if divisor < size][-1:]
    above = [divisor for divisor in divisors if divisor > size][:1]
    return " and ".join(map(str, below + above))
