"""What a study knows of its configs before the first trial: from one trace of the workload."""

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.optimizer.frontier.prior import ConfigPrior
from autotune.predict.predictor import LOW_PRECISION, Job, Prediction, Predictor
from autotune.predict.speed import speed_of
from autotune.rates import GIB, MILLION, Rates
from autotune.records import StudyRecord
from autotune.workers.base import Workers
from autotune.workplace import run_one
from search_spaces import SearchSpace, TrainingConfig
from trials.command_line import is_command
from trials.spec import Task, TrialSpec

STEPS_OF_TRIAL = 10
"""Optimizer steps that a trial's time is reckoned with, beside what starting one takes."""
STARTING_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Predictions of every config of a study.

    Attributes:
        priors: By place of the config; None when there are none.
        costs: US dollars of a million samples, by place; None likewise.
        seconds: That tracing took.
        reason: Why there are none.
    """

    priors: tuple[ConfigPrior, ...] | None = None
    costs: tuple[float, ...] | None = None
    seconds: float = 0.0
    reason: str = ""


def foresee(workers: Workers, record: StudyRecord, configs: Sequence[TrainingConfig]) -> Foreseen:
    """Trace a study's workload in a process of its own and predict every config.

    A workload that cannot be traced has no predictions, and the reason says why.
    """
    spec = record.spec
    if is_command(spec.workload):
        return Foreseen(reason="the workload is a program of its own")
    measurement = run_one(
        workers,
        TrialSpec(
            workload=spec.workload,
            task=Task.TRACE,
            trial_id=uuid.uuid4().hex,
            seed=spec.seed,
            deadline_seconds=spec.deadline_seconds,
            traced=graphs_to_trace(spec.space),
        ),
    )
    if measurement.trace is None:
        return Foreseen(reason=f"it cannot be traced: {measurement.reason}")
    environment = record.environment
    threads = max(1, environment.num_threads)
    job = Job(
        device_kind=environment.device_kind,
        speed=speed_of(environment.device_kind, environment.device_name, threads),
        num_ranks=spec.space.num_devices,
        num_blocks=record.facts.num_blocks,
    )
    predictions = Predictor(measurement.trace, job).predict(configs, spec.memory_budget_bytes)
    return Foreseen(
        priors=tuple(_prior(prediction) for prediction in predictions),
        costs=tuple(predicted_usd(p, spec.rates, spec.space.num_devices) for p in predictions),
        seconds=measurement.trace.seconds,
    )


def graphs_to_trace(space: SearchSpace) -> tuple[TrainingConfig, ...]:
    """Return a config for each way to compute that a space has: 16 bits or not, adapters."""
    listed = dict(space.values)
    recomputes = int(any(int(value) for value in listed["checkpoint_interval"]))
    found: dict[object, TrainingConfig] = {}
    for dtype in listed["amp_dtype"]:
        for rank in listed["lora_rank"]:
            knobs = {"amp_dtype": dtype, "lora_rank": rank, "checkpoint_interval": recomputes}
            found.setdefault((dtype in LOW_PRECISION, rank), TrainingConfig().with_knobs(knobs))
    return tuple(found.values())


def _prior(prediction: Prediction) -> ConfigPrior:
    step = prediction.step_seconds.mean
    return ConfigPrior(
        peak_device_bytes=prediction.peak_device_bytes.mean,
        step_seconds=step,
        trial_seconds=STARTING_SECONDS + STEPS_OF_TRIAL * step,
    )


def predicted_usd(prediction: Prediction, rates: Rates, num_devices: int) -> float:
    """Return the predicted price of a million samples, in US dollars; tiny where all is free."""
    hour = num_devices * (
        rates.device_usd_per_hour
        + rates.device_gib_usd_per_hour * prediction.peak_device_bytes.mean / GIB
        + rates.host_gib_usd_per_hour * prediction.peak_host_bytes / GIB
    )
    batch = prediction.config.effective_batch_size(num_devices)
    return max(hour * prediction.step_seconds.mean / batch * MILLION / 3600, math.ulp(1.0))
