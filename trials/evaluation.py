"""A model's quality on held-out data, in batches as large as memory allows."""

import gc
from collections.abc import Callable

import torch

from trials.contract import checked_quality
from trials.training import TrainingState


def evaluate_in_batches(
    state: TrainingState, is_out_of_memory: Callable[[Exception], bool]
) -> tuple[float, int | None]:
    """Evaluate a model; a batch that runs out of memory is halved, down to one sample.

    Evaluating may take more than training, whose config is not to blame for it.

    Args:
        state: After training; the workload's ``evaluation_batch_size`` is left at what fitted.
        is_out_of_memory: Tells whether an exception is for want of memory.

    Returns:
        The metric, and the batch size if it had to be lowered.
    """
    workload = state.workload
    asked = workload.evaluation_batch_size
    state.model.eval()
    while True:
        try:
            with torch.no_grad(), state.engine.forward():
                value = checked_quality(workload.evaluate(state.model, state.device))
            break
        except Exception as error:
            size = workload.evaluation_batch_size
            if size is None or size <= 1 or not is_out_of_memory(error):
                raise
        # Outside of the handler: the exception's frames would keep the tensors alive.
        workload.evaluation_batch_size = size // 2
        _give_back(state.device)
    used = workload.evaluation_batch_size
    return value, None if used == asked else used


def _give_back(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
