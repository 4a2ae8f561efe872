"""An evaluation tried before a study: a fault there shows only after training otherwise."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import torch
from torch import nn

from trials.contract import checked_quality
from trials.workload import Workload

LIMIT_SECONDS = 3.0
"""Most faults show at once; what still runs after this is left to the study."""


class _OutOfTime(BaseException):
    """The evaluation takes long. Not an Exception, so that the workload's own code lets it by."""


def rehearse_evaluation(
    workload: Workload,
    model: nn.Module,
    device: torch.device,
    limit_seconds: float = LIMIT_SECONDS,
) -> None:
    """Evaluate an untrained model in fp32, for a short time. The value says nothing.

    Args:
        workload: What is rehearsed.
        model: Its model, on the device; left in eval mode.
        device: Where.
        limit_seconds: After which to leave it at that. Needs the main thread.

    Raises:
        WorkloadError: ``evaluate()`` returned no number.
    """
    model.eval()
    before = signal.signal(signal.SIGALRM, _give_up)
    try:
        with suppress(_OutOfTime), _alarms(limit_seconds), torch.no_grad():
            checked_quality(workload.evaluate(model, device))
    finally:
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _alarms(seconds: float) -> Iterator[None]:
    """Raise the alarm again and again: one within a destructor is swallowed."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise _OutOfTime
