"""Lists as a person or a program reads them: a table, one JSON document, or CSV."""

import csv
import io
import json
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from autotune.cli.options import Output
from autotune.documents import flattened
from autotune.figures import shown_number
from autotune.records import Objective, Source, StudyRecord, StudySummary, TrialRecord
from autotune.reruns import Rerun
from autotune.summary import short_reason, shortened, shown_state, trial_state
from trials.measurement import Measurement, Outcome

MIB = 1024**2
NONE = "-"
LEFT = {
    *("", "config", "outcome", "reason", "study", "workload", "state", "kind"),
    *("where", "operator", "check", "status", "found", "remedy", "source"),
}
"""Columns of words; the others hold numbers."""
GAP = 2
"""Spaces between columns."""
NARROW = 16
"""Width to which words are wrapped where the terminal has no room."""


def write_documents(
    documents: Sequence[Mapping[str, Any]], output: Output, columns: Sequence[str] = ()
) -> None:
    """Write documents as one JSON list, or as CSV with nested keys joined by dots.

    Args:
        documents: To write.
        output: JSON or CSV.
        columns: Of the CSV, also where no document has them; those of the documents follow.
    """
    if output == Output.JSON:
        sys.stdout.write(json.dumps(list(documents), indent=2) + "\n")
        return
    rows = [flattened(document) for document in documents]
    found = dict.fromkeys([*columns, *(column for row in rows for column in row)])
    text = io.StringIO()
    writer = csv.DictWriter(text, _leaves(found), restval="", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    sys.stdout.write(text.getvalue())


def write_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    widest: int | None = None,
) -> None:
    """Write a table to standard output.

    In a terminal words are wrapped to its width. Numbers never are: a terminal that is too
    narrow even so gets lines that are longer than it.

    Args:
        title: Of the table.
        columns: Their names.
        rows: Their cells.
        widest: Width to wrap to where nobody watches; None for as wide as the content.
    """
    console = Console(file=sys.stdout)
    widths = _widths(columns, rows, console.width if console.is_terminal else widest)
    console.width = max(sum(widths) + GAP * len(widths), cell_len(title))
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for name, width in zip(columns, widths, strict=True):
        justify: JustifyMethod = "left" if name in LEFT else "right"
        table.add_column(Text(name), justify=justify, width=width, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # as plain text: reasons hold brackets
    console.print(Text(title, style="italic"))
    console.print(table)


def front_table(study: StudyRecord, front: Sequence[TrialRecord], recommended: int | None) -> None:
    """Write the front, cheapest first, with a mark at the recommended point."""
    noise = next((t.scores.quality_half_width for t in front), None)
    has_quality = Objective.QUALITY in study.spec.objectives
    quality = _spaced(study.facts.quality_name) if has_quality else None
    rows = [
        [
            "*" if trial.number == recommended else "",
            str(trial.number),
            _config(trial, study),
            _plus_minus(trial.scores.cost_usd_per_million_samples, trial.scores.cost_half_width),
            _plus_minus(
                trial.scores.throughput_samples_per_second, trial.scores.throughput_half_width
            ),
            *([_number(trial.scores.quality)] if quality else []),
            _peak(trial.measurement),
        ]
        for trial in front
    ]
    columns = ["", "trial", "config", "$/M samples", "samples/s"]
    columns += [quality] if quality else []
    write_table(f"Front of {study.spec.name}", [*columns, "peak MiB"], rows)
    if quality and noise is not None:
        sys.stdout.write(
            f"Noise of {study.facts.quality_name}: ±{shown_number(noise, 2)} (95 %, one run)\n"
        )


def trials_table(
    study: StudyRecord,
    trials: Sequence[TrialRecord],
    is_driven: bool,
    reruns: Mapping[int, Rerun],
) -> None:
    """Write all trials by number.

    Args:
        study: Theirs.
        trials: To list.
        is_driven: Whether a living driver runs the study, and so the trials under way.
        reruns: What second runs said, by number of the trial.
    """
    rows = [
        [
            str(trial.number),
            _config(trial, study),
            _outcome(trial, is_driven),
            _number(trial.scores.cost_usd_per_million_samples),
            _number(trial.scores.throughput_samples_per_second),
            _number(trial.scores.quality),
            _peak(trial.measurement),
            _reason(trial, study, reruns.get(trial.number)),
        ]
        for trial in trials
    ]
    quality = _spaced(study.facts.quality_name)
    columns = ["trial", "config", "outcome", "$/M samples", "samples/s", quality]
    write_table(f"Trials of {study.spec.name}", [*columns, "peak MiB", "reason"], rows)


def studies_table(studies: Sequence[StudySummary], driven: Container[str]) -> None:
    """Write one line per study.

    Args:
        studies: To list.
        driven: Names of those that a living driver runs.
    """
    shown = {s.name: shown_state(s, s.name in driven) for s in studies}
    rows = [
        [
            s.name,
            s.workload,
            shown[s.name][0],
            f"{s.created_at:%Y-%m-%d %H:%M}",
            str(s.num_trials),
            str(s.num_completed),
            str(s.num_out_of_memory),
            shortened(shown[s.name][1]),
        ]
        for s in studies
    ]
    columns = ["study", "workload", "state", "begun (UTC)", "trials", "completed"]
    write_table("Studies", [*columns, "out of memory", "reason"], rows)


def mib(size: int | None) -> str:
    """Return bytes as MiB: to a tenth, or in two digits below one."""
    if size is None:
        return NONE
    return f"{size / MIB:,.1f}" if size >= MIB else shown_number(size / MIB, 2)


def _peak(measurement: Measurement | None) -> str:
    """Return the peak of a trial that completed: what another held when it broke is no peak."""
    if measurement is None or measurement.outcome != Outcome.COMPLETED:
        return NONE
    return NONE if measurement.memory is None else mib(measurement.memory.peak_device_bytes)


def _reason(trial: TrialRecord, study: StudyRecord, rerun: Rerun | None) -> str:
    if rerun is not None and rerun.objection:
        return shortened(f"a second run: {rerun.objection}")
    return short_reason(trial, study.spec.memory_budget_bytes)


def _config(trial: TrialRecord, study: StudyRecord) -> str:
    mark = " (baseline)" if trial.config == study.spec.baseline else ""
    return f"{trial.config}{mark}"


def _number(value: float | None) -> str:
    return NONE if value is None else shown_number(value)


def _plus_minus(value: float | None, half_width: float) -> str:
    return NONE if value is None else f"{shown_number(value)} ±{shown_number(half_width, 2)}"


def _outcome(trial: TrialRecord, is_driven: bool) -> str:
    ended = trial.outcome or trial_state(trial, is_driven)
    source = "" if trial.source == Source.RUN else f" ({trial.source})"
    return str(ended).replace("_", " ") + source


def _spaced(name: str) -> str:
    """Return a metric's name so that it can be wrapped over a column of narrow numbers."""
    return name.replace("_", " ")


def _leaves(columns: Iterable[str]) -> list[str]:
    """Return the columns without those that others are part of: a document left out is None."""
    names = list(columns)
    parents = {name[:end] for name in names for end, sign in enumerate(name) if sign == "."}
    return [name for name in names if name not in parents]


def _widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], available: int | None
) -> list[int]:
    """Return how wide to make each column.

    Args:
        columns: Their names.
        rows: Their cells.
        available: Width of the terminal; None to wrap nothing.
    """
    cells = [[name, *column] for name, *column in zip(columns, *rows, strict=True)]
    natural = [max(map(cell_len, column)) for column in cells]
    if available is None:
        return natural
    widths = [_least_width(column) for column in cells]
    spare = available - sum(widths) - GAP * len(widths)
    for _ in range(spare):
        missing = [full - width for full, width in zip(natural, widths, strict=True)]
        if max(missing) == 0:
            break
        widths[missing.index(max(missing))] += 1
    return widths


def _least_width(column: Sequence[str]) -> int:
    """Return the width below which a column would break a number, or words needlessly."""
    name, *cells = column
    unbroken = cells if name not in LEFT else []
    words = [word for text in column for word in text.split()]
    narrow = min(NARROW, max(map(cell_len, column)))
    longest = min(NARROW, max(map(cell_len, words), default=0))
    return max([longest, *([narrow] if name in LEFT else []), *map(cell_len, unbroken)])
