"""Predictions for every config of a space: what ``estimate`` does."""

from autotune.predict.predictor import LOW_PRECISION
from search_spaces import SearchSpace, TrainingConfig


def graphs_to_trace(space: SearchSpace) -> tuple[TrainingConfig, ...]:
    """Return a config for each way to compute that a space has: 16 bits or not, adapters."""
    listed = dict(space.values)
    recomputes = int(any(int(value) for value in listed["checkpoint_interval"]))
    found = {}
    for dtype in listed["amp_dtype"]:
        for rank in listed["lora_rank"]:
            knobs = {
                "amp_dtype": dtype,
                "lora_rank": rank,
                "checkpoint_interval": recomputes,
            }
            found.setdefault((dtype in LOW_PRECISION, rank), TrainingConfig().with_knobs(knobs))
    return tuple(found.values())
