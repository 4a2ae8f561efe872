"""Compare samplers on tables of real trials.

``python -m tests.benchmarks.replay [--seeds K] [--table FILE ...] [--sampler NAME ...]
[--slow-seeds J] [--slow-trials N] [--kept FILE] [--plot FILE.svg] [--output table|json]``

Each sampler searches each table once for each seed, until it has 99 % of the true hypervolume.
Slow samplers get J seeds and N trials; a median that was not reached is null, and shown as -.
``--kept`` keeps each study in a file of JSON lines and does not repeat those that are there.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.replay.errors import TableError
from tests.benchmarks.replay.metrics import Yardstick
from tests.benchmarks.replay.plot import drawn
from tests.benchmarks.replay.report import as_text, summarised, table_facts
from tests.benchmarks.replay.samplers import FIXED, SAMPLERS, SLOW, sampler_maker
from tests.benchmarks.replay.study import KeptStudies, Replayed, StudyKey, study_of
from tests.benchmarks.replay.table import Table, read_table

TABLES = Path(__file__).parent / "tables"


def main(arguments: argparse.Namespace) -> int:
    """Replay what is asked for and print what was found; 2 where something given is wrong."""
    try:
        tables = [read_table(path) for path in arguments.table or sorted(TABLES.iterdir())]
        for name in arguments.sampler:
            sampler_maker(name)
        results = compared(tables, arguments)
    except TableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.plot is not None:
        arguments.plot.write_text(drawn(results), encoding="utf-8")
    for found in results.values():
        del found["curves"]
    print(json.dumps(results) if arguments.output == "json" else as_text(results))
    return 0


def compared(tables: Sequence[Table], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the metrics of every sampler on every table, by name."""
    kept = KeptStudies(arguments.kept)
    results: dict[str, Any] = {}
    for table in tables:
        yardstick = Yardstick(table)
        samplers, curves = {}, {}
        for name in arguments.sampler:
            studies = _studies(table, yardstick, name, kept, arguments)
            samplers[name] = summarised(studies)
            curves[name] = [yardstick.shares(study.places) for study in studies]
        results[table.header.name] = {
            "table": table_facts(table, yardstick),
            "samplers": samplers,
            "curves": curves,
        }
    return results


def _studies(
    table: Table,
    yardstick: Yardstick,
    name: str,
    kept: KeptStudies,
    arguments: argparse.Namespace,
) -> list[Replayed]:
    seeds, trials = arguments.seeds, len(table.entries)
    if name in SLOW:
        seeds, trials = min(seeds, arguments.slow_seeds), arguments.slow_trials
    if name in FIXED:
        seeds = 1
    keys = [
        StudyKey(table=table.hash, sampler=name, seed=seed, trials=trials) for seed in range(seeds)
    ]
    studies = [kept.get_or(key, table, yardstick, study_of) for key in keys]
    print(f"{table.header.name}, {name}: {seeds} studies", file=sys.stderr)
    return studies


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--table", type=Path, action="append")
    parser.add_argument("--sampler", action="append")
    parser.add_argument("--slow-seeds", type=int, default=10)
    parser.add_argument("--slow-trials", type=int, default=60)
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    arguments.sampler = arguments.sampler or list(SAMPLERS)
    return arguments


if __name__ == "__main__":
    sys.exit(main(parsed()))
