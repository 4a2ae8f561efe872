"""Trace a workload's forward and backward pass under fake tensors: shapes without memory.

Every operator's result is followed from its making to its end, so that what is alive is known
at each moment; nothing is computed, and no weight has memory.
"""

import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from search_spaces import TrainingConfig
from trials.adapters import add_adapters, linear_names
from trials.checkpointing import checkpoint_blocks
from trials.contract import checked_loss, checked_worst_batch
from trials.engines import AUTOCAST_DTYPES
from trials.errors import WorkloadError
from trials.fake_ledger import Ledger, Reading
from trials.trace_facts import GraphTrace, Line, Peak, Stretch, StretchMemory, Work
from trials.workload import Batch, Workload

MICRO_BATCHES = (2, 4)
"""Sizes traced. Not 1, at which operators leave out copies that they make of any other."""
SHOWN = 4
"""Blocks of a kind that are run; those that follow are taken to be like them."""
_REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError)
_LIBRARIES = Path(torch.__file__).parents[1]
_OURS = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class _Built:
    """A model to trace, of fake tensors."""

    model: nn.Module
    blocks: list[nn.Module]
    parameter_bytes: int
    adapted: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """One pass at one size: which blocks recompute, and what was read of each stretch."""

    recomputed: frozenset[int]
    skipped: frozenset[int]
    calls: list[int]
    forward: list[Reading]
    backward: list[Reading]
    held: list[int]


def trace_graph(workload: Workload, config: TrainingConfig, device: torch.device) -> GraphTrace:
    """Return what a workload's passes take under the data type and adapters of a config.

    Args:
        workload: What is traced; its ``build`` and ``loss`` run under fake tensors.
        config: Whose ``amp_dtype`` and ``lora_rank`` count, and whether it recomputes.
        device: Of whose operators; a ``cpu`` is always there.

    Raises:
        WorkloadError: It looks at values, which fake tensors have not; the message says where.
    """
    with explained():
        built = _build(workload, config)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, explained():
        _give_shapes(built.model, device)
        patterns = _patterns(built.blocks) if config.checkpoint_interval else [frozenset()]
        batches = [_fake(mode, checked_worst_batch(workload, size)) for size in MICRO_BATCHES]
        pairs = [
            [_run(workload, built, pattern, config, batch, device) for batch in batches]
            for pattern in patterns
        ]
    trained = [p for p in built.model.parameters() if p.requires_grad]
    return GraphTrace(
        is_low_precision=config.amp_dtype in AUTOCAST_DTYPES,
        lora_rank=config.lora_rank,
        parameter_bytes=built.parameter_bytes,
        trained=tuple(sorted(Counter(p.numel() for p in trained).items())),
        adapted=built.adapted,
        stretches=_stretches(pairs, [_kind(block) for block in built.blocks]),
        weight_bytes=max((p.element_size() for p in trained), default=4),
    )


def _build(workload: Workload, config: TrainingConfig) -> _Built:
    model = workload.outline().train()
    blocks = list(workload.blocks(model))
    adapted: list[int] = []
    if config.lora_rank > 0:
        names = linear_names(model, blocks)
        adapted = [model.get_parameter(f"{name}.weight").numel() for name in names]
        add_adapters(model, blocks, config.with_knobs({"weight_bits": 32}))
    tensors = [*model.parameters(), *model.buffers()]
    return _Built(
        model=model,
        blocks=blocks,
        parameter_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        adapted=tuple(sorted(Counter(adapted).items())),
    )


def _give_shapes(model: nn.Module, device: torch.device) -> None:
    """Replace a model's tensors, which are on no device, by fake ones on a device."""
    given: dict[int, Tensor] = {}

    def fake(tensor: Tensor) -> Tensor:
        if id(tensor) not in given:
            shape, strides = tensor.shape, tensor.stride()
            made = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=device)
            is_parameter = isinstance(tensor, nn.Parameter)
            given[id(tensor)] = nn.Parameter(made, tensor.requires_grad) if is_parameter else made
        return given[id(tensor)]

    for module in model.modules():
        owned: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for held in owned:
            held.update({name: fake(t) for name, t in held.items() if t is not None})


def _fake(mode: FakeTensorMode, batch: Batch) -> Batch:
    return tree_map_only(
        Tensor, lambda t: t if mode.is_our_fake(t) else mode.from_tensor(t), batch
    )


def _patterns(blocks: Sequence[nn.Module]) -> list[frozenset[int]]:
    """Return which blocks recompute in each pass that is traced.

    Where each kind of block is there four times or more, one pass shows both ways: two blocks
    keep their activations and the next two recompute, so that kinds of layers that take turns
    are seen in both.
    """
    places = _places(blocks)
    of_kind = Counter(_kind(block) for block in blocks)
    if of_kind and min(of_kind.values()) >= SHOWN:
        return [frozenset(i for i, place in enumerate(places) if 2 <= place < SHOWN)]
    return [frozenset(), frozenset(range(len(blocks)))] if blocks else [frozenset()]


