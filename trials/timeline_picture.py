"""A timeline of memory as a picture: one SVG file that needs nothing else. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import floor, log10

from trials.svg import MIDDLE, RIGHT_ALIGNED, canvas, decimal_step, line, text
from trials.timeline import KINDS, Moment, Timeline
from trials.trace import BACKWARD, DATA, DISK, FORWARD, OPTIMIZER

WIDTH, HEIGHT = 960, 540
LEFT, RIGHT, TOP, BOTTOM = 78, 24, 92, 104
"""Margins around the plot."""
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
COLOURS = {
    "parameters": "#0072b2",
    "optimizer_state": "#56b4e9",
    "gradients": "#e69f00",
    "activations": "#009e73",
    "temporary": "#b0b0b0",
}
"""Okabe and Ito's, which colour-blind people tell apart."""
NAMES = {kind: kind.replace("_", " ") for kind in KINDS} | {"temporary": "everything else"}
PHASES = {
    DATA: ("#f6d6d6", "data"),
    FORWARD: ("#e8f3ee", "forward"),
    BACKWARD: ("#fdf3e0", "backward"),
    OPTIMIZER: ("#e4eef8", "optimizer"),
    DISK: ("#e9ddf2", "disk"),
}
BAND = 18
"""Height of the band that names the phases."""
LETTER = 6.2
"""Width of a letter, on average."""
BYTE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def draw_timeline(timeline: Timeline, *, title: str, subtitle: str) -> str:
    """Return a picture of memory over a step, stacked by kind.

    Args:
        timeline: To draw.
        title: What is shown.
        subtitle: Of what, and how it was measured.
    """
    peak = timeline.peak
    top, byte_step, (byte_size, byte_unit) = _scale(peak.total * 1.05, BYTE_UNITS, base=2)
    _, time_step, (time_size, time_unit) = _scale(timeline.seconds, TIME_UNITS, base=10)
    columns = _columns(timeline)
    parts = [
        text(LEFT, 28, title, 'font-size="17" font-weight="bold"'),
        text(LEFT, 48, subtitle, 'fill="#555"'),
        *_phase_band(timeline),
        *_byte_axis(top, byte_step, byte_size),
        *(_area(columns, index, top) for index in range(len(KINDS))),
        *_time_axis(timeline.seconds, time_step, time_size),
        text(LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 38, f"time ({time_unit})", MIDDLE),
        f'<g transform="translate(20 {TOP + PLOT_HEIGHT / 2}) rotate(-90)">'
        f"{text(0, 0, f'allocated on the device ({byte_unit})', MIDDLE)}</g>",
        *_peak_mark(peak, timeline.seconds, top, f"{peak.total / byte_size:,.1f} {byte_unit}"),
        *_legend(peak, byte_size, byte_unit),
    ]
    return canvas(WIDTH, HEIGHT, parts)


def _columns(timeline: Timeline) -> list[tuple[float, Moment]]:
    """Return what each column of pixels shows: of the moments in it, the one with most."""
    starts = [moment.seconds for moment in timeline.moments]
    columns = []
    for column in range(PLOT_WIDTH):
        start, end = (timeline.seconds * at / PLOT_WIDTH for at in (column, column + 1))
        first = bisect_right(starts, start) - 1
        last = max(first + 1, bisect_right(starts, end))
        shown = max(timeline.moments[max(0, first) : last], key=lambda moment: moment.total)
        columns.append((float(LEFT + column), shown))
    return columns


def _area(columns: Sequence[tuple[float, Moment]], index: int, top: float) -> str:
    upper = [(x, _height(sum(m.sizes[: index + 1]), top)) for x, m in columns]
    lower = [(x, _height(sum(m.sizes[:index]), top)) for x, m in columns]
    corners = [*_stairs(upper), *reversed(list(_stairs(lower)))]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon points="{points}" fill="{COLOURS[KINDS[index]]}"/>'


