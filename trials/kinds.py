"""What a trial's memory is made up of."""

from trials.engines import Engine
from trials.measurement import MemoryUse
from trials.memory import MemoryMeter
from trials.optimizers import tensor_bytes


class KindObserver:
    """Reads what is alive before a forward pass, after it and after its backward pass."""

    def __init__(self, meter: MemoryMeter, engine: Engine) -> None:
        """Observe one step: call it with ``start``, ``forward`` and ``backward``."""
        self._meter, self._engine = meter, engine
        self._allocated: dict[str, int] = {}
        self._gradients: dict[str, int] = {}
        self._gathered: dict[str, int] = {}
        self._elsewhere: dict[str, dict[str, int]] = {}

    def __call__(self, moment: str) -> None:
        """Take note of a moment."""
        self._gradients[moment] = tensor_bytes(self._engine.gradient_tensors())
        self._allocated[moment] = self._meter.allocated_bytes()
        self._gathered[moment] = tensor_bytes(self._engine.gathered_tensors())
        if moment == "forward":
            self._meter.look()
        if moment == "backward":
            self._elsewhere = self._look_elsewhere()

    def elsewhere(self) -> dict[str, dict[str, int]]:
        """Return the bytes by kind and place outside the device's memory, after the backward."""
        return self._elsewhere

    def by_kind(self) -> dict[str, int]:
        """Return bytes by kind; ``held_gradients`` are those before the last backward pass."""
        kept = self._allocated["forward"] - self._allocated["start"]
        kept -= self._gathered["forward"] - self._gathered["start"]
        return {
            "parameters": tensor_bytes(self._engine.parameter_tensors()),
            "gradients": self._gradients["backward"],
            "optimizer_state": self._engine.state_bytes(),
            "activations": max(0, kept),
            "held_gradients": self._gradients["forward"],
        }

    def _look_elsewhere(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for kind, place, size in self._engine.elsewhere():
            if size:
                by_place = found.setdefault(kind, {})
                by_place[str(place)] = by_place.get(str(place), 0) + size
        return found


def memory_use(
    meter: MemoryMeter,
    by_kind: dict[str, int],
    elsewhere: dict[str, dict[str, int]] | None = None,
) -> MemoryUse:
    """Return what a trial took: its peak, and what is known of what made it up.

    Args:
        meter: Of the trial.
        by_kind: From ``KindObserver``; empty for a trial that did not come so far.
        elsewhere: From ``KindObserver``, likewise.
    """
    kinds = dict(by_kind)
    peak = meter.peak_bytes()
    if kinds:
        at_rest = kinds["parameters"] + kinds["optimizer_state"]
        after_forward = at_rest + kinds["activations"] + kinds.pop("held_gradients")
        kinds["temporary"] = max(0, peak - max(after_forward, at_rest + kinds["gradients"]))
    return MemoryUse(
        peak_device_bytes=peak,
        peak_reserved_bytes=meter.peak_reserved_bytes(),
        peak_host_bytes=meter.peak_host_bytes(),
        by_kind=kinds,
        elsewhere=elsewhere or {},
        allocator_retries=meter.allocator_retries(),
    )
