"""Which kind of memory a block is, and how much of each there is when."""

import pytest

from trials.timeline import KINDS, Held, last_step
from trials.trace import BACKWARD, FORWARD, LABELS, STEP, Allocation, Span, Trace

STEPS = ((0, 10), (10, 20))
"""Each: forward pass from 1 to 4, backward pass from 5 to 8 seconds of it."""
PARAMETER, STATE, UNKNOWN = 1, 2, 3


def make_trace(*changes, steps=STEPS):
    spans = {label: [] for label in LABELS}
    for start, end in steps:
        spans[STEP].append(Span(start, end))
        spans[FORWARD].append(Span(start + 1, start + 4))
        spans[BACKWARD].append(Span(start + 5, start + 8))
    return Trace(spans=spans, computing=[], allocations=[Allocation(*c) for c in changes])


def held(**sizes):
    kinds = {PARAMETER: "parameters", STATE: "optimizer_state"}
    return Held(sizes={"parameters": 100, "optimizer_state": 200, **sizes}, kinds=kinds)


def at(timeline, seconds):
    moment = [m for m in timeline.moments if m.seconds <= seconds][-1]
    return dict(zip(KINDS, moment.sizes, strict=True))


def kind_of(*changes, gradients=({}, {}), seconds=3.5):
    sizes = at(last_step(make_trace(*changes), held(), gradients), seconds)
    return [kind for kind in KINDS if sizes[kind] != {**held().sizes}.get(kind, 0)]


def test_what_is_held_stays_where_nothing_happens():
    timeline = last_step(make_trace(), held(temporary=7), [{}] * 2)
    assert at(timeline, 5) == {**dict.fromkeys(KINDS, 0), **held(temporary=7).sizes}
    assert (timeline.seconds, timeline.peak.total) == (10, 307)


def test_what_a_forward_pass_leaves_behind_is_an_activation():
    assert kind_of((12, 50, 8), (16, 50, -8)) == ["activations"]


def test_what_a_forward_pass_frees_itself_is_temporary():
    assert kind_of((12, 50, 8), (13.8, 50, -8)) == ["temporary"]


def test_what_is_made_after_a_forward_pass_is_no_activation():
    assert kind_of((14.5, 50, 8), (19, 50, -8), seconds=4.7) == ["temporary"]


def test_a_gradient_is_known_by_its_address_at_the_end_of_its_backward_pass():
    made = [(16, 50, 8), (19, 50, -8)]
    ours, others = [{}, {50: 8}], [{50: 8}, {}]
    assert kind_of(*made, gradients=ours, seconds=7) == ["gradients"]
    assert kind_of(*made, gradients=others, seconds=7) == ["temporary"]


def test_an_address_that_a_gradient_takes_over_was_something_else_before():
    changes = [(15.5, 50, 8), (16, 50, -8), (16.5, 50, 8), (19, 50, -8)]
    timeline = last_step(make_trace(*changes), held(), [{}, {50: 8}])
    assert at(timeline, 5.7)["temporary"] == at(timeline, 7)["gradients"] == 8
    assert at(timeline, 7)["temporary"] == 0


def test_memory_of_the_first_step_that_stays_is_in_the_second():
    assert kind_of((2, 50, 8), seconds=0) == ["activations"]


@pytest.mark.parametrize(
    ("address", "kind"), [(PARAMETER, "parameters"), (STATE, "optimizer_state")]
)
def test_what_was_there_before_and_is_freed_is_missed_from_its_kind(address, kind):
    timeline = last_step(make_trace((12, address, -60)), held(), [{}] * 2)
    assert at(timeline, 0)[kind] - at(timeline, 3)[kind] == 60


def test_what_was_there_and_is_of_no_known_kind_was_something_else():
    timeline = last_step(make_trace((12, UNKNOWN, -60)), held(), [{}] * 2)
    assert (at(timeline, 0)["temporary"], at(timeline, 3)["temporary"]) == (60, 0)


def test_times_count_from_the_start_of_the_last_step():
    timeline = last_step(make_trace((12, 50, 8)), held(), [{}] * 2)
    assert [moment.seconds for moment in timeline.moments] == [0, 2]
    assert timeline.phases[FORWARD] == [Span(1, 4)]


def test_a_buffer_that_gradients_are_written_to_is_theirs_all_the_time():
    timeline = last_step(make_trace(), held(temporary=70), [{50: 60}, {50: 60}])
    assert (at(timeline, 0)["gradients"], at(timeline, 0)["temporary"]) == (60, 10)


def test_what_is_known_to_be_something_else_is_no_buffer_of_gradients():
    timeline = last_step(make_trace(), held(temporary=70), [{STATE: 200}, {}])
    assert (at(timeline, 0)["gradients"], at(timeline, 0)["temporary"]) == (0, 70)


def test_what_becomes_a_gradient_in_a_later_backward_pass_is_one():
    timeline = last_step(make_trace((6, 50, 8)), held(), [{}, {50: 8}])
    assert (at(timeline, 0)["gradients"], at(timeline, 9)["gradients"]) == (8, 8)
