"""The benchmark's results: per table and sampler, as JSON, a table of text, and a plot."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.benchmarks.replay.metrics import (
    GAP_TRIALS,
    SHARES,
    Estimate,
    Yardstick,
    estimated,
)
from tests.benchmarks.replay.study import Replayed
from tests.benchmarks.replay.table import Table


def summarised(studies: Sequence[Replayed]) -> dict[str, Any]:
    """Return the metrics of one sampler on one table, each with its interval."""
    scores = [study.score for study in studies]
    found: dict[str, Any] = {"n": len(studies)}
    for place, share in enumerate(SHARES):
        percent = round(100 * share)
        found[f"trials_to_{percent}"] = _plain([s.trials_to[place] for s in scores])
        found[f"seconds_to_{percent}"] = _plain([s.seconds_to[place] for s in scores])
    for place, trials in enumerate(GAP_TRIALS):
        found[f"gap_at_{trials}"] = _plain([s.gap_at[place] for s in scores])
    found["out_of_memory"] = _plain([float(s.out_of_memory) for s in scores])
    asked = sum(len(study.places) for study in studies)
    seconds = sum(study.sampler_seconds for study in studies)
    found["sampler_seconds_per_trial"] = seconds / max(1, asked)
    return found


def table_facts(table: Table, yardstick: Yardstick) -> dict[str, Any]:
    """Return what a table is."""
    header = table.header
    return {
        "workload": header.workload,
        "objectives": [str(axis) for axis in header.objectives],
        "memory_budget_bytes": header.memory_budget_bytes,
        "configs": len(table.entries),
        "feasible": int(table.is_feasible.sum()),
        "front": yardstick.front_size,
        "noise": header.noise,
        "date": header.date,
        "device": header.environment.device_name,
    }


def as_text(results: Mapping[str, Any]) -> str:
    """Return results as tables for people: medians, and their 95 % intervals in brackets."""
    lines = []
    for name, found in results.items():
        facts = found["table"]
        lines.append(
            f"{name}: {facts['workload']}, {facts['configs']} configs, {facts['feasible']} fit, "
            f"front of {facts['front']}, {' x '.join(facts['objectives'])}"
        )
        lines.append(
            f"{'sampler':<20}{'n':>4}{'trials to 90 %':>18}{'95 %':>18}{'99 %':>18}"
            f"{'seconds to 95 %':>22}{'gap at 5':>10}{'8':>8}{'10':>8}{'20':>8}{'OOM':>5}"
        )
        lines += [_row(sampler, row) for sampler, row in found["samplers"].items()]
        lines.append("")
    return "\n".join(lines)


def _row(sampler: str, row: Mapping[str, Any]) -> str:
    trials = "".join(f"{_spread(row[f'trials_to_{p}']):>18}" for p in (90, 95, 99))
    gaps = [f"{row[f'gap_at_{t}']['median']:.1%}" for t in GAP_TRIALS]
    return (
        f"{sampler:<20}{row['n']:>4}{trials}{_spread(row['seconds_to_95']):>22}"
        f"{gaps[0]:>10}{gaps[1]:>8}{gaps[2]:>8}{gaps[3]:>8}"
        f"{_number(row['out_of_memory']['median']):>5}"
    )


def _spread(found: Mapping[str, float | None]) -> str:
    return f"{_number(found['median'])} [{_number(found['low'])}, {_number(found['high'])}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _plain(values: Sequence[float]) -> dict[str, float | None]:
    """Return a median with its interval; None stands for more than the trials that were had."""
    found: Estimate = estimated(values)
    return {k: v if v < float("inf") else None for k, v in asdict(found).items()}
