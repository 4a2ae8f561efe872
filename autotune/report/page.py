"""A study as one HTML page that needs no network. Pure."""

from collections.abc import Sequence
from datetime import datetime
from html import escape

from autotune.figures import shown_bytes, shown_number, shown_usd
from autotune.front import pareto_front, recommend
from autotune.prices.flips_picture import draw_sensitivity
from autotune.prices.savings import savings_of
from autotune.prices.sensitivity import analyse
from autotune.records import StudyRecord, TrialRecord
from autotune.report.plots import SCRIPT, library, planes, plots_json
from autotune.summary import against_baseline, baseline_of, short_reason, tally
from trials.codec import to_plain

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1100px; padding: 0 16px;
  color: #222; background: #fff; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100%; font-size: 14px }
th, td { text-align: left; vertical-align: top; padding: 4px 6px; border-bottom: 1px solid #ccc }
section > svg { max-width: 100%; height: auto }
.plot { width: 100% }
@media (max-width: 600px) { table { font-size: 11px } th, td { padding: 2px 3px } }
"""
NONE = "-"


def draw_report(study: StudyRecord, trials: Sequence[TrialRecord], written_at: datetime) -> str:
    """Return the page.

    Args:
        study: To report on.
        trials: All of its trials, with at least one on the front.
        written_at: UTC.
    """
    objectives, direction = study.spec.objectives, study.facts.quality_direction
    front = pareto_front(trials, objectives, direction)
    chosen = recommend(front, objectives, direction)
    assert chosen is not None
    best = next(trial for trial in front if trial.number == chosen.number)
    plots = planes(study, trials, {trial.number for trial in front}, chosen.number)
    name = escape(study.spec.name)
    figures = "".join(
        f'<h3>{escape(plot["title"])}</h3><div class="plot" id="{plot["id"]}" role="img" '
        f'aria-label="{escape(plot["title"])}; the table of trials has the numbers"></div>'
        for plot in plots
    )
    sections = [
        _section("Recommended", f"<p>Trial {best.number}, {escape(chosen.reason)}.</p>"),
        _section("Base against best", _base(study, trials, best)),
        _section("Front", figures + _trials_table(study, trials, {t.number for t in front})),
        _section("Sensitivity to prices", _sensitivity(study, trials)),
        _section("What the search cost", _cost(study, trials)),
        _section("Environment", _facts_table(to_plain(study.environment))),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>Study {name}</title><style>{STYLE}</style>'
        f"<script>{library()}</script></head><body><main><h1>Study {name}</h1>"
        f"<p>Workload {escape(study.spec.workload)}; begun {study.created_at:%Y-%m-%d %H:%M} UTC, "
        f"written {written_at:%Y-%m-%d %H:%M} UTC; prices: {escape(study.spec.rates.label)}.</p>"
        f"{''.join(sections)}</main>"
        f'<script type="application/json" id="plots">{plots_json(plots)}</script>'
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _base(study: StudyRecord, trials: Sequence[TrialRecord], best: TrialRecord) -> str:
    base = baseline_of(trials, study)
    if base is None:
        return "<p>The study has no baseline with a result.</p>"
    words = against_baseline(best, base, study.spec.memory_budget_bytes)
    savings = savings_of(best, base) if base.is_feasible else None
    saved = "" if savings is None else f" Saved {savings}."
    return f"<p>{escape(words[0].upper() + words[1:])}.{escape(saved)}</p>"


def _trials_table(study: StudyRecord, trials: Sequence[TrialRecord], front: set[int]) -> str:
    rows = []
    for trial in trials:
        scores = trial.scores
        memory = None if trial.measurement is None else trial.measurement.memory
        reason = short_reason(trial, study.spec.memory_budget_bytes)
        rows.append(
            [
                f"{trial.number}{' (front)' if trial.number in front else ''}",
                str(trial.config),
                _number(scores.cost_usd_per_million_samples),
                _number(scores.throughput_samples_per_second),
                _number(scores.quality),
                NONE if memory is None else shown_bytes(memory.peak_device_bytes),
                f"{trial.outcome or trial.state}{f': {reason}' if reason else ''}",
            ]
        )
    quality = study.facts.quality_name
    columns = ["Trial", "Config", "$/M samples", "samples/s", quality, "Peak memory", "Outcome"]
    return f"<h3>Trials</h3>{_table(columns, rows)}"


def _number(value: float | None) -> str:
    return NONE if value is None else shown_number(value)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _sensitivity(study: StudyRecord, trials: Sequence[TrialRecord]) -> str:
    priced = [trial for trial in trials if trial.is_feasible and trial.is_measured]
    if not priced:
        return "<p>No trial that fits was measured, so that none has a price.</p>"
    found = analyse(priced, study.spec.rates, study.facts.quality_direction)
    rows = [
        [
            str(each.component),
            f"{float(reign.start):.4g}",
            "any" if reign.end is None else f"{float(reign.end):.4g}",
            str(reign.line.number),
        ]
        for each in found
        for reign in each.reigns
    ]
    title = f"Cheapest config of {study.spec.name}"
    picture = draw_sensitivity(found, title=title, subtitle=study.spec.rates.label)
    return picture + _table(["Price of", "from x", "to x", "Cheapest trial"], rows)


def _cost(study: StudyRecord, trials: Sequence[TrialRecord]) -> str:
    worked, rates = study.worked, study.spec.rates
    usd = worked.device_seconds * rates.device_usd_per_hour / 3600
    return (
        f"<p>{len(trials)} trials ({escape(tally(trials))}) in "
        f"{shown_number(worked.wall_seconds)} s of wall time and "
        f"{shown_number(worked.device_seconds)} s of device time, {shown_usd(usd)} at the device "
        f"rate of {escape(rates.label)}.</p>"
    )


def _facts_table(facts: dict[str, object]) -> str:
    return _table(["What", "Value"], [[name, str(value)] for name, value in facts.items()])
