"""The first configs of a study: today's, the safest and the most aggressive. Pure."""

from collections.abc import Sequence
from typing import Protocol

from search_spaces import (
    ActivationOffload,
    AmpDtype,
    OffloadTarget,
    Optimizer,
    TrainingConfig,
)


class Foresight(Protocol):
    """Knows what fits before it is tried."""

    def is_hopeless(self, config: TrainingConfig) -> bool:
        """Tell whether a config surely does not fit."""


def first_configs(
    configs: Sequence[TrainingConfig],
    baseline: TrainingConfig | None,
    forecast: Foresight | None = None,
) -> list[TrainingConfig]:
    """Return what to try before the sampler proposes anything, in order, each once.

    The safest tells whether anything fits at all, the most aggressive where memory ends.

    Args:
        configs: Of the space.
        baseline: Today's.
        forecast: Tells whether the most aggressive one surely does not fit; it is left out then.
    """
    aggressive = most_aggressive(configs)
    last = None if forecast is not None and forecast.is_hopeless(aggressive) else aggressive
    wanted = [baseline, min(configs, key=_appetite), last]
    return list(dict.fromkeys(config for config in wanted if config is not None))


def most_aggressive(configs: Sequence[TrainingConfig]) -> TrainingConfig:
    """Return the config that theory gives the most memory."""
    return max(configs, key=_appetite)


def _appetite(config: TrainingConfig) -> tuple[int, ...]:
    """Order configs by the memory that theory gives them, the strongest knob first."""
    interval = config.checkpoint_interval
    return (
        config.micro_batch_size,
        interval if interval else 2**31,
        -list(ActivationOffload).index(config.activation_offload),
        -config.zero_stage,
        config.optimizer_bits,
        -list(Optimizer).index(config.optimizer),
        -list(OffloadTarget).index(config.offload_target),
        -list(AmpDtype).index(config.amp_dtype),
        config.accumulation_steps,
    )
