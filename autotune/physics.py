"""What a study knows of its configs before the first trial: from one trace of the workload."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.forecast import Forecast
from autotune.predict.predictor import LOW_PRECISION, Job, Predictor
from autotune.predict.speed import speed_of
from autotune.records import StudyRecord
from autotune.workers.base import Workers
from autotune.workplace import run_one
from search_spaces import SearchSpace, TrainingConfig
from trials.command_line import is_command
from trials.spec import Task, TrialSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What could be foreseen of a study's configs.

    Attributes:
        forecast: Of every config; None where there is none.
        reason: Why there is none.
    """

    forecast: Forecast | None = None
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
    return Foreseen(forecast=Forecast(Predictor(measurement.trace, job), spec, configs))


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
