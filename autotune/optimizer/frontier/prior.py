"""What is known of configs before any trial."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPrior:
    """A prediction of one config; what is None is not predicted.

    Attributes:
        peak_device_bytes: Of device memory.
        step_seconds: Of an optimizer step.
        trial_seconds: Of a whole trial.
        peak_errors: How the logarithm of the peak may be off for causes that configs share: one
            standard deviation of each cause. Empty where nothing is known of causes.
        step_errors: The same of the step.
    """

    peak_device_bytes: float | None = None
    step_seconds: float | None = None
    trial_seconds: float | None = None
    peak_errors: tuple[float, ...] = ()
    step_errors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An objective.

    Attributes:
        name: ``throughput``, ``cost``, ``quality`` or ``peak_memory``.
        is_minimized: Whether less is better.
        predicted: Of every config, above 0, up to a constant factor; None when the sampler
            shall derive it from the configs' priors, which it can but for quality.
    """

    name: str
    is_minimized: bool
    predicted: Sequence[float] | None = None
