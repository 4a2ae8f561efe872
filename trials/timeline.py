"""Memory over an optimizer step, by kind: every allocation of a trace, put where it belongs. Pure.

What is there before the profile is known by its tensors. Of what is allocated within it, a block
whose address is a gradient's at the end of a backward pass is a gradient; one that a forward pass
allocates and leaves behind is an activation; the rest is temporary. DeepSpeed, and torch between
ranks, write gradients to buffers that are always there: those are gradients all the time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trials.trace import BACKWARD, FORWARD, STEP, Span, Trace

KINDS = ("parameters", "optimizer_state", "gradients", "activations", "temporary")
"""In the order in which they are stacked: what stays, then what comes and goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is allocated before a profile begins.

    Attributes:
        sizes: Bytes by kind; ``temporary`` is what is known of no other kind.
        kinds: Kind of the block at an address.
    """

    sizes: Mapping[str, int]
    kinds: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes by kind from a time on, in the order of ``KINDS``."""

    seconds: float
    sizes: tuple[int, ...]

    @property
    def total(self) -> int:
        """Bytes of all kinds."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Memory over one step.

    Attributes:
        moments: In order of time; the first is the step's start, at 0 seconds.
        seconds: Length of the step.
        phases: Spans of the step by label, counted from its start.
    """

    moments: Sequence[Moment]
    seconds: float
    phases: Mapping[str, Sequence[Span]]

    @property
    def peak(self) -> Moment:
        """When most is allocated."""
        return max(self.moments, key=lambda moment: moment.total)


@dataclass(frozen=True, slots=True)
class _Block:
    address: int
    size: int
    start: float
    end: float


def last_step(trace: Trace, held: Held, gradients: Sequence[Mapping[int, int]]) -> Timeline:
    """Return memory over the last step of a trace.

    Args:
        trace: Of whole steps.
        held: Before the first of them.
        gradients: At the end of each backward pass of the trace: bytes by address.
    """
    held = _with_kept(trace, held, gradients)
    step = trace.spans[STEP][-1]
    moments = list(_moments(trace, held, gradients))
    first = bisect_right([moment.seconds for moment in moments], step.start) - 1
    within = [m for m in moments[first + 1 :] if m.seconds <= step.end]
    from_start = [Moment(0.0, moments[first].sizes)]
    from_start += [replace(m, seconds=m.seconds - step.start) for m in within]
    return Timeline(
        moments=from_start,
        seconds=step.end - step.start,
        phases={
            label: [
                Span(span.start - step.start, span.end - step.start)
                for span in spans
                if step.start <= span.start < step.end
            ]
            for label, spans in trace.spans.items()
        },
    )


def _with_kept(trace: Trace, held: Held, gradients: Sequence[Mapping[int, int]]) -> Held:
    """Return what is held, with the buffers that gradients are written to in every step."""
    made = {change.address for change in trace.allocations if change.size > 0}
    kept = {
        address: size
        for blocks in gradients
        for address, size in blocks.items()
        if address not in made and address not in held.kinds
    }
    sizes, total = dict(held.sizes), sum(kept.values())
    sizes["gradients"] = sizes.get("gradients", 0) + total
    sizes["temporary"] = max(0, sizes.get("temporary", 0) - total)
    return Held(sizes=sizes, kinds={**held.kinds, **dict.fromkeys(kept, "gradients")})


def _moments(trace: Trace, held: Held, gradients: Sequence[Mapping[int, int]]) -> Iterator[Moment]:
    kind_of = _Classifier(trace, gradients).kind_of
    changes: list[tuple[float, str, int]] = []
    sizes = dict.fromkeys(KINDS, 0) | dict(held.sizes)
    unknown = 0
    for block in _blocks(trace):
        if block.start == float("-inf"):
            kind = held.kinds.get(block.address, "temporary")
            unknown += block.size if block.address not in held.kinds else 0
        else:
            kind = kind_of(block)
            changes.append((block.start, kind, block.size))
        if block.end < float("inf"):
            changes.append((block.end, kind, -block.size))
    sizes["temporary"] = max(sizes["temporary"], unknown)
    yield Moment(float("-inf"), tuple(sizes[kind] for kind in KINDS))
    for seconds, kind, change in sorted(changes):
        sizes[kind] += change
        yield Moment(seconds, tuple(sizes[kind] for kind in KINDS))


def _blocks(trace: Trace) -> Iterator[_Block]:
    """Yield every block that a trace allocates or frees; without end if it does not say both."""
    living: dict[int, _Block] = {}
    for change in trace.allocations:
        if change.size > 0:
            living[change.address] = _Block(
                change.address, change.size, change.seconds, float("inf")
            )
            continue
        block = living.pop(
            change.address, _Block(change.address, -change.size, float("-inf"), 0.0)
        )
        yield replace(block, end=change.seconds)
    yield from living.values()


class _Classifier:
    """Says what a block is that was allocated within a trace."""

    def __init__(self, trace: Trace, gradients: Sequence[Mapping[int, int]]) -> None:
        self._forward = trace.spans[FORWARD]
        self._forward_starts = [span.start for span in self._forward]
        self._backward_ends = [span.end for span in trace.spans[BACKWARD]]
        assert len(gradients) == len(self._backward_ends)
        self._gradients = gradients

    def kind_of(self, block: _Block) -> str:
        after = bisect_left(self._backward_ends, block.start)
        ended = bisect_left(self._backward_ends, block.end)
        if any(block.address in blocks for blocks in self._gradients[after:ended]):
            return "gradients"
        before = bisect_right(self._forward_starts, block.start) - 1
        if before >= 0 and block.start <= self._forward[before].end < block.end:
            return "activations"
        return "temporary"
