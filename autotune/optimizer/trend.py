"""How memory has gone with the knobs so far: where a sampler should rather not look. Pure.

A proposal is steered by this, never refused: what surely cannot fit is for ``reuse`` to say.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search_spaces import AmpDtype, OffloadTarget, TrainingConfig

FEWEST_POINTS = 6
_RIDGE = 0.05


def likely_to_fit(
    candidates: Sequence[TrainingConfig],
    tried: Sequence[TrainingConfig],
    violations: Sequence[float],
) -> NDArray[np.bool_]:
    """Tell which configs are expected to keep to the memory budget.

    The logarithm of memory over budget is fitted by ridge regression on a few features of the
    knobs. Everything is expected to fit until a few trials have been measured.

    Args:
        candidates: Configs to judge.
        tried: Measured configs.
        violations: Of each, memory over budget, less 1.

    Returns:
        One truth value per candidate.
    """
    if len(tried) < FEWEST_POINTS:
        return np.ones(len(candidates), dtype=np.bool_)
    features = np.array([_features(config) for config in tried])
    target = np.log1p(np.maximum(violations, -0.99))
    centre, level = features.mean(axis=0), target.mean()
    moved = features - centre
    penalty = _RIDGE * len(tried) * np.eye(moved.shape[1])
    weights = np.linalg.solve(moved.T @ moved + penalty, moved.T @ (target - level))
    ahead = np.array([_features(config) for config in candidates]) - centre
    return np.asarray(ahead @ weights + level <= 0.0, dtype=np.bool_)


def _features(config: TrainingConfig) -> list[float]:
    is_checkpointed = config.checkpoint_interval > 0
    size = math.log2(config.micro_batch_size)
    return [
        size,
        float(is_checkpointed),
        size * is_checkpointed,
        math.log2(1 + config.checkpoint_interval),
        float(config.accumulation_steps > 1),
        float(config.optimizer_bits == 8),
        *(float(config.amp_dtype == dtype) for dtype in AmpDtype),
        *(float(config.offload_target == target) for target in OffloadTarget),
    ]
