"""Costs over the multiplier of a price as a picture: who is cheapest where. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from math import ceil

from autotune.prices.sensitivity import Line, Reign, Sensitivity
from trials.svg import MIDDLE, RIGHT_ALIGNED, canvas, decimal_step, line, text

WIDTH, PANEL, HEAD = 960, 290, 64
LEFT, RIGHT, TOP, BOTTOM = 86, 250, 34, 56
"""Margins within a panel; who wins where stands to the right."""
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, PANEL - TOP - BOTTOM
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9")
"""Okabe and Ito's, which colour-blind people tell apart."""
LEAST_END = 2.0
BEYOND_LAST_FLIP = 1.25
HEADROOM = 1.5
"""How much higher than the costliest winner the axis goes, in shares of its cost."""
MOST_LOSERS = 40
"""Lines drawn of trials that never win."""
ROW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where a panel's axes lie.

    Attributes:
        top_y: Upper edge of the plot.
        end: Largest multiplier.
        top: Largest cost, in US dollars per million samples.
    """

    top_y: float
    end: float
    top: float

    def place(self, multiplier: float, usd: float) -> tuple[float, float]:
        """Return where a cost at a multiplier lies in the picture."""
        x = LEFT + PLOT_WIDTH * multiplier / self.end
        return x, self.top_y + PLOT_HEIGHT * (1 - usd / self.top)


def draw_sensitivity(found: Sequence[Sensitivity], *, title: str, subtitle: str) -> str:
    """Return a picture with a panel for each component.

    Args:
        found: To draw.
        title: What is shown.
        subtitle: Of what, at which prices of which day.
    """
    parts = [
        text(LEFT, 26, title, 'font-size="17" font-weight="bold"'),
        text(LEFT, 46, subtitle, 'fill="#555"'),
    ]
    for index, sensitivity in enumerate(found):
        parts += _panel(sensitivity, HEAD + index * PANEL)
    return canvas(WIDTH, HEAD + PANEL * len(found), parts)


def to_page(svg: str, title: str) -> str:
    """Return a picture as an HTML page that needs nothing else."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title>"
        "<style>svg { max-width: 100%; height: auto }</style></head>\n"
        f"<body>\n{svg}</body></html>\n"
    )


def _panel(found: Sensitivity, y: float) -> Iterator[str]:
    frame = _frame(found, y + TOP)
    winners = [reign.line for reign in found.reigns]
    losers = [
        each for each in found.lines if each not in winners and float(each.fixed) < frame.top
    ][:MOST_LOSERS]
    yield text(LEFT, y + 22, f"price of {found.component}", 'font-weight="bold"')
    yield from _axes(frame)
    yield line(frame.place(1, 0), frame.place(1, frame.top), 'stroke="#888" stroke-dasharray="4"')
    for loser in losers:
        yield _drawn(loser, frame, 0.0, frame.end, 'stroke="#ccc"')
    for index, reign in enumerate(found.reigns):
        yield from _reign(reign, frame, index, found.paid(reign.line))


def _frame(found: Sensitivity, top_y: float) -> Frame:
    last = float(found.flips[-1]) if found.flips else 0.0
    end = _rounded_up(max(LEAST_END, last * BEYOND_LAST_FLIP))
    costliest = max(float(reign.line.at(Fraction(end))) for reign in found.reigns)
    return Frame(top_y=top_y, end=end, top=_rounded_up(costliest * HEADROOM or 1.0))


def _rounded_up(number: float) -> float:
    step = decimal_step(number)
    return ceil(number / step) * step


def _axes(frame: Frame) -> Iterator[str]:
    step = decimal_step(frame.top) * 2
    for count in range(int(frame.top / step + 1e-9) + 1):
        x, y = frame.place(0, count * step)
        yield line((x, y), (x + PLOT_WIDTH, y), 'stroke="#eee"')
        yield text(x - 8, y + 4, f"{count * step:.4g}", RIGHT_ALIGNED)
    yield line(frame.place(0, 0), frame.place(frame.end, 0), 'stroke="#222"')
    step = decimal_step(frame.end)
    for count in range(int(frame.end / step + 1e-9) + 1):
        x, y = frame.place(count * step, 0)
        yield line((x, y), (x, y + 5), 'stroke="#222"')
        yield text(x, y + 19, f"{count * step:.4g}", MIDDLE)
    x, y = frame.place(frame.end / 2, 0)
    yield text(x, y + 38, "multiplier of this price", MIDDLE)
    x, y = frame.place(0, frame.top / 2)
    yield f'<g transform="translate(22 {y:.1f}) rotate(-90)">'
    yield text(0, 0, "US dollars per million samples", MIDDLE)
    yield "</g>"


def _reign(reign: Reign, frame: Frame, index: int, paid: str | None) -> Iterator[str]:
    colour = COLOURS[index % len(COLOURS)]
    end = frame.end if reign.end is None else float(reign.end)
    yield _drawn(reign.line, frame, 0.0, frame.end, f'stroke="{colour}" stroke-width="1"')
    yield _drawn(reign.line, frame, float(reign.start), end, f'stroke="{colour}" stroke-width="4"')
    if reign.start:
        x, y = frame.place(float(reign.start), float(reign.line.at(reign.start)))
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="white" stroke="#222"/>'
    x, y = WIDTH - RIGHT + 16, frame.top_y + 12 + ROW * index
    yield f'<rect x="{x}" y="{y - 9:.1f}" width="14" height="8" fill="{colour}"/>'
    kind = "" if paid is None else f", {paid}"
    yield text(x + 20, y, f"trial {reign.line.number}{kind}, {_span(reign)}")


def _span(reign: Reign) -> str:
    if reign.end is None:
        return f"from x{float(reign.start):.4g} on"
    return f"x{float(reign.start):.4g} to x{float(reign.end):.4g}"


def _drawn(each: Line, frame: Frame, start: float, end: float, style: str) -> str:
    """Return a line from one multiplier to another, cut where it leaves the plot."""
    fixed, slope = float(each.fixed), float(each.slope)
    if fixed + slope * end > frame.top and slope > 0:
        end = max(start, (frame.top - fixed) / slope)
    start_usd, end_usd = (min(fixed + slope * at, frame.top) for at in (start, end))
    return line(frame.place(start, start_usd), frame.place(end, end_usd), style)
