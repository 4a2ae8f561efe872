"""Lists as a person or a program reads them: a table, one JSON document, or CSV."""

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune.cli.options import Output
from autotune.records import Objective, StudyRecord, StudySummary, TrialRecord
from trials.measurement import Measurement

MIB = 1024**2
NONE = "-"
LEFT = {
    *("", "config", "outcome", "reason", "study", "workload", "state", "kind"),
    *("check", "status", "found", "remedy", "source"),
}
"""Columns of words; the others hold numbers."""


def write_documents(documents: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Write documents as one JSON list, or as CSV with nested keys joined by dots."""
    if output == Output.JSON:
        sys.stdout.write(json.dumps(list(documents), indent=2) + "\n")
        return
    rows = [_flat(document) for document in documents]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    sys.stdout.write(text.getvalue())


def write_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table to standard output, as wide as its content where nobody watches."""
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = 200
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in LEFT else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # as plain text: reasons hold brackets
    console.print(table)


def front_table(study: StudyRecord, front: Sequence[TrialRecord], recommended: int | None) -> None:
    """Write the front, cheapest first, with a mark at the recommended point."""
    noise = next((t.scores.quality_half_width for t in front), None)
    quality = study.facts.quality_name if Objective.QUALITY in study.spec.objectives else None
    rows = [
        [
            "*" if trial.number == recommended else "",
            str(trial.number),
            str(trial.config),
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
        sys.stdout.write(f"Noise of {quality}: ±{noise:.2g} (95 %, one run)\n")


def trials_table(study: StudyRecord, trials: Sequence[TrialRecord]) -> None:
    """Write all trials by number."""
    rows = [
        [
            str(trial.number),
            str(trial.config),
            str(trial.outcome or trial.state).replace("_", " "),
            str(trial.source),
            _number(trial.scores.cost_usd_per_million_samples),
            _number(trial.scores.throughput_samples_per_second),
            _number(trial.scores.quality),
            _peak(trial.measurement),
            trial.reason.partition("\n")[0][:90],
        ]
        for trial in trials
    ]
    quality = study.facts.quality_name
    columns = ["trial", "config", "outcome", "source", "$/M samples", "samples/s", quality]
    write_table(f"Trials of {study.spec.name}", [*columns, "peak MiB", "reason"], rows)


def studies_table(studies: Sequence[StudySummary]) -> None:
    """Write one line per study."""
    rows = [
        [
            s.name,
            s.workload,
            str(s.state),
            f"{s.created_at:%Y-%m-%d %H:%M}",
            str(s.num_trials),
            str(s.num_completed),
            str(s.num_out_of_memory),
            s.stop_reason.partition("\n")[0][:80],
        ]
        for s in studies
    ]
    columns = ["study", "workload", "state", "begun (UTC)", "trials", "completed"]
    write_table("Studies", [*columns, "out of memory", "reason"], rows)


def mib(size: int | None) -> str:
    """Return bytes as MiB, to a tenth."""
    return NONE if size is None else f"{size / MIB:,.1f}"


def _peak(measurement: Measurement | None) -> str:
    memory = None if measurement is None else measurement.memory
    return NONE if memory is None else mib(memory.peak_device_bytes)


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.4g}"


def _plus_minus(value: float | None, half_width: float) -> str:
    return NONE if value is None else f"{value:.4g} ±{half_width:.2g}"


def _flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