def _stairs(line: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the corners of a line that keeps its height over each column."""
    height = None
    for x, y in line:
        if y != height:
            if height is not None:
                yield x, height
            yield x, y
            height = y
    yield line[-1][0] + 1, line[-1][1]


def _phase_band(timeline: Timeline) -> Iterator[str]:
    for label, (colour, name) in PHASES.items():
        y = TOP if label == DISK else TOP - BAND  # a wait for a disk lies within another phase
        for span in timeline.phases.get(label, ()):
            start, end = (_across(at, timeline.seconds) for at in (span.start, span.end))
            width = max(0.0, min(end, LEFT + PLOT_WIDTH) - start)
            height = TOP + PLOT_HEIGHT - y
            yield (
                f'<rect x="{start:.1f}" y="{y}" width="{width:.1f}" height="{height}" '
                f'fill="{colour}"/>'
            )
            if width > LETTER * len(name):
                yield text(start + width / 2, y + 13, name, f'{MIDDLE} fill="#444"')


def _byte_axis(top: float, step: float, size: float) -> Iterator[str]:
    for count in range(floor(top / step) + 1):
        y = _height(count * step, top)
        yield line((LEFT, y), (LEFT + PLOT_WIDTH, y), 'stroke="#ccc" stroke-width="0.7"')
        yield text(LEFT - 8, y + 4, f"{count * step / size:,.4g}", RIGHT_ALIGNED)


def _time_axis(seconds: float, step: float, size: float) -> Iterator[str]:
    floor_y = TOP + PLOT_HEIGHT
    yield line((LEFT, floor_y), (LEFT + PLOT_WIDTH, floor_y), 'stroke="#222"')
    for count in range(floor(seconds / step) + 1):
        x = _across(count * step, seconds)
        yield line((x, floor_y), (x, floor_y + 5), 'stroke="#222"')
        yield text(x, floor_y + 19, f"{count * step / size:,.4g}", MIDDLE)


def _peak_mark(peak: Moment, seconds: float, top: float, shown: str) -> Iterator[str]:
    x, y = _across(peak.seconds, seconds), _height(peak.total, top)
    side = 'text-anchor="end"' if x > LEFT + PLOT_WIDTH / 2 else 'text-anchor="start"'
    gap = -8 if x > LEFT + PLOT_WIDTH / 2 else 8
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="none" stroke="#c00"/>'
    yield text(x + gap, y - 5, f"peak {shown}", f'{side} fill="#c00" font-weight="bold"')


def _legend(peak: Moment, size: float, unit: str) -> Iterator[str]:
    y = HEIGHT - 34
    x = float(RIGHT)
    yield text(x, y, "at the peak:", 'fill="#555"')
    x += 76
    for kind, held in zip(KINDS, peak.sizes, strict=True):
        words = f"{NAMES[kind]} {held / size:,.1f} {unit}"
        yield f'<rect x="{x:.1f}" y="{y - 10}" width="11" height="11" fill="{COLOURS[kind]}"/>'
        yield text(x + 16, y, words)
        x += 28 + LETTER * len(words)


def _scale(
    largest: float, units: Sequence[tuple[float, str]], base: int
) -> tuple[float, float, tuple[float, str]]:
    """Return the end of an axis, the distance of its ticks, and the unit they are written in."""
    size, name = next((u for u in units if largest >= u[0]), units[-1])
    count = max(largest / size, 1e-9)
    if base == 2 and count > 8:
        step = 2.0 ** floor(log10(count / 4) / log10(2))
    else:
        step = decimal_step(count)
    ticks = -(-count // step)
    return ticks * step * size, step * size, (size, name)


def _across(at: float, seconds: float) -> float:
    return LEFT + PLOT_WIDTH * at / seconds


def _height(size: float, top: float) -> float:
    return TOP + PLOT_HEIGHT * (1 - size / top)
