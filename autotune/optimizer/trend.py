"""How memory has gone with the knobs so far: where a sampler should rather not look. Pure.

A proposal is steered by this, never refused: what surely cannot fit is for ``reuse`` to say.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search_spaces import (
    ActivationOffload,
    AmpDtype,
    OffloadTarget,
    Optimizer,
    Sharding,
    Switch,
    TrainingConfig,
)

FEWEST_POINTS = 6
_RIDGE = 0.05


def likely_to_fit(
    features: NDArray[np.float64], tried: Sequence[int], violations: Sequence[float]
) -> NDArray[np.bool_]:
    """Tell which configs are expected to keep to the memory budget.

    The logarithm of memory over budget is fitted by ridge regression. Everything is expected to
    fit until a few trials have been measured.

    Args:
        features: Of every config, from ``memory_features``: (configs, features).
        tried: Rows of the measured ones.
        violations: Of each, memory over budget, less 1.

    Returns:
        One truth value per config.
    """
    if len(tried) < FEWEST_POINTS:
        return np.ones(len(features), dtype=np.bool_)
    measured = features[list(tried)]
    target = np.log1p(np.maximum(violations, -0.99))
    centre, level = measured.mean(axis=0), target.mean()
    moved = measured - centre
    penalty = _RIDGE * len(tried) * np.eye(moved.shape[1])
    weights = np.linalg.solve(moved.T @ moved + penalty, moved.T @ (target - level))
    expected = (features - centre) @ weights + level
    return np.asarray(expected <= 0.0, dtype=np.bool_)


def memory_features(configs: Sequence[TrainingConfig]) -> NDArray[np.float64]:
    """Return what memory is expected to depend on, of each config: (configs, features)."""
    return np.array([_features(config) for config in configs], dtype=np.float64)


def _features(config: TrainingConfig) -> list[float]:
    is_checkpointed = config.checkpoint_interval > 0
    size = math.log2(config.micro_batch_size)
    return [
        size,
        float(is_checkpointed),
        size * is_checkpointed,
        math.log2(1 + config.checkpoint_interval),
        float(config.accumulation_steps > 1),
        math.log2(config.optimizer_bits),
        float(config.optimizer != Optimizer.ADAMW),
        float(config.zero_stage),
        float(config.activation_offload != ActivationOffload.NONE),
        float(config.checkpoint_deepest > 0),
        float(config.compile == Switch.ON),
        float(config.sharding == Sharding.FSDP),
        float(config.optimizer_in_backward == Switch.ON),
        float(config.lora_rank > 0),
        math.log2(config.weight_bits),
        *(float(config.amp_dtype == dtype) for dtype in AmpDtype),
        *(float(config.offload_target == target) for target in OffloadTarget),
    ]
