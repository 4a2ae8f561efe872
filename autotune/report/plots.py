"""The plots of a report, drawn by Plotly in the page. The door to Plotly."""

import json
from collections.abc import Sequence
from html import escape
from itertools import combinations
from typing import Any

from plotly.offline import get_plotlyjs

from autotune.objective import value_of
from autotune.records import Objective, StudyRecord, TrialRecord
from trials.measurement import Direction

GREY, BLUE, ORANGE = "#767676", "#0072b2", "#d55e00"
SCRIPT = """
for (const plot of JSON.parse(document.getElementById("plots").textContent)) {
  Plotly.newPlot(plot.id, plot.data, plot.layout, {responsive: true, displaylogo: false});
  new ResizeObserver(() => Plotly.Plots.resize(plot.id)).observe(document.getElementById(plot.id));
}
"""


def library() -> str:
    """Return Plotly's own script, so that the page needs no network."""
    return str(get_plotlyjs())


def plots_json(plots: Sequence[dict[str, Any]]) -> str:
    """Return plots as JSON that cannot end the script element that holds it."""
    return json.dumps(plots).replace("<", "\\u003c")


def planes(
    study: StudyRecord, trials: Sequence[TrialRecord], front: set[int], recommended: int | None
) -> list[dict[str, Any]]:
    """Return a plot for each pair of objectives in which some trial has both values.

    Args:
        study: To draw.
        trials: All of its trials.
        front: Numbers of those on the front.
        recommended: Number of the recommended trial; None for none.
    """
    found = []
    for across, up in combinations(Objective, 2):
        scored = [t for t in trials if None not in (value_of(t.scores, o) for o in (across, up))]
        if not scored:
            continue
        groups = [
            ("other trials", GREY, "circle", [t for t in scored if t.number not in front]),
            (
                "front",
                BLUE,
                "diamond",
                [t for t in scored if t.number in front and t.number != recommended],
            ),
            ("recommended", ORANGE, "star", [t for t in scored if t.number == recommended]),
        ]
        data = [_points(*group, across, up) for group in groups if group[3]]
        found.append(
            {
                "id": f"plane-{across}-{up}",
                "title": f"{across} and {up}".capitalize(),
                "data": data,
                "layout": _layout(label(across, study), label(up, study)),
            }
        )
    return found


def label(objective: Objective, study: StudyRecord) -> str:
    """Return what an objective is called on an axis, with its unit."""
    facts = study.facts
    better = "lower" if facts.quality_direction == Direction.MINIMIZE else "higher"
    quality = f"{facts.quality_name} ({better} is better)"
    return {
        Objective.COST: "USD per million samples",
        Objective.THROUGHPUT: "samples/s",
        Objective.QUALITY: escape(quality),
    }[objective]


def _points(
    name: str,
    colour: str,
    symbol: str,
    trials: Sequence[TrialRecord],
    across: Objective,
    up: Objective,
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [value_of(trial.scores, across) for trial in trials],
        "y": [value_of(trial.scores, up) for trial in trials],
        "text": [escape(f"trial {trial.number}: {trial.config}") for trial in trials],
        "marker": {"color": colour, "symbol": symbol, "size": 16 if symbol == "star" else 10},
    }


def _layout(across: str, up: str) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": across}, "automargin": True},
        "yaxis": {"title": {"text": up}, "automargin": True},
        "legend": {"orientation": "h", "y": 1.15},
        "margin": {"l": 20, "r": 10, "t": 30, "b": 20},
        "height": 380,
    }
