"""A ledger of what is alive while fake tensors pass through a model, stretch by stretch."""

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))  # type: ignore[no-untyped-call]


def _attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> int:
    shapes = (gradient.shape, query.shape, key.shape, value.shape)
    return int(sdpa_backward_flop_count(*shapes))  # type: ignore[no-untyped-call]


_ON_CPU: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""Operators that torch's counter leaves out."""


@dataclass(slots=True)
class Reading:
    """What was seen of one stretch in one direction.

    Attributes:
        before: Bytes alive when it was first entered, without complete gradients.
        complete_before: Of complete gradients then.
        after: Bytes alive when it was last left, likewise without them.
        moments: Bytes alive after each allocation, without and with complete gradients.
        gradient_bytes: Of gradients completed within.
        flops: As torch counts them.
        moved_bytes: Read and written.
        operators: That made or changed something.
    """

    before: int = 0
    complete_before: int = 0
    after: int = 0
    moments: list[tuple[int, int]] = field(default_factory=list)
    gradient_bytes: int = 0
    flops: int = 0
    moved_bytes: int = 0
    operators: int = 0


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows every tensor's memory from the operator that makes it to its end.

    Attributes:
        forward: Readings of the forward pass, by stretch.
        backward: Of the backward pass, by stretch.
    """

    def __init__(self, known: Iterable[Tensor], num_stretches: int) -> None:
        """Prepare a ledger.

        Args:
            known: Tensors whose memory does not count: parameters, buffers, a batch at hand.
            num_stretches: Of the pass.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.forward = [Reading() for _ in range(num_stretches)]
        self.backward = [Reading() for _ in range(num_stretches)]
        self._alive: dict[int, tuple[int, int, Any]] = {
            tensor.untyped_storage()._cdata: (0, 0, None) for tensor in known
        }
        self._live = self._complete = 0
        self._stretch, self._reading = 0, self.forward[0]

    def enter(self, stretch: int, *, is_backward: bool) -> None:
        """Go on to a stretch; one may be entered again."""
        self._reading.after = self._live - self._complete
        reading = (self.backward if is_backward else self.forward)[stretch]
        if not reading.operators:
            reading.before = self._live - self._complete
            reading.complete_before = self._complete
        self._stretch, self._reading = stretch, reading

    def leave(self) -> None:
        """End the pass."""
        self._reading.after = self._live - self._complete

    def complete(self, gradient: Tensor) -> None:
        """Take note of a parameter's gradient that nothing is added to any more."""
        size = gradient.untyped_storage().nbytes()
        self._complete += size
        self._reading.gradient_bytes += size

    def held(self) -> list[int]:
        """Return the bytes alive, by the stretch that made them."""
        found = [0] * len(self.forward)
        for size, stretch, _ in self._alive.values():
            found[stretch] += size
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and book what it makes."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        made = _tensors(out if isinstance(out, list | tuple) else (out,))
        is_new = [self._book(tensor) for tensor in made]
        if any(is_new) or func._schema.is_mutable:
            self._count(func, args, kwargs, out, made)
        return out

    def _count(self, func: Any, args: Any, kwargs: Any, out: Any, made: list[Tensor]) -> None:
        reading = self._reading
        reading.operators += 1
        given = _tensors((*args, *kwargs.values()))
        reading.moved_bytes += sum(
            tensor.numel() * tensor.element_size() for tensor in (*given, *made)
        )
        counted: Callable[..., int] | None
        counted = _ON_CPU.get(func._overloadpacket) or flop_registry.get(func._overloadpacket)
        if counted is not None:
            reading.flops += int(counted(*args, **kwargs, out_val=out))

    def _book(self, tensor: Tensor) -> bool:
        """Book a tensor's memory unless it is booked; returns whether it was new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive:
            return False
        size = storage.nbytes()

        def end(_: object) -> None:
            self._alive.pop(key)
            self._live -= size

        self._alive[key] = (size, self._stretch, weakref.ref(storage, end))
        self._live += size
        self._reading.moments.append((self._live - self._complete, self._live))
        return True


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among an operator's values, lists of them included."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [item for item in value if isinstance(item, Tensor)]
    return found
