"""From the log of a recording to its tables: all runs of each config as one, and its prior."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from autotune.objective import Quality, judge
from autotune.predict.predictor import Prediction, Predictor
from search_spaces import TrainingConfig
from tests.benchmarks.estimate_error import traced
from tests.benchmarks.replay.recipes import MIB, Recipe
from tests.benchmarks.replay.runs import Job, Run, RunLog
from tests.benchmarks.replay.table import FORMAT, Entry, Header, Prior, Span, Table
from trials.environment import Environment
from trials.host import TrialHost
from trials.measurement import Measurement, Outcome, StepTiming
from trials.references import absolute_reference
from trials.spec import Task, TimingPolicy
from trials.timing import half_width, t_quantile

STARTING_SECONDS = 0.25
"""Of a trial process, its model and its data, before it trains."""
DEEPSPEED_SECONDS = 4.0
"""That importing and starting DeepSpeed adds."""
FEWEST_REPEATS = 3
FASTEST_SHARE = 0.1
"""Of steps that count. Of 360 configs of the ViT on a shared host, each run three times, the means
of runs differed by 22 % (standard deviation), those of the fastest tenth by 18 %; the medians of
that were 11 and 6 %."""


def tables_of(recipe: Recipe, log: RunLog, host: TrialHost) -> list[Table]:
    """Return a table for each budget of a recipe.

    Args:
        recipe: What was recorded.
        log: A whole one.
        host: Where the workload is traced for the prior.
    """
    assert log.begun is not None
    facts, environment = log.begun.facts, log.begun.environment
    configs = recipe.space.configs(facts.rules_facts(environment))
    reference = absolute_reference(recipe.workload)
    predictor = traced(host, reference, recipe.space, environment)
    qualities = _qualities(log)
    priors = {c: _prior(p, recipe.timing) for c, p in _predicted(predictor, configs)}
    return [
        Table(
            _header(recipe, log, budget, environment),
            tuple(_entry(recipe, log, c, budget, qualities, priors[c]) for c in configs),
        )
        for budget in recipe.budgets_bytes
    ]


def _predicted(
    predictor: Predictor, configs: Sequence[TrainingConfig]
) -> list[tuple[TrainingConfig, Prediction]]:
    return list(zip(configs, predictor.predict(configs), strict=True))


def _prior(prediction: Prediction, timing: TimingPolicy) -> Prior:
    step = prediction.step_seconds.mean
    timed = max(timing.min_steps * step, timing.max_seconds)
    starting = STARTING_SECONDS + DEEPSPEED_SECONDS * prediction.config.is_zero
    return Prior(
        peak_device_bytes=prediction.peak_device_bytes.mean,
        step_seconds=step,
        trial_seconds=starting + timing.warm_up_steps * step + timed,
        peak_errors=prediction.peak_errors,
        step_errors=prediction.step_errors,
    )


def _header(recipe: Recipe, log: RunLog, budget: int, environment: Environment) -> Header:
    assert log.begun is not None
    passes = 1 + max(job.repeat for job in log.by_job if job.task == Task.MEASURE)
    return Header(
        format=FORMAT,
        name=f"{recipe.name}_{budget // MIB}mib",
        workload=recipe.reference,
        space=recipe.space,
        objectives=recipe.objectives,
        quality_direction=log.begun.facts.quality_direction,
        memory_budget_bytes=budget,
        rates=recipe.rates,
        noise=_noise(log),
        environment=Environment(**{**_fields(environment), "missing": ()}),
        date=log.begun.begun_at[:10],
        how=_how(recipe, passes),
    )


def _how(recipe: Recipe, passes: int) -> str:
    words = (
        f"every config ran without a budget, up to {passes} times, and the mean of the fastest "
        "tenth of all steps is here; those that peaked above nine tenths of the budget ran again "
        "under it"
    )
    modules = ", ".join(recipe.preload)
    return f"{words}; {modules} were imported once for all trials" if modules else words


def _fields(environment: Environment) -> dict[str, object]:
    names = Environment.__dataclass_fields__
    return {name: getattr(environment, name) for name in names}


def _entry(
    recipe: Recipe,
    log: RunLog,
    config: TrainingConfig,
    budget: int,
    qualities: dict[object, Quality],
    prior: Prior,
) -> Entry:
    run = _pooled_run(log, config, budget)
    measurement = run.measurement
    quality = qualities.get(config.numerics_class()) if recipe.quality_samples else None
    verdict = judge(measurement, budget_bytes=budget, rates=recipe.rates, quality=quality)
    is_completed = measurement.outcome == Outcome.COMPLETED
    assert not is_completed or (measurement.memory and measurement.timing)
    return Entry(
        config=config,
        outcome=measurement.outcome,
        trial_seconds=run.seconds,
        peak_device_bytes=measurement.memory.peak_device_bytes if is_completed else None,
        step_seconds=_span(measurement) if is_completed else None,
        samples_per_second=verdict.scores.throughput_samples_per_second,
        cost_usd_per_million_samples=verdict.scores.cost_usd_per_million_samples,
        quality=verdict.scores.quality,
        constraints=verdict.constraints,
        prior=prior,
    )


def _pooled_run(log: RunLog, config: TrainingConfig, budget: int) -> Run:
    """Return a config's runs as one, or the one in which it did not fit."""
    under = log.by_job.get(Job(config=config, memory_budget_bytes=budget))
    if under is not None and under.measurement.outcome != Outcome.COMPLETED:
        return under
    runs = [*_runs_without_budget(log, config), *([under] if under else [])]
    completed = [run for run in runs if run.measurement.outcome == Outcome.COMPLETED]
    if not completed:
        return runs[0]
    by_peak = sorted(completed, key=_peak_bytes)
    middle = by_peak[(len(by_peak) - 1) // 2]
    seconds = statistics.fmean(run.seconds for run in completed)
    timing = _quiet_timing([run.measurement for run in completed])
    return replace(middle, measurement=replace(middle.measurement, timing=timing), seconds=seconds)


def _quiet_timing(measurements: Sequence[Measurement]) -> StepTiming:
    """Return the fastest tenth of the steps of all runs, with the interval that the runs give.

    What else a machine does only slows steps, in bursts that outlast a run: the fastest steps of
    several runs are those that it left alone.
    """
    timings = [m.timing for m in measurements if m.timing is not None]
    steps = _fastest([second for timing in timings for second in timing.step_seconds])
    mean = statistics.fmean(steps)
    half = (timings[0].high_seconds - timings[0].low_seconds) / 2
    if len(timings) > 1:
        half = half_width([_quiet_seconds(timing) for timing in timings])
    return replace(
        timings[0],
        step_seconds=steps,
        low_seconds=max(0.0, mean - half),
        high_seconds=mean + half,
    )


def _quiet_seconds(timing: StepTiming) -> float:
    return statistics.fmean(_fastest(timing.step_seconds))


def _fastest(seconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted(seconds)[: math.ceil(FASTEST_SHARE * len(seconds))])


def _peak_bytes(run: Run) -> int:
    assert run.measurement.memory is not None
    return run.measurement.memory.peak_device_bytes


def _runs_without_budget(log: RunLog, config: TrainingConfig) -> list[Run]:
    runs = []
    while run := log.by_job.get(Job(config=config, repeat=len(runs))):
        runs.append(run)
    return runs


def _span(measurement: Measurement) -> Span:
    timing = measurement.timing
    assert timing is not None
    return Span(mean=timing.mean_seconds, low=timing.low_seconds, high=timing.high_seconds)


def _qualities(log: RunLog) -> dict[object, Quality]:
    found: dict[object, list[float | None]] = {}
    for job, run in log.by_job.items():
        if job.task == Task.QUALITY:
            reading = run.measurement.quality
            value = None if reading is None else reading.value
            found.setdefault(job.config.numerics_class(), []).append(value)
    half = _quality_half_width(list(found.values()))
    return {name: Quality(value=values[0], half_width=half) for name, values in found.items()}


def _quality_half_width(found: Sequence[Sequence[float | None]]) -> float | None:
    """Return half the 95 % interval of one run, from the class that ran with several seeds."""
    for values in found:
        known = [value for value in values if value is not None]
        if len(known) > 1:
            return statistics.stdev(known) * t_quantile(len(known) - 1)
    return None


def _noise(log: RunLog) -> dict[str, float]:
    """Return how far runs of one config differ, from every config that ran three times."""
    times, peaks, runs = [], [], 0
    for job in log.by_job:
        if job != Job(config=job.config):
            continue
        repeats = [r.measurement for r in _runs_without_budget(log, job.config)]
        done = [m for m in repeats if m.outcome == Outcome.COMPLETED and m.memory and m.timing]
        if len(done) >= FEWEST_REPEATS:
            runs += len(done)
            times.append(_relative_variance([_quiet_seconds(m.timing) for m in done]))
            peaks.append(_relative_variance([m.memory.peak_device_bytes for m in done]))
    half = _quality_half_width_of(log)
    noise = {
        "step_seconds": statistics.fmean(times) ** 0.5,
        "peak_device_bytes": statistics.fmean(peaks) ** 0.5,
        "runs": runs,
    }
    return noise if half is None else {**noise, "quality": half}


def _quality_half_width_of(log: RunLog) -> float | None:
    return next((quality.half_width for quality in _qualities(log).values()), None)


def _relative_variance(values: Sequence[float]) -> float:
    return statistics.variance(values) / statistics.fmean(values) ** 2
