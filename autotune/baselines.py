"""The first configs of a study: today's, the safest and the most aggressive. Pure."""

from collections.abc import Sequence

from search_spaces import (
    ActivationOffload,
    AmpDtype,
    OffloadTarget,
    Optimizer,
    TrainingConfig,
)


def first_configs(
    configs: Sequence[TrainingConfig], baseline: TrainingConfig | None
) -> list[TrainingConfig]:
    """Return what to try before the sampler proposes anything, in order, each once.

    The safest tells whether anything fits at all, the most aggressive where memory ends.
    """
    wanted = [baseline, min(configs, key=_appetite), max(configs, key=_appetite)]
    return list(dict.fromkeys(config for config in wanted if config is not None))


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