def _places(blocks: Sequence[nn.Module]) -> list[int]:
    """Return which of its kind each block is, counted from 0."""
    seen: Counter[object] = Counter()
    places = []
    for block in blocks:
        places.append(seen[_kind(block)])
        seen[_kind(block)] += 1
    return places


def _kind(block: nn.Module) -> object:
    return type(block), tuple(tuple(p.shape) for p in block.parameters())


def _run(
    workload: Workload,
    built: _Built,
    recomputed: frozenset[int],
    config: TrainingConfig,
    batch: Batch,
    device: torch.device,
) -> _Run:
    """Take one batch forward and backward."""
    here = [] if device.type != "cpu" else tree_leaves(batch)
    known = [*built.model.parameters(), *built.model.buffers()]
    known += [leaf for leaf in here if isinstance(leaf, Tensor)]
    watch = _Watch(built, Ledger(known, 2 * MAX_CALLS + 1))
    dtype = AUTOCAST_DTYPES.get(config.amp_dtype)
    ledger = watch.ledger
    with watch.hooked(recomputed), ledger:
        moved = tree_map_only(Tensor, lambda tensor: tensor.to(device), batch)
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            loss = checked_loss(workload.loss(built.model, moved)) / 1.0
        ledger.leave()
        held = ledger.held()
        ledger.enter(2 * len(watch.calls), is_backward=True)
        loss.backward()  # type: ignore[no-untyped-call]
        ledger.leave()
    num_stretches = 2 * len(watch.calls) + 1
    for parameter in built.model.parameters():
        parameter.grad = None
    return _Run(
        recomputed=recomputed,
        skipped=frozenset(watch.skipped),
        calls=watch.calls,
        forward=ledger.forward[:num_stretches],
        backward=ledger.backward[:num_stretches],
        held=held[:num_stretches],
    )


MAX_CALLS = 2000
"""Calls of blocks in one pass; more than any model has."""


