"""Predictions for every config of a space: what ``estimate`` does. Nothing is trained."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from autotune.errors import SettingsError, StoreUnreachableError
from autotune.physics import graphs_to_trace
from autotune.predict.predictor import Job, Prediction, Predictor
from autotune.predict.speed import DeviceSpeed, speed_of
from autotune.settings import Settings
from autotune.store.reader import StoreReader
from autotune.workers.probes import described_facts
from autotune.workplace import memory_budget, opened_workers, run_one
from search_spaces import Exclusion, SearchSpace, TrainingConfig, load_space
from trials.command_line import is_command
from trials.environment import Environment
from trials.measurement import Measurement, WorkloadFacts
from trials.nvml import num_gpus
from trials.references import absolute_reference, require_reference
from trials.spec import Task, TrialSpec

ANY_BATCH = 2**10
"""A batch that every preset can split, for what of a space does not depend on it."""
ASSUMED_CAPABILITY = "8.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A workload that was traced, and what predicts it.

    Attributes:
        facts: What the workload is.
        environment: For what it is predicted.
        predictor: That no trial has corrected.
        seconds: That tracing took.
        is_assumed: Whether the device is not here, and was taken from a table.
    """

    facts: WorkloadFacts
    environment: Environment
    predictor: Predictor
    seconds: float
    is_assumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Every config of a space, predicted or refused.

    Attributes:
        facts: What the workload is.
        environment: For what it is predicted.
        predictions: Of the configs that may run.
        exclusions: The others, with their reasons.
        memory_budget_bytes: Device memory that a config may take.
        traces_seconds: That tracing the workload took.
        num_trials: Measured trials that corrected the predictions.
        is_assumed: Whether the device is not here, and was taken from a table.
    """

    facts: WorkloadFacts
    environment: Environment
    predictions: tuple[Prediction, ...]
    exclusions: tuple[Exclusion, ...]
    memory_budget_bytes: int
    traces_seconds: float
    num_trials: int
    is_assumed: bool


SpaceOf = Callable[[Settings, Mapping[str, object], int], SearchSpace]
"""Returns the space of settings and pins at a global batch."""


def asked_space(settings: Settings, pins: Mapping[str, object], batch: int) -> SearchSpace:
    """Return the space that settings name, with some knobs held, at a global batch."""
    space = load_space(settings.space, global_batch_size=batch, num_devices=settings.job_devices)
    return space.pinned(pins)


def estimate(
    settings: Settings, pins: Mapping[str, object], space_of: SpaceOf = asked_space
) -> Estimate:
    """Predict every config of a space from a trace of the workload, without a trial.

    Args:
        settings: What was asked for.
        pins: Knobs to hold at one value.
        space_of: Returns the space.

    Raises:
        SettingsError: The workload is a program of its own.
        WorkloadError: It cannot be traced; the message says where and what to do.
        StoreError: A store was named that is not there, or it is of another version.
        EmptySpaceError: No config of the space can run.
    """
    _require_traceable(settings)
    with _opened_store(settings) as store:
        return _estimate(settings, pins, store, space_of)


@contextmanager
def _opened_store(settings: Settings) -> Iterator[StoreReader | None]:
    """Open the store for as long as this lasts; None where there is none and none was named.

    Raises:
        StoreUnreachableError: One was named.
    """
    try:
        store = StoreReader.open(settings.store)
    except StoreUnreachableError:
        if "store" in settings.model_fields_set:
            raise
        yield None
        return
    with closing(store):
        yield store


def _estimate(
    settings: Settings,
    pins: Mapping[str, object],
    store: StoreReader | None,
    space_of: SpaceOf,
) -> Estimate:
    traced = trace(settings, space_of(settings, pins, settings.global_batch or ANY_BATCH))
    facts, environment = traced.facts, traced.environment
    space = space_of(settings, pins, settings.global_batch or facts.global_batch_size)
    device = facts.rules_facts(environment, settings.job_devices)
    num_trials = traced.predictor.learn(_measured(store, facts, environment, settings.job_devices))
    budget = memory_budget(settings, environment)
    return Estimate(
        facts=facts,
        environment=environment,
        predictions=tuple(traced.predictor.predict(space.configs(device), budget)),
        exclusions=space.exclusions(device),
        memory_budget_bytes=budget,
        traces_seconds=traced.seconds,
        num_trials=num_trials,
        is_assumed=traced.is_assumed,
    )


def trace(settings: Settings, space: SearchSpace) -> Traced:
    """Trace a workload in every way to compute that a space has.

    Raises:
        WorkloadError: It cannot be traced; the message says where and what to do.
    """
    is_assumed = settings.device == "cuda" and not num_gpus()
    here = {"local": True, **({"device": "cpu"} if is_assumed else {})}
    with opened_workers(settings.model_copy(update=here)) as workers:
        environment = workers.environment()
        spec = TrialSpec(
            workload=absolute_reference(settings.workload),
            task=Task.TRACE,
            trial_id=uuid.uuid4().hex,
            seed=settings.seed,
            deadline_seconds=settings.deadline,
            traced=graphs_to_trace(space),
        )
        measurement = run_one(workers, spec)
    facts = described_facts(settings.workload, measurement)
    assert measurement.trace is not None
    kind = settings.device or environment.device_kind
    speed = speed_of(kind, environment.device_name, max(1, environment.num_threads))
    if is_assumed:
        environment = _assumed(environment, speed)
    job = Job(
        device_kind=environment.device_kind,
        speed=speed,
        num_ranks=settings.job_devices,
        num_blocks=facts.num_blocks,
    )
    return Traced(
        facts=facts,
        environment=environment,
        predictor=Predictor(measurement.trace, job),
        seconds=measurement.trace.seconds,
        is_assumed=is_assumed,
    )


def _require_traceable(settings: Settings) -> None:
    require_reference(settings.workload)
    if is_command(settings.workload):
        raise SettingsError(
            f"estimate traces a model of PyTorch, and {settings.workload!r} is a program of its "
            "own; measure it with autotune probe or autotune run"
        )


def _assumed(environment: Environment, speed: DeviceSpeed) -> Environment:
    """Return what a GPU of the table would be, with the software that is here."""
    return replace(
        environment,
        device_kind="cuda",
        device_name=speed.name,
        device_memory_bytes=speed.memory_bytes,
        num_threads=0,
        compute_capability=ASSUMED_CAPABILITY,
        missing=(),
    )


def _measured(
    store: StoreReader | None, facts: WorkloadFacts, environment: Environment, num_ranks: int
) -> list[tuple[TrainingConfig, Measurement]]:
    """Return what the store has of this workload in this environment, each trial once."""
    found: dict[int | None, tuple[TrainingConfig, Measurement]] = {}
    for summary in () if store is None else store.studies():
        assert store is not None
        study = store.study(summary.name)
        is_same = (
            study.facts.fingerprint == facts.fingerprint
            and study.environment.hash == environment.hash
            and study.spec.num_ranks == num_ranks
        )
        for trial in store.trials(summary.name) if is_same else ():
            if trial.measurement is not None:
                found[trial.measurement_id] = (trial.config, trial.measurement)
    return list(found.values())
