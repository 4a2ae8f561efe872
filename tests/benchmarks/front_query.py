"""The front of a study of 20,000 stored trials, and ``autotune --help``.

``python -m tests.benchmarks.front_query [TRIALS]``
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from autotune.records import MeasurementKey, Scores, TrialState
from autotune.store.sql import SqlStore
from tests.factories import make_config, make_measurement, make_study_record, make_trial

REPEATS = 20


def fill(store: SqlStore, trials: int) -> None:
    """Store a study of so many told trials, ten of them its front."""
    store.create_study(make_study_record("large"))
    for number in range(trials):
        config = make_config(checkpoint_interval=number)
        trial = make_trial(
            study="large", number=number, config=config, state=TrialState.LEASED, lease=str(number)
        )
        store.open_trial(trial)
        key = MeasurementKey(workload="w", config=config, environment="e", protocol="p")
        store.record_measurement(trial, key, 2**30, make_measurement())
        scores = Scores(cost_usd_per_million_samples=1.0, throughput_samples_per_second=1.0)
        store.tell_trial(trial, scores, 0.0)
    store.set_front("large", range(10), 0)


def milliseconds(action: Callable[[], object]) -> list[float]:
    """Time an action several times."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        action()
        times.append(1e3 * (time.perf_counter() - started))
    return times


def report(name: str, times: list[float]) -> None:
    """Print median and spread."""
    figures = {"median": statistics.median(times), "least": min(times), "most": max(times)}
    print(name, json.dumps({k: round(v, 1) for k, v in figures.items()}), f"ms, n={len(times)}")


def main(trials: int) -> None:
    """Measure both."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore.open(f"sqlite:///{folder}/studies.db")
        fill(store, trials)
        report(f"front at {trials} trials", milliseconds(lambda: store.front("large")))
        store.close()
    command = [str(Path(sys.executable).with_name("autotune")), "--help"]
    report(
        "autotune --help",
        milliseconds(lambda: subprocess.run(command, capture_output=True, check=True)),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
