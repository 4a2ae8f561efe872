"""Hold ``estimate`` against published figures; exits with 1 where a target is missed.

``python -m tests.benchmarks.published [--output table|json]``

The models are built from their published shapes without memory, the device is the A100 that
``estimate`` assumes, and predictions are those of the command, before any trial corrects them.
"""

import argparse
import json
import sys
from dataclasses import asdict

from autotune.cli.tables import write_table
from tests.benchmarks.published.figures import Figure, all_figures


def main() -> int:
    """Print every figure beside ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    output = parser.parse_args().output
    figures = all_figures()
    if output == "json":
        documents = [
            {**asdict(one), "difference": one.difference, "verdict": one.verdict}
            for one in figures
        ]
        print(json.dumps(documents, indent=2))
    else:
        columns = ["source", "figure", "published", "ours", "unit", "off by", "target", "verdict"]
        write_table("Published figures and estimate", columns, [_row(one) for one in figures])
        print("\n".join(f"{one.name}: {one.note}" for one in figures if one.note))
    return int(any(one.verdict == "MISSED" for one in figures))


def _row(one: Figure) -> list[str]:
    return [
        one.source,
        one.name,
        f"{one.published:.2f}",
        f"{one.ours:.2f}",
        one.unit,
        f"{one.difference:+.1%}",
        "-" if one.within is None else f"{one.within:.0%}",
        one.verdict,
    ]


if __name__ == "__main__":
    sys.exit(main())
