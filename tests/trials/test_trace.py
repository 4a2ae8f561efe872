"""What is read of a profiler's trace."""

import pytest

from trials.trace import DATA, FORWARD, STEP, Allocation, Span, read_trace, seconds_outside


def labelled(name, start, duration):
    return {"ph": "X", "cat": "user_annotation", "name": name, "ts": start, "dur": duration}


def memory(start, address, size, device_type=0):
    facts = {"Device Type": device_type, "Addr": address, "Bytes": size}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": start, "args": facts}


def test_labels_and_allocations_are_read_in_order_and_in_seconds():
    events = [
        memory(3_000_000, 7, -64),
        labelled(FORWARD, 1_000_000, 500_000),
        memory(2_000_000, 7, 64),
        labelled("of somebody else", 0, 1),
        {"ph": "M", "name": "process_name"},
    ]
    trace = read_trace(events, "cpu")
    assert trace.spans[FORWARD] == [Span(1.0, 1.5)] and trace.spans[DATA] == []
    assert trace.allocations == [Allocation(2.0, 7, 64), Allocation(3.0, 7, -64)]


def test_only_the_devices_own_allocations_count():
    events = [memory(1, 7, 64), memory(2, 8, 32, device_type=1)]
    assert [a.size for a in read_trace(events, "cpu").allocations] == [64]
    assert [a.size for a in read_trace(events, "cuda").allocations] == [32]


def test_kernels_are_when_a_gpu_computes_and_copies_are_not():
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1_000_000, "dur": 1_000_000}
    copy = {**kernel, "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 5_000_000}
    assert read_trace([copy, kernel], "cuda").computing == [Span(1.0, 2.0)]


@pytest.mark.parametrize(
    ("spans", "others", "seconds"),
    [
        ([(0, 10)], [], 10),
        ([(0, 10)], [(2, 4), (3, 5)], 7),
        ([(0, 4), (2, 6)], [(5, 9)], 5),
        ([(0, 4)], [(-1, 5)], 0),
        ([], [(0, 1)], 0),
    ],
)
def test_time_outside_other_spans_is_counted_once(spans, others, seconds):
    found = seconds_outside([Span(*s) for s in spans], [Span(*s) for s in others])
    assert found == pytest.approx(seconds)


def test_a_step_is_a_label_like_another():
    assert read_trace([labelled(STEP, 0, 1_000_000)], "cpu").spans[STEP] == [Span(0.0, 1.0)]
