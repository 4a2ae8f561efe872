"""``autotune run`` without arguments: trials, wall time, memory, and time outside trials.

``python -m tests.benchmarks.default_run [REPEATS]`` runs it in a fresh store each time.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autotune.records import Source
from autotune.store.sql import SqlStore
from tests.benchmarks.processes import tree_pss_bytes

GIB = 2**30
SLOTS = 2


def run_once(folder: str) -> dict[str, float]:
    """Run the command and measure it from outside."""
    store = f"sqlite:///{folder}/studies.db"
    command = [str(Path(sys.executable).with_name("autotune")), "run", "-q"]
    started, peak = time.perf_counter(), 0
    program = subprocess.Popen(
        command, env={**os.environ, "AUTOTUNE_STORE": store}, stdout=subprocess.DEVNULL
    )
    while program.poll() is None:
        peak = max(peak, tree_pss_bytes(program.pid))
        time.sleep(0.2)
    wall = time.perf_counter() - started
    assert program.returncode == 0, f"exit {program.returncode}"
    return {"wall_seconds": wall, "peak_gib": peak / GIB, **_from_store(store)}


def _from_store(store_url: str) -> dict[str, float]:
    store = SqlStore.open(store_url)
    name = store.studies()[0].name
    study, trials = store.study(name), store.trials(name)
    runs = store.qualities(
        study.facts.fingerprint, study.environment.hash, study.facts.quality_samples
    )
    store.close()
    measured = [t.measurement for t in trials if t.source == Source.RUN and t.measurement]
    in_trials = sum(m.process_seconds for m in [*measured, *(q.measurement for q in runs)])
    outside = 1 - in_trials / (SLOTS * study.worked.wall_seconds)
    return {
        "trials": len(measured),
        "share_outside_trials": outside,
        "median_start_ms": 1e3 * statistics.median(m.start_seconds for m in measured[2:]),
    }


def main(repeats: int) -> None:
    """Print each run and the medians."""
    rows = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(run_once(folder))
            print(json.dumps({k: round(v, 3) for k, v in rows[-1].items()}), flush=True)
    medians = {key: round(statistics.median(row[key] for row in rows), 3) for key in rows[0]}
    print(f"median of {repeats}: {json.dumps(medians)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
