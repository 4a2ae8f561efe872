"""How long ``autotune export`` takes, format by format.

``python -m tests.benchmarks.export_time STUDY [--store URL] [--repeats N]`` exports a study's
recommended trial N times to each format, in a fresh process each, and prints the median and the
range of the wall time, as a share of what ``python -c pass`` takes too.
"""

import argparse
import statistics
import subprocess
import sys
import time

from autotune.exports import EXPORTERS


def seconds(command: list[str]) -> float:
    """Return the wall time of a command; one that is refused takes its time too."""
    began = time.perf_counter()
    subprocess.run(command, capture_output=True, check=False)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study")
    parser.add_argument("--store")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    store = [] if given.store is None else ["--store", given.store]
    bare = statistics.median(seconds([sys.executable, "-c", "pass"]) for _ in range(given.repeats))
    for form in EXPORTERS:
        command = [sys.executable, "-m", "autotune.cli", "export", given.study, "--format", form]
        taken = [seconds(command + store) for _ in range(given.repeats)]
        middle = statistics.median(taken)
        print(
            f"{form:14s} {middle:.2f} s ({min(taken):.2f} to {max(taken):.2f}, n={len(taken)}), "
            f"{middle / bare:.0f} times an empty Python"
        )


if __name__ == "__main__":
    main()