class _Watch:
    """Tells a ledger where a pass is: hooks on blocks, and on the gradients of what they pass."""

    def __init__(self, built: _Built, ledger: Ledger) -> None:
        self.ledger = ledger
        self.calls: list[int] = []
        self._built = built
        self.skipped: set[int] = set()
        self._last: Tensor | None = None
        self._outputs: dict[object, tuple[torch.Size, torch.dtype]] = {}

    @contextmanager
    def hooked(self, recomputed: frozenset[int]) -> Iterator[None]:
        """Watch for as long as this lasts, and have chosen blocks recompute."""
        blocks, places = self._built.blocks, _places(self._built.blocks)
        handles = []
        for index, block in enumerate(blocks):
            before, after = self._hooks(index)
            handles.append(block.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(block.register_forward_hook(after))
            if places[index] >= SHOWN:
                block.forward = self._shortened(index)
        if recomputed:
            checkpoint_blocks([blocks[index] for index in sorted(recomputed)])
        for parameter in self._built.model.parameters():
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(self._completed)  # type: ignore[no-untyped-call]
                handles.append(hook)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for block in blocks:
                vars(block).pop("forward", None)

    def _shortened(self, index: int) -> Any:
        """Return a block's forward pass that hands on its input where one like it kept its shape.

        What such a block takes is known from those that were run.
        """
        block = self._built.blocks[index]
        forward, kind = block.forward, _kind(block)

        def run(*args: Any, **kwargs: Any) -> Any:
            given = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
            if given is None or self._outputs.get(kind) != (given.shape, given.dtype):
                return forward(*args, **kwargs)
            self.skipped.add(2 * len(self.calls) - 1)
            return given

        return run

    def _hooks(self, index: int) -> tuple[Any, Any]:
        def before(block: nn.Module, args: Any, kwargs: Any) -> None:
            self.calls.append(index)
            place = 2 * len(self.calls) - 1
            self._on_gradient((args, kwargs), place - 1)
            self.ledger.enter(place, is_backward=False)

        def after(block: nn.Module, args: Any, out: Any) -> None:
            place = 2 * len(self.calls) - 1
            self._on_gradient(out, place)
            self.ledger.enter(place + 1, is_backward=False)
            if isinstance(out, Tensor):
                self._outputs[_kind(block)] = (out.shape, out.dtype)

        return before, after

    def _on_gradient(self, values: Any, stretch: int) -> None:
        """Have a stretch's backward pass begin where the gradient of what it made is there."""
        made = (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))
        tensor = next((tensor for tensor in made if tensor.requires_grad), None)
        if tensor is not None and tensor is not self._last:  # else nothing lies between blocks
            self._last = tensor
            tensor.register_hook(  # type: ignore[no-untyped-call]
                lambda _: self.ledger.enter(stretch, is_backward=True)
            )

    def _completed(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.ledger.complete(parameter.grad)


def _stretches(pairs: Sequence[Sequence[_Run]], kinds: Sequence[object]) -> tuple[Stretch, ...]:
    """Put together what passes at two sizes, over one pattern or two, show of each stretch."""
    num_calls = len(pairs[0][0].calls)
    return tuple(_stretch(pairs, kinds, place) for place in range(2 * num_calls + 1))


def _stretch(pairs: Sequence[Sequence[_Run]], kinds: Sequence[object], place: int) -> Stretch:
    block = pairs[0][0].calls[place // 2] if place % 2 else None
    kept = (pairs[0], place) if block is None else _found(pairs, kinds, place, False)
    assert kept is not None, "the first block of each kind is run, and keeps its activations"
    again = None if block is None else _found(pairs, kinds, place, True)
    pair, at = kept
    return Stretch(
        block=block,
        kept=_memory(pair, at),
        recomputed=None if again is None else _memory(*again),
        gradient_bytes=pair[0].backward[at].gradient_bytes,
        forward=_work([run.forward[at] for run in pair]),
        backward=_work([run.backward[at] for run in pair]),
    )


def _found(
    pairs: Sequence[Sequence[_Run]], kinds: Sequence[object], place: int, is_recomputed: bool
) -> tuple[Sequence[_Run], int] | None:
    """Return a pass in which a block, or the nearest like it, was run one way; and where.

    One at an even distance comes first: layers of two kinds may take turns.
    """
    calls = pairs[0][0].calls
    kind = kinds[calls[place // 2]]
    candidates = [
        (abs(index - place // 2) % 2, abs(index - place // 2), order, 2 * index + 1)
        for order, pair in enumerate(pairs)
        for index, block in enumerate(calls)
        if kinds[block] == kind and (block in pair[0].recomputed) == is_recomputed
        if 2 * index + 1 not in pair[0].skipped
    ]
    if not candidates:
        return None
    _, _, order, at = min(candidates)
    return pairs[order], at


def _memory(pair: Sequence[_Run], place: int) -> StretchMemory:
    forward, backward = (
        [run.forward[place] for run in pair],
        [run.backward[place] for run in pair],
    )
    levels = [sum(run.held[: place + 1]) for run in pair]
    return StretchMemory(
        growth=_line([reading.after - reading.before for reading in forward]),
        forward_peak=_peak([[m[0] - r.before for m in r.moments] for r in forward]),
        held=_line([run.held[place] for run in pair]),
        backward_peak=_peak(
            [
                [*_start(r, level), *(m[0] - level for m in r.moments)]
                for r, level in zip(backward, levels, strict=True)
            ]
        ),
        backward_peak_with_gradients=_peak(
            [
                [*_start(r, level), *(m[1] - level - r.complete_before for m in r.moments)]
                for r, level in zip(backward, levels, strict=True)
            ]
        ),
    )


def _start(reading: Reading, level: int) -> list[float]:
    return [reading.before - level] if reading.operators else []


def _work(readings: Sequence[Reading]) -> Work:
    return Work(
        flops=_line([reading.flops for reading in readings]),
        moved_bytes=_line([reading.moved_bytes for reading in readings]),
        operators=readings[0].operators,
    )


def _line(values: Sequence[float]) -> Line:
    return Line.through(MICRO_BATCHES, (values[0], values[1]))


def _peak(moments: Sequence[Sequence[float]]) -> Peak:
    """Return the peak over the moments of both passes; of the highest alone where they differ."""
    first, second = moments
    if len(first) != len(second):
        first, second = [max(first, default=0)], [max(second, default=0)]
    return Peak.over(_line(values) for values in zip(first, second, strict=True))


@contextmanager
def explained() -> Iterator[None]:
    """Say of whatever a model raises under fake tensors where, and what to do instead."""
    try:
        yield
    except WorkloadError:
        raise
    except _REFUSALS as error:
        frames = traceback.extract_tb(error.__traceback__)
        aside = {_LIBRARIES, _OURS}
        own = [frame for frame in frames if not aside & set(Path(frame.filename).parents)]
        place = f" at {own[-1].filename}:{own[-1].lineno} ({own[-1].line})" if own else ""
        cause = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise WorkloadError(
            f"cannot be traced without memory, since it needs real values{place}: {cause}; "
            "measure it by real trials instead, with autotune probe or autotune run"
        ) from error
