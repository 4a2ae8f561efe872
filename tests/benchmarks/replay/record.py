"""Record a table: run every config of a recipe as a real trial, and predict it without one.

``python -m tests.benchmarks.replay.record RECIPE --log FILE [--trials N] [--passes K]
[--core C] [--tables FOLDER]`` runs what the log lacks, N trials at most, and writes the recipe's
tables once nothing is lacking. It may be killed at any time: what ran is in the log. Trials run on
the core given; leave it alone while they do.

Each config runs without a budget, K times. Under each budget of the recipe those run again whose
peak was above nine tenths of it; the others fit. Five configs run three times for the noise;
later passes begin with the fastest. A table has the mean of the fastest
tenth of a config's steps over all its runs.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from search_spaces import NumericsClass, TrainingConfig
from tests.benchmarks.replay.compile import tables_of
from tests.benchmarks.replay.recipes import RECIPES, Recipe
from tests.benchmarks.replay.runs import Job, Run, RunLog
from tests.benchmarks.replay.table import write_table
from trials.host import TrialHost
from trials.measurement import Outcome
from trials.references import absolute_reference, preloads
from trials.spec import Task, TrialSpec

DEADLINE_SECONDS = 120.0
CERTAIN_SHARE = 0.9
"""Of a budget: what peaks below it fits, and is not run again under the budget."""
REPEATED_CONFIGS, REPEATS = 5, 3
QUALITY_SEEDS = 3
ORDER_SEED = 20261201


def main(arguments: argparse.Namespace) -> int:
    """Run what the log lacks, and write the tables once nothing is; 1 while something is."""
    recipe = RECIPES[arguments.recipe]
    log = RunLog(arguments.log)
    host = TrialHost(preload=(*preloads(recipe.workload), *recipe.preload))
    try:
        is_whole = recorded(
            recipe,
            log,
            host,
            trials=arguments.trials,
            passes=arguments.passes,
            cores=tuple(arguments.core),
        )
        if is_whole and arguments.tables is not None:
            for table in tables_of(recipe, log, host):
                path = arguments.tables / f"{table.header.name}.jsonl.gz"
                write_table(table, path)
                print(path)
    finally:
        host.close()
    return 0 if is_whole else 1


def recorded(
    recipe: Recipe,
    log: RunLog,
    host: TrialHost,
    *,
    trials: int,
    passes: int,
    cores: tuple[int, ...] = (),
) -> bool:
    """Run up to some trials of a recipe; returns whether its log lacks none any more."""
    base = TrialSpec(
        workload=absolute_reference(recipe.workload),
        deadline_seconds=DEADLINE_SECONDS,
        timing=recipe.timing,
        cores=cores,
    )
    facts = host.run(replace(base, task=Task.DESCRIBE)).facts
    environment = host.run(replace(base, task=Task.ENVIRONMENT)).environment
    assert facts is not None and environment is not None
    log.begin(recipe.name, facts, environment)
    configs = recipe.space.configs(facts.rules_facts(environment))
    for _ in range(trials):
        job = next(_lacking(recipe, log, configs, passes), None)
        if job is None:
            return True
        began = time.perf_counter()
        measurement = host.run(_spec(base, job, recipe))
        run = Run(job=job, measurement=measurement, seconds=time.perf_counter() - began)
        log.append(run)
        print(f"{len(log.by_job)}: {job.config}, {measurement.outcome}", file=sys.stderr)
    return next(_lacking(recipe, log, configs, passes), None) is None


def _lacking(
    recipe: Recipe, log: RunLog, configs: tuple[TrainingConfig, ...], passes: int
) -> Iterator[Job]:
    """Yield what is to be run, in order; later stages depend on what the earlier ones found."""
    shuffled = random.Random(ORDER_SEED).sample(configs, len(configs))
    yield from log.missing([Job(config=config) for config in shuffled])
    for budget in recipe.budgets_bytes:
        near = [config for config in shuffled if _may_not_fit(log, config, budget)]
        yield from log.missing([Job(config=c, memory_budget_bytes=budget) for c in near])
    if recipe.quality_samples:
        yield from log.missing(list(_quality_jobs(log, shuffled)))
    for repeat in range(1, REPEATS):
        some = shuffled[:REPEATED_CONFIGS]
        yield from log.missing([Job(config=config, repeat=repeat) for config in some])
    for repeat in range(1, passes):
        fastest_first = sorted(shuffled, key=lambda config: -_first_rate(log, config))
        yield from log.missing([Job(config=config, repeat=repeat) for config in fastest_first])


def _may_not_fit(log: RunLog, config: TrainingConfig, budget: int) -> bool:
    run = log.by_job.get(Job(config=config))
    memory = None if run is None else run.measurement.memory
    return memory is not None and memory.peak_device_bytes > CERTAIN_SHARE * budget


def _quality_jobs(log: RunLog, configs: list[TrainingConfig]) -> Iterator[Job]:
    """Yield a run for each numerics class, by its fastest config, and more seeds for the first."""
    fastest: dict[NumericsClass, Run] = {}
    for config in configs:
        run = log.by_job.get(Job(config=config))
        if run is None or run.measurement.outcome != Outcome.COMPLETED:
            continue
        known = fastest.setdefault(config.numerics_class(), run)
        if _rate(run) > _rate(known):
            fastest[config.numerics_class()] = run
    for place, run in enumerate(fastest.values()):
        for seed in range(QUALITY_SEEDS if place == 0 else 1):
            yield Job(config=run.job.config, task=Task.QUALITY, repeat=seed)


def _first_rate(log: RunLog, config: TrainingConfig) -> float:
    run = log.by_job.get(Job(config=config))
    return 0.0 if run is None or run.measurement.timing is None else _rate(run)


def _rate(run: Run) -> float:
    assert run.measurement.timing is not None
    return run.measurement.timing.samples_per_second


def _spec(base: TrialSpec, job: Job, recipe: Recipe) -> TrialSpec:
    is_quality = job.task == Task.QUALITY
    return replace(
        base,
        config=job.config,
        task=job.task,
        memory_budget_bytes=job.memory_budget_bytes,
        seed=job.repeat if is_quality else 0,
        quality_samples=recipe.quality_samples if is_quality else 0,
    )


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", choices=sorted(RECIPES))
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=10**9)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--core", type=int, action="append", default=[])
    parser.add_argument("--tables", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(parsed()))
