"""The command that walks the path to less memory."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from autotune.cli.options import Output
from autotune.cli.tables import NONE, mib, write_documents, write_table
from autotune.figures import shown_bytes, shown_number, shown_parameters
from autotune.playbook import Step, end_of
from autotune.playing import Walked, measure_path, predict_path

WIDEST = 150
"""Columns of the table where no terminal says how many there are: reasons are prose."""


def play_and_show(
    settings: Any, pins: Mapping[str, object], *, is_estimate: bool, output: Output, is_quiet: bool
) -> None:
    """Walk the path and show it.

    Args:
        settings: Of the command.
        pins: Knobs that no step may change.
        is_estimate: Whether to predict, and train nothing.
        output: How to print.
        is_quiet: Whether to say nothing meanwhile.
    """

    def tell(step: Step) -> None:
        if not is_quiet:
            sys.stderr.write(f"{step.name}: {step.status}{f', {step.why}' if step.why else ''}\n")

    walked = predict_path(settings, pins) if is_estimate else measure_path(settings, pins, tell)
    if output == Output.TABLE:
        _table(walked)
        return
    documents = [step_document(step) for step in walked.steps]
    if output == Output.CSV:
        write_documents(documents, output)
        return
    document = {
        "parameters": walked.facts.num_parameters,
        "device": walked.environment.device_name,
        "predicted": walked.is_predicted,
        "target_bytes": walked.target_bytes,
        "prices": walked.rates.label,
        "end": end_of(list(walked.steps), walked.target_bytes),
        "steps": documents,
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def step_document(step: Step) -> dict[str, Any]:
    """Return a step for a program to read."""
    reading = step.reading
    return {
        "step": step.name,
        "status": str(step.status),
        "reason": step.why,
        "config": {} if step.config is None else step.config.as_dict(),
        "peak_device_bytes": None if reading is None else reading.peak_bytes,
        "saved_bytes": step.saved_bytes,
        "seconds_per_sample": None if reading is None else reading.seconds_per_sample,
        "more_time_share": step.more_time,
        "usd_per_million_samples": None if reading is None else reading.usd_per_million_samples,
        "usd_per_million_units": None if reading is None else reading.usd_per_million_units,
        "more_money_share": step.more_money,
        "quality": None if reading is None else reading.quality,
    }


def _table(walked: Walked) -> None:
    has_units = any(s.reading and s.reading.usd_per_million_units for s in walked.steps)
    has_quality = any(s.reading and s.reading.quality is not None for s in walked.steps)
    columns = ["where", "status", "config", "peak MiB", "saved MiB", "time", "$/M samples"]
    columns += [f"$/M {walked.facts.unit}"] if has_units else []
    columns += ["money"]
    columns += [walked.facts.quality_name.replace("_", " ")] if has_quality else []
    rows = [_row(step, has_units, has_quality) for step in walked.steps]
    write_table(_title(walked), [*columns, "reason"], rows, widest=WIDEST)
    sys.stdout.write("\n".join(_closing(walked)) + "\n")


def _row(step: Step, has_units: bool, has_quality: bool) -> list[str]:
    reading = step.reading
    saved = step.saved_bytes
    sign = "-" if saved is not None and saved < 0 else ""
    return [
        step.name,
        str(step.status),
        NONE if step.config is None else str(step.config),
        NONE if reading is None else mib(reading.peak_bytes),
        NONE if saved is None else f"{sign}{mib(abs(saved))}",
        _share(step.more_time),
        NONE if reading is None else _number(reading.usd_per_million_samples),
        *([NONE if reading is None else _number(reading.usd_per_million_units)] * has_units),
        _share(step.more_money),
        *([NONE if reading is None else _number(reading.quality)] * has_quality),
        step.why,
    ]


def _number(value: float | None) -> str:
    return NONE if value is None else shown_number(value)


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:+.0%}"


def _title(walked: Walked) -> str:
    target = "" if walked.target_bytes is None else f", to {shown_bytes(walked.target_bytes)}"
    how = "predicted, nothing was trained" if walked.is_predicted else "measured"
    environment = walked.environment
    return (
        f"{shown_parameters(walked.facts.num_parameters)} on {environment.device_name} "
        f"({environment.device_kind}){target}: {how}"
    )


def _closing(walked: Walked) -> list[str]:
    end = end_of(list(walked.steps), walked.target_bytes)
    lines = [
        f"{end[0].upper()}{end[1:]}.",
        "Saved, time and money are against the last step that was kept; prices of "
        f"{walked.rates.label}.",
    ]
    if walked.is_assumed:
        lines.append(f"No GPU is here: predicted as for an {walked.environment.device_name}.")
    if walked.is_predicted:
        lines.append("Quality is not predicted; leave --estimate out to measure it.")
    return lines
