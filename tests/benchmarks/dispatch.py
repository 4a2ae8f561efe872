"""How fast trials start: python -m tests.benchmarks.dispatch. The real preload, no real trial."""

import statistics
import time

from autotune.workers import Workers, WorkersRequest, open_workers
from tests.autotune.workers_processes import collect_one, spec

RUNNER = "tests.benchmarks.noop:run"
NUM_TRIALS = 100
SUSTAINED_SECONDS = 10.0


def start_times(workers: Workers) -> tuple[list[float], list[float]]:
    """Return the seconds from the host, and from the driver, to the trial process's code."""
    from_host, from_driver = [], []
    for _ in range(NUM_TRIALS):
        submitted = time.monotonic()
        workers.submit(spec(""))
        measurement = collect_one(workers).measurement
        from_host.append(measurement.start_seconds)
        from_driver.append(measurement.quality.value - submitted)
    return from_host, from_driver


def trials_per_second(workers: Workers) -> float:
    """Return how many trials that do nothing all slots get through."""
    started, done = time.monotonic(), 0
    while time.monotonic() - started < SUSTAINED_SECONDS:
        while workers.num_free:
            workers.submit(spec(""))
        done += len(workers.collect(1.0))
    return done / (time.monotonic() - started)


def report(name: str, seconds: list[float]) -> None:
    milliseconds = sorted(1000 * value for value in seconds)
    p95 = statistics.quantiles(milliseconds, n=20)[-1]
    print(
        f"{name:28} median {statistics.median(milliseconds):6.1f} ms   p95 {p95:6.1f} ms"
        f"   n {len(milliseconds)}"
    )


def main() -> None:
    for kind in ("local", "ray"):
        opening = time.monotonic()
        workers = open_workers(WorkersRequest(runner=RUNNER), is_local=kind == "local")
        workers.environment()
        print(f"{kind}: ready after {time.monotonic() - opening:.1f} s")
        from_host, from_driver = start_times(workers)
        report(f"{kind}: host to trial", from_host)
        report(f"{kind}: driver to trial", from_driver)
        print(f"{kind}: {trials_per_second(workers):.0f} trials/s on {workers.num_slots} slots")
        workers.close()


if __name__ == "__main__":
    main()
