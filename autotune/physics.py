"""What a study knows of its configs before the first trial: from one trace of the workload."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.baselines import first_configs, most_aggressive
from autotune.events import ConfigsForeseen, Listener
from autotune.figures import shown_bytes
from autotune.forecast import Forecast
from autotune.optimizer.sampler import GRID
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


def foresee(
    workers: Workers, record: StudyRecord, configs: Sequence[TrainingConfig], listen: Listener
) -> Forecast | None:
    """Return predictions, and say how long they took; a grid runs every config all the same."""
    if record.spec.sampler == GRID:
        return None
    began = time.monotonic()
    found = _foreseen(workers, record, configs)
    event = ConfigsForeseen(
        num_configs=len(configs),
        seconds=time.monotonic() - began,
        reason=found.reason,
        put_off=_put_off(record, configs, found.forecast),
    )
    listen(event)
    return found.forecast


def _put_off(
    record: StudyRecord, configs: Sequence[TrainingConfig], forecast: Forecast | None
) -> str:
    """Return which of the first configs is not tried first, and why; empty if none is."""
    config = most_aggressive(configs)
    if forecast is None or config in first_configs(configs, record.spec.baseline, forecast):
        return ""
    needs, budget = forecast.expected_bytes(config), record.spec.memory_budget_bytes
    return (
        f"the most aggressive config is not tried first: {config} is predicted to take "
        f"{shown_bytes(needs)}, and has {shown_bytes(budget)}"
    )


def _foreseen(
    workers: Workers, record: StudyRecord, configs: Sequence[TrainingConfig]
) -> Foreseen:
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
