"""How far ``autotune estimate`` is off: real CPU trials over a seeded sample of configs.

``python -m tests.benchmarks.estimate_error [--workload W] [--space S] [--trials N] [--learnt K]
[--set KNOB=VALUE] [--seed S] [--json]`` runs N trials, learns from the first K, and compares the
others with their predictions: n, median and 95th percentile of the error of peak and step time,
and how often the interval held.
"""

import argparse
import json
import random
import statistics
import sys
from dataclasses import replace

from autotune.physics import graphs_to_trace
from autotune.predict.predictor import Job, Prediction, Predictor
from autotune.predict.speed import speed_of
from search_spaces import SearchSpace, TrainingConfig, load_space
from trials.environment import Environment
from trials.host import TrialHost
from trials.measurement import Measurement, Outcome
from trials.references import absolute_reference
from trials.spec import Task, TimingPolicy, TrialSpec

QUICK = TimingPolicy(min_steps=3, max_seconds=0.5)
DEADLINE_SECONDS = 300.0
Measured = tuple[TrainingConfig, Measurement]


def main(arguments: argparse.Namespace) -> None:
    """Run the benchmark and print what it found."""
    host = TrialHost()
    reference = absolute_reference(arguments.workload)
    asked = TrialSpec(workload=reference, task=Task.ENVIRONMENT, deadline_seconds=DEADLINE_SECONDS)
    environment = host.run(asked).environment
    pins = dict(pair.split("=", 1) for pair in arguments.set)
    space = load_space(arguments.space, global_batch_size=arguments.batch).pinned(pins)
    predictor = traced(host, reference, space, environment)
    configs = list(space.configs(environment.device_facts()))
    random.Random(arguments.seed).shuffle(configs)
    trials = []
    for config in configs[: arguments.trials]:
        spec = replace(asked, task=Task.MEASURE, config=config, timing=QUICK)
        trials.append((config, host.run(spec)))
    host.close()
    report(predictor, [t for t in trials if t[1].outcome == Outcome.COMPLETED], arguments)


def traced(
    host: TrialHost, reference: str, space: SearchSpace, environment: Environment
) -> Predictor:
    """Return the predictor of a workload on this machine's CPU."""
    graphs = graphs_to_trace(space)
    spec = TrialSpec(
        workload=reference, task=Task.TRACE, traced=graphs, deadline_seconds=DEADLINE_SECONDS
    )
    found = host.run(spec)
    assert found.trace is not None and found.facts is not None, found.reason
    speed = speed_of(environment.device_kind, environment.device_name)
    job = Job(device_kind="cpu", speed=speed, num_blocks=found.facts.num_blocks)
    return Predictor(found.trace, job)


def report(predictor: Predictor, trials: list[Measured], arguments: argparse.Namespace) -> None:
    """Print errors before and after learning; both over the trials not learnt from."""
    learnt, others = trials[: arguments.learnt], trials[arguments.learnt :]
    rows = {"untrained": errors(predictor, others)}
    predictor.learn(learnt)
    rows[f"after {len(learnt)} trials"] = errors(predictor, others)
    if arguments.verbose:
        for config, measurement in trials:
            (found,) = predictor.predict([config])
            print(line(found, measurement), file=sys.stderr)
    if arguments.json:
        print(json.dumps({"n": len(others), "workload": arguments.workload, **rows}))
        return
    for name, row in rows.items():
        figures = ", ".join(f"{key} {value:.1%}" for key, value in row.items())
        print(f"{arguments.workload}, {name}, n = {len(others)}: {figures}")


def errors(predictor: Predictor, trials: list[Measured]) -> dict[str, float]:
    """Return the median and 95th percentile of relative errors, and how often intervals held."""
    pairs = [(predictor.predict([config])[0], m) for config, m in trials]
    peaks = [(p.peak_device_bytes, m.memory.peak_device_bytes) for p, m in pairs]
    times = [(p.step_seconds, m.timing.mean_seconds) for p, m in pairs]
    found = {}
    for name, compared in (("peak", peaks), ("time", times)):
        off = sorted(abs(predicted.mean / real - 1) for predicted, real in compared)
        found[f"{name}_median"] = statistics.median(off)
        found[f"{name}_p95"] = off[min(len(off) - 1, round(0.95 * len(off)))]
        held = [predicted.low <= real <= predicted.high for predicted, real in compared]
        found[f"{name}_held"] = sum(held) / len(held)
    return found


def line(found: Prediction, measurement: Measurement) -> str:
    """Return one config's prediction and measurement, kind by kind, in MiB and ms."""
    real, mib = measurement.memory, 2**20
    kinds = ", ".join(
        f"{kind} {found.memory[kind] / mib:.2f}/{size / mib:.2f}"
        for kind, size in real.by_kind.items()
    )
    peak = f"{found.peak_device_bytes.mean / mib:.1f}/{real.peak_device_bytes / mib:.1f}"
    times = f"{found.step_seconds.mean * 1e3:.0f}/{measurement.timing.mean_seconds * 1e3:.0f}"
    return f"{found.config}: peak {peak} ({found.phase}), {kinds}, ms {times}"


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="byte-gpt")
    parser.add_argument("--space", default="full")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--learnt", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main(parsed())
