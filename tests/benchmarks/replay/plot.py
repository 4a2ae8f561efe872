"""The share of the true hypervolume after each trial, as a picture with a panel for each table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trials.svg import MIDDLE, RIGHT_ALIGNED, canvas, line, text

COLUMNS, PANEL_WIDTH, PANEL_HEIGHT, HEAD = 2, 470, 300, 92
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 46
PLOT_WIDTH, PLOT_HEIGHT = PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM
TRIALS = 60
"""Shown on the axis."""
COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#222222", "#999933"),
    *("#882255", "#888888"),
)
LEGEND_WIDTH, LEGENDS_PER_ROW = 180, 5


def drawn(results: Mapping[str, Any]) -> str:
    """Return the picture of what ``compared`` found: medians over seeds."""
    samplers = list(dict.fromkeys(name for found in results.values() for name in found["curves"]))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(samplers)}
    rows = -(-len(results) // COLUMNS)
    parts = [
        text(16, 26, "Share of the true hypervolume after each trial", 'font-size="17"'),
        *_legend(colours),
    ]
    for place, (name, found) in enumerate(results.items()):
        row, column = divmod(place, COLUMNS)
        parts += _panel(name, found, colours, (column * PANEL_WIDTH, HEAD + row * PANEL_HEIGHT))
    return canvas(COLUMNS * PANEL_WIDTH, HEAD + rows * PANEL_HEIGHT, parts)


def _legend(colours: Mapping[str, str]) -> Iterator[str]:
    for place, (name, colour) in enumerate(colours.items()):
        row, column = divmod(place, LEGENDS_PER_ROW)
        x, y = 16 + column * LEGEND_WIDTH, 50 + row * 20
        yield f'<rect x="{x}" y="{y - 9}" width="16" height="8" fill="{colour}"/>'
        yield text(x + 22, y, name)


def _panel(
    name: str, found: Mapping[str, Any], colours: Mapping[str, str], corner: tuple[int, int]
) -> Iterator[str]:
    yield text(corner[0] + LEFT, corner[1] + 22, name, 'font-weight="bold"')
    yield from _axes(corner)
    for sampler, curves in found["curves"].items():
        points = [_place(corner, n + 1, s) for n, s in enumerate(_median(curves)[:TRIALS])]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield (
            f'<polyline points="{path}" fill="none" stroke="{colours[sampler]}" '
            'stroke-width="2" stroke-linejoin="round"/>'
        )


def _axes(corner: tuple[int, int]) -> Iterator[str]:
    for percent in (0, 25, 50, 75, 95, 100):
        x, y = _place(corner, 0, percent / 100)
        style = 'stroke="#999" stroke-dasharray="4"' if percent == 95 else 'stroke="#eee"'
        yield line((x, y), (x + PLOT_WIDTH, y), style)
        if percent != 100:
            yield text(x - 6, y + 4, f"{percent} %", RIGHT_ALIGNED)
    for trials in range(0, TRIALS + 1, 10):
        x, y = _place(corner, trials, 0.0)
        yield line((x, y), (x, y + 4), 'stroke="#222"')
        yield text(x, y + 17, str(trials), MIDDLE)
    x, y = _place(corner, TRIALS / 2, 0.0)
    yield text(x, y + 34, "trials", MIDDLE)


def _place(corner: tuple[int, int], trials: float, share: float) -> tuple[float, float]:
    x = corner[0] + LEFT + PLOT_WIDTH * trials / TRIALS
    return x, corner[1] + TOP + PLOT_HEIGHT * (1 - share)


def _median(curves: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the median curve; one that ended stays where it was."""
    longest = max(len(curve) for curve in curves)
    padded = [np.pad(c, (0, longest - len(c)), mode="edge") for c in curves]
    median: NDArray[np.float64] = np.median(padded, axis=0)
    return median
