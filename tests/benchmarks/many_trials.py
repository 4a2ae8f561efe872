"""500 trials that do nothing, on Ray with SQLite on disk: pace, slow-down, driver memory.

``python -m tests.benchmarks.many_trials [TRIALS]``
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

from autotune.events import TrialTold
from autotune.records import Objective
from search_spaces import SearchSpace
from tests.autotune.tuning import make_record, tune

MIB = 2**20


def wide_space() -> SearchSpace:
    """Return a space with more configs than the benchmark has trials."""
    return SearchSpace.of(
        {
            "amp_dtype": ["fp32", "bf16", "fp16"],
            "checkpoint_interval": list(range(25)),
            "micro_batch_size": [2**k for k in range(8)],
            "optimizer_bits": [32, 8],
        },
        global_batch_size=128,
    )


def main(trials: int) -> None:
    """Run one study and print what was reached."""
    driver = psutil.Process()
    times: list[float] = []
    resident: list[int] = []

    def watch(event: object) -> None:
        if isinstance(event, TrialTold):
            times.append(time.perf_counter())
            resident.append(driver.memory_info().rss)

    record = make_record(
        trials=trials,
        space=wide_space(),
        objectives=(Objective.COST, Objective.THROUGHPUT),
        memory_budget_bytes=10_000 * MIB,
    )
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        tune(f"sqlite:///{folder}/studies.db", record, listen=watch, is_local=False)
    print(
        json.dumps(
            {
                "trials": len(times),
                "per_second": round((len(times) - 1) / (times[-1] - times[0]), 2),
                "seconds_of_first_hundred": round(times[99] - times[0], 2),
                "seconds_of_last_hundred": round(times[-1] - times[-100], 2),
                "driver_growth_mib": round((resident[-1] - resident[9]) / MIB, 1),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
