"""What torch's profiler wrote of a trial: spans of time, and every allocation. Pure.

The file is Chrome's trace event format, which Perfetto and chrome://tracing open; its times are
microseconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STEP, DATA, FORWARD, BACKWARD, OPTIMIZER, DISK = LABELS = (
    *("trial step", "waiting for data", "forward pass", "backward pass", "optimizer step"),
    "waiting for disk",
)
"""Names that a trial gives to spans of its steps."""
_DEVICE_TYPES = {"cpu": 0, "cuda": 1}
"""As torch numbers them: ``c10::DeviceType``."""
_COMPUTES = ("kernel", "gpu_memset")


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when, in seconds."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Allocation:
    """A change of what is allocated.

    Attributes:
        seconds: When.
        address: Of the block.
        size: Bytes; negative where the block was freed.
    """

    seconds: float
    address: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The part of a trace that is read here; all in order of time.

    Attributes:
        spans: By the label that the trial gave them.
        computing: When a GPU ran kernels; empty on CPU.
        allocations: On the device.
    """

    spans: Mapping[str, Sequence[Span]]
    computing: Sequence[Span]
    allocations: Sequence[Allocation]


def read_trace(events: Iterable[Mapping[str, Any]], device_kind: str) -> Trace:
    """Read the ``traceEvents`` of a trace.

    Args:
        events: Of any order.
        device_kind: ``cpu`` or ``cuda``: whose allocations are meant.
    """
    spans: dict[str, list[Span]] = {label: [] for label in LABELS}
    computing: list[Span] = []
    allocations: list[Allocation] = []
    for event in sorted((e for e in events if "ts" in e), key=lambda event: float(event["ts"])):
        start = float(event["ts"]) / 1e6
        span = Span(start, start + float(event.get("dur", 0)) / 1e6)
        if event["name"] == "[memory]":
            facts = event["args"]
            if facts["Device Type"] == _DEVICE_TYPES[device_kind]:
                allocations.append(Allocation(start, facts["Addr"], facts["Bytes"]))
        elif event.get("cat") == "user_annotation" and event["name"] in spans:
            spans[event["name"]].append(span)
        elif event.get("cat") in _COMPUTES:
            computing.append(span)
    return Trace(spans=spans, computing=computing, allocations=allocations)


def seconds_outside(spans: Iterable[Span], others: Iterable[Span]) -> float:
    """Return how long some spans last, counted once, without the time of the others."""
    everything = list(others)
    return _length([*spans, *everything]) - _length(everything)


def _length(spans: Iterable[Span]) -> float:
    total, reached = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total
