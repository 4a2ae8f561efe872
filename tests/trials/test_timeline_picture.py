"""The picture of a timeline: a whole SVG whose areas are as high as the memory they stand for."""

from xml.etree import ElementTree

import pytest

from trials.timeline import KINDS, Moment, Timeline
from trials.timeline_picture import COLOURS, PLOT_HEIGHT, draw_timeline
from trials.trace import BACKWARD, FORWARD, Span

MIB = 2**20
SPACE = "{http://www.w3.org/2000/svg}"


def make_timeline(unit=MIB, seconds=0.1):
    moments = [
        Moment(0.0, (4 * unit, 8 * unit, 0, 0, 0)),
        Moment(0.3 * seconds, (4 * unit, 8 * unit, 0, 6 * unit, unit)),
        Moment(0.7 * seconds, (4 * unit, 8 * unit, 4 * unit, 0, 0)),
    ]
    phases = {
        FORWARD: [Span(0.1 * seconds, 0.5 * seconds)],
        BACKWARD: [Span(0.5 * seconds, 0.9 * seconds)],
    }
    return Timeline(moments=moments, seconds=seconds, phases=phases)


def drawn(timeline, title="Memory", subtitle="a < b & c"):
    return ElementTree.fromstring(draw_timeline(timeline, title=title, subtitle=subtitle))


def words(picture):
    return [text.text for text in picture.iter(f"{SPACE}text")]


def area(picture, kind):
    polygons = picture.iter(f"{SPACE}polygon")
    (found,) = (p for p in polygons if p.get("fill") == COLOURS[kind])
    return [tuple(map(float, corner.split(","))) for corner in found.get("points").split()]


@pytest.mark.parametrize(
    ("unit", "seconds", "shown"),
    [
        (MIB, 0.1, {"allocated on the device (MiB)", "time (ms)", "peak 19.0 MiB"}),
        (2**30, 4.0, {"allocated on the device (GiB)", "time (s)", "peak 19.0 GiB"}),
        (2**10, 4e-4, {"allocated on the device (KiB)", "time (µs)", "peak 19.0 KiB"}),
    ],
)
def test_axes_and_peak_have_the_unit_that_suits_their_size(unit, seconds, shown):
    assert shown <= set(words(drawn(make_timeline(unit, seconds))))


def test_a_legend_names_every_kind_with_its_size_at_the_peak():
    legend = words(drawn(make_timeline()))
    expected = {
        *("parameters 4.0 MiB", "optimizer state 8.0 MiB", "gradients 0.0 MiB"),
        *("activations 6.0 MiB", "everything else 1.0 MiB"),
    }
    assert expected <= set(legend)


def test_phases_are_named_and_signs_of_xml_are_escaped():
    assert {"forward", "backward", "a < b & c"} <= set(words(drawn(make_timeline())))


def test_areas_are_stacked_and_as_high_as_their_memory():
    picture = drawn(make_timeline())
    heights = {kind: [y for _, y in area(picture, kind)] for kind in KINDS}
    per_mib = (max(heights["parameters"]) - min(heights["parameters"])) / 4
    assert 19 * per_mib < PLOT_HEIGHT < 40 * per_mib
    assert max(heights["optimizer_state"]) == min(heights["parameters"])
    top = min(heights["temporary"])
    assert max(heights["parameters"]) - top == pytest.approx(19 * per_mib, abs=0.5)


def test_a_peak_that_is_shorter_than_a_pixel_is_drawn():
    brief = make_timeline()
    spike = [Moment(0.05, (4 * MIB, 8 * MIB, 0, 20 * MIB, 0)), Moment(0.050001, (0, 0, 0, 0, 0))]
    moments = sorted([*brief.moments, *spike], key=lambda moment: moment.seconds)
    picture = drawn(Timeline(moments=moments, seconds=0.1, phases={}))
    per_mib = max(y for _, y in area(picture, "parameters")) / 32
    ys = [y for _, y in area(picture, "activations")]
    assert max(ys) - min(ys) > 10 * per_mib and "peak 32.0 MiB" in words(picture)
