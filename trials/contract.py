"""What a workload's methods must return, checked where they are called.

A torch error from inside the training loop would tell the workload's author nothing.
"""

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

from trials.errors import WorkloadError
from trials.workload import Batch, Workload, first_tensor

_ENDED = "batches() ended; it must yield without end"


def checked_batches(workload: Workload, micro_batch_size: int, seed: int) -> Iterator[Batch]:
    """Yield a workload's micro-batches without end.

    Raises:
        WorkloadError: They end, are none, or have another size.
    """
    batches = workload.batches(micro_batch_size, seed)
    if not isinstance(batches, Iterable):
        raise WorkloadError(f"batches() must yield batches without end, got {_shown(batches)}")
    for batch in batches:
        _require_samples(batch, micro_batch_size)
        yield batch
    raise WorkloadError(_ENDED)


def checked_worst_batch(workload: Workload, micro_batch_size: int) -> Batch:
    """Return a workload's worst-case micro-batch.

    Raises:
        WorkloadError: There is none, or it has another size.
    """
    try:
        batch = workload.worst_batch(micro_batch_size)
    except StopIteration:
        raise WorkloadError(_ENDED) from None
    _require_samples(batch, micro_batch_size)
    return batch


def checked_loss(loss: object) -> Tensor:
    """Return what ``loss()`` returned.

    Raises:
        WorkloadError: Nothing can be trained by it; the message says what it is.
    """
    if (
        isinstance(loss, Tensor)
        and loss.ndim == 0
        and loss.is_floating_point()
        and loss.requires_grad
    ):
        return loss
    raise WorkloadError(
        "loss() must return one floating-point number as a tensor with a gradient (the sum over "
        f"the batch), got {_loss_trouble(loss)}"
    )


def counted_units(workload: Workload, window: Sequence[Batch]) -> int:
    """Return the trained units of an accumulation window, one at least.

    Raises:
        WorkloadError: ``count()`` returned something else for a batch, or 0 for all.
    """
    counts = [workload.count(batch) for batch in window]
    wrong = [_shown(count) for count in counts if not _is_count(count)]
    if not wrong and sum(counts) > 0:
        return sum(counts)
    found = wrong[0] if wrong else "0 for every batch of an optimizer step"
    raise WorkloadError(
        "count() must return how many units the loss was summed over, an int of 1 or more, "
        f"got {found}"
    )


def checked_quality(value: object) -> float:
    """Return what ``evaluate()`` returned as a number; whether it is finite is not asked.

    Raises:
        WorkloadError: It is none.
    """
    try:
        if not isinstance(value, Tensor) or (value.numel() == 1 and not value.is_complex()):
            return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        pass
    raise WorkloadError(
        f"evaluate() must return one number, got {_shown(value)}; return the metric as a float"
    )


def _require_samples(batch: Batch, micro_batch_size: int) -> None:
    tensor = first_tensor(batch)
    samples = tensor.shape[0] if tensor.ndim else 0
    if samples != micro_batch_size:
        raise WorkloadError(
            f"a batch of micro-batch size {micro_batch_size} has {samples} samples in its first "
            "dimension"
        )


def _is_count(count: object) -> bool:
    return isinstance(count, int) and not isinstance(count, bool) and count >= 0


def _loss_trouble(loss: object) -> str:
    """Say what a loss is that cannot be trained by, and what to do about it."""
    if isinstance(loss, int | float):
        return f"a Python {type(loss).__name__}; return the tensor itself, without .item()"
    if not isinstance(loss, Tensor):
        return f"{_shown(loss)}; return the tensor of the loss alone"
    if loss.ndim:
        return f"{_shown(loss)}; sum it, with reduction='sum' or .sum()"
    if not loss.is_floating_point():
        return f"{_shown(loss)}; compute it from the model's floating-point outputs"
    return (
        "a tensor without one; compute it from what the model returns, without .detach(), "
        ".data or torch.no_grad()"
    )


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"a tensor of shape {tuple(value.shape)} and type {kind}"
    if value is None:
        return "None (does it end in return?)"
    if isinstance(value, int | float | str):
        return f"{value!r} ({type(value).__name__})"
    return f"a value of type {type(value).__name__}"
