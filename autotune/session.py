"""From settings to a running study and back: what ``run``, ``resume`` and ``probe`` do."""

import logging
import re
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from autotune.errors import StudyExistsError, StudyMismatchError
from autotune.events import Listener, WorkersStarting
from autotune.exports import read_config
from autotune.optimizer.sampler import require_sampler
from autotune.optimizer.storage import opened_storage
from autotune.optimizer.study import OptunaStudy
from autotune.physics import foresee
from autotune.planning import configs_of, study_began, within_blocks
from autotune.prices.warnings import book_warnings
from autotune.records import Budget, StudyRecord, StudySpec
from autotune.settings import Settings
from autotune.stopping import StopSwitch
from autotune.store.base import StudyStore
from autotune.store.leases import this_process
from autotune.store.reader import StoreReader
from autotune.store.sql import SqlStore
from autotune.tuner import StudyResult, Tuner
from autotune.workers.base import Workers
from autotune.workers.probes import described_facts
from autotune.workplace import memory_budget, nvme_folder, opened_workers, run_one
from search_spaces import (
    DeviceFacts,
    EmptySpaceError,
    InvalidConfigError,
    SearchSpace,
    TrainingConfig,
    config_of_batch,
    load_space,
    refusal,
)
from trials.environment import Environment
from trials.measurement import Measurement, Outcome, WorkloadFacts
from trials.references import absolute_reference, require_reference
from trials.spec import Task, TrialSpec

logger = logging.getLogger(__name__)

NEWEST = (99, 0)
"""A compute capability that has everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One config measured once, outside any study.

    Attributes:
        config: The point.
        measurement: What was found.
        facts: What the workload is.
        environment: On what.
        memory_budget_bytes: Device memory that it was allowed.
        profiled: What a second trial of it found under torch's profiler, if that was asked for.
    """

    config: TrainingConfig
    measurement: Measurement
    facts: WorkloadFacts
    environment: Environment
    memory_budget_bytes: int
    profiled: Measurement | None = None


def run_study(
    settings: Settings,
    pins: Mapping[str, object],
    *,
    listen: Listener,
    stop: StopSwitch,
) -> tuple[StudyRecord, StudyResult]:
    """Begin a study and run it.

    Args:
        settings: What was asked for.
        pins: Knobs to hold at one value.
        listen: Told what happens.
        stop: Looked at between trials.

    Raises:
        StudyExistsError: One of that name is in the store.
        EmptySpaceError: No config of the space can run here.
    """
    _check_early(settings, pins)
    with closing(SqlStore.open(settings.store)) as store:
        name = settings.study or _free_name(store, settings.workload)
        if name in {summary.name for summary in store.studies()}:
            raise StudyExistsError(
                f"study {name!r} exists; autotune resume {name}, or give another --study"
            )
        listen(WorkersStarting(where=_where(settings)))
        with opened_workers(settings) as workers:
            whole = new_record(settings, pins, name, workers)
            record = within_blocks(whole)
            configs_of(record)
            store.create_study(record)
            listen(study_began(record, workers.num_slots, whole.spec.space))
            return record, _tune(settings, store, workers, record, listen=listen, stop=stop)


def resume_study(
    settings: Settings, *, listen: Listener, stop: StopSwitch
) -> tuple[StudyRecord, StudyResult]:
    """Go on with a study as it was begun, under a larger budget if one is given.

    Raises:
        StudyNotFoundError: None of that name.
        StudyMismatchError: The workload or the environment is not what it was begun with; the
            message names both.
    """
    assert settings.study is not None
    StoreReader.open(settings.store).close()  # a mistyped address must not become a store
    with closing(SqlStore.open(settings.store)) as store:
        record = _with_budget(store.study(settings.study), settings)
        begun = settings.model_copy(
            update={
                "workload": record.spec.workload,
                "device": record.environment.device_kind,
                "nvme_path": record.spec.nvme_path,
                "trial_devices": record.spec.num_ranks,
            }
        )
        _require_workload(begun)
        listen(WorkersStarting(where=_where(begun)))
        with opened_workers(begun) as workers:
            require_same(record, workers)
            listen(study_began(record, workers.num_slots, record.spec.space))
            return record, _tune(settings, store, workers, record, listen=listen, stop=stop)


def probe(
    settings: Settings, knobs: Mapping[str, object], profile_folder: Path | None = None
) -> Probe:
    """Measure one config once. Nothing is written, but for a profile.

    Args:
        settings: What was asked for.
        knobs: Of the config.
        profile_folder: Where a second trial of a config that completed puts its profile.

    Raises:
        InvalidConfigError: The config cannot run here, with the reason.
    """
    _refuse_everywhere(settings, knobs)
    _require_workload(settings)
    with opened_workers(settings.model_copy(update={"slots": 1})) as workers:
        environment = workers.environment()
        facts = _describe(workers, settings.workload, settings.deadline)
        batch = settings.global_batch or facts.global_batch_size
        config = config_of_batch(knobs, batch, settings.job_devices)
        on = facts.rules_facts(environment, settings.trial_devices)
        reason = refusal(config, replace(on, num_devices=settings.job_devices))
        if reason is not None:
            raise InvalidConfigError(reason)
        budget = memory_budget(settings, environment)
        spec = TrialSpec(
            workload=absolute_reference(settings.workload),
            config=config,
            trial_id=uuid.uuid4().hex,
            memory_budget_bytes=budget,
            num_devices=settings.job_devices,
            num_ranks=settings.trial_devices,
            seed=settings.seed,
            nvme_path=nvme_folder(settings),
            deadline_seconds=settings.deadline,
        )
        measurement = run_one(workers, spec)
        profiled = None
        if profile_folder is not None and measurement.outcome == Outcome.COMPLETED:
            profiled = run_one(workers, _profile_spec(spec, profile_folder))
    return Probe(
        config=config,
        measurement=measurement,
        facts=facts,
        environment=environment,
        memory_budget_bytes=budget,
        profiled=profiled,
    )


def _profile_spec(spec: TrialSpec, folder: Path) -> TrialSpec:
    """Return a trial that profiles another's config; the profiler's own memory has no budget."""
    return replace(
        spec,
        task=Task.PROFILE,
        trial_id=uuid.uuid4().hex,
        memory_budget_bytes=None,
        profile_folder=str(folder.resolve()),
    )


def _require_workload(settings: Settings) -> None:
    # The files of a cluster's nodes need not be on this machine.
    if settings.ray_address is None:
        require_reference(settings.workload)


def _refuse_everywhere(settings: Settings, knobs: Mapping[str, object]) -> None:
    """Refuse before any worker starts what no machine of the kind asked for can run."""
    config = TrainingConfig().with_knobs(knobs)
    most_able = DeviceFacts(
        kind=settings.device or "cuda",
        compute_capability=None if settings.device == "cpu" else NEWEST,
        num_devices=settings.job_devices,
    )
    reason = refusal(config, most_able)
    if reason is not None:
        raise InvalidConfigError(reason)


def _check_early(settings: Settings, pins: Mapping[str, object]) -> None:
    """Refuse what needs no worker to be refused."""
    TrainingConfig().with_knobs(pins)
    require_sampler(settings.sampler)
    _require_workload(settings)
    try:
        load_space(
            settings.space,
            global_batch_size=settings.global_batch or 2**10,
            num_devices=settings.job_devices,
        )
    except EmptySpaceError:
        if settings.global_batch is not None:
            raise
    if settings.prices is not None:
        for warning in book_warnings(settings.price_book(), date.today()):
            logger.warning("%s", warning)
    if settings.baseline is not None:
        for note in read_config(settings.baseline).notes:
            logger.warning("%s: %s", settings.baseline, note)


def _where(settings: Settings) -> str:
    if settings.local:
        return "without Ray, here"
    return f"on the Ray cluster {settings.ray_address}" if settings.ray_address else "on Ray, here"


def new_record(
    settings: Settings, pins: Mapping[str, object], name: str, workers: Workers
) -> StudyRecord:
    """Return a study as it is begun; it is not in the store yet."""
    environment = workers.environment()
    facts = _describe(workers, settings.workload, settings.deadline)
    baseline = _baseline(settings, facts)
    spec = StudySpec(
        name=name,
        workload=absolute_reference(settings.workload),
        space=_space(settings, pins, facts, baseline),
        objectives=settings.objectives,
        memory_budget_bytes=memory_budget(settings, environment),
        budget=settings.budget(),
        rates=settings.rates(environment),
        sampler=settings.sampler,
        seed=settings.seed,
        deadline_seconds=settings.deadline,
        quality_repeats=settings.quality_repeats,
        num_ranks=settings.trial_devices,
        missing=facts.missing_on(environment),
        host_memory_bytes=environment.host_memory_bytes,
        nvme_path=nvme_folder(settings),
        baseline=baseline,
        confirms=settings.confirm,
    )
    return StudyRecord(
        spec=spec,
        facts=facts,
        environment=replace(environment, missing=(), host_memory_bytes=None, nvme_free_bytes=None),
        created_at=datetime.now(UTC),
    )


def _baseline(settings: Settings, facts: WorkloadFacts) -> TrainingConfig | None:
    if settings.baseline is None:
        return None
    batch = settings.global_batch or facts.global_batch_size
    return read_config(settings.baseline).config(batch, settings.job_devices)


def _space(
    settings: Settings,
    pins: Mapping[str, object],
    facts: WorkloadFacts,
    baseline: TrainingConfig | None,
) -> SearchSpace:
    space = load_space(
        settings.space,
        global_batch_size=settings.global_batch or facts.global_batch_size,
        num_devices=settings.job_devices,
    )
    return (space if baseline is None else space.including(baseline)).pinned(pins)


def _tune(
    settings: Settings,
    store: StudyStore,
    workers: Workers,
    record: StudyRecord,
    *,
    listen: Listener,
    stop: StopSwitch,
) -> StudyResult:
    configs = configs_of(record)
    forecast = foresee(workers, record, configs, listen)
    with opened_storage(settings.store) as storage:
        direction = record.facts.quality_direction
        optuna = OptunaStudy(storage, record.spec, configs, direction, forecast)
        tuner = Tuner(
            store=store,
            optuna=optuna,
            workers=workers,
            record=record,
            stop=stop,
            listen=listen,
        )
        return tuner.run(this_process(), configs)


def require_same(record: StudyRecord, workers: Workers) -> None:
    """Refuse another workload, or another environment, than a study was begun with.

    Raises:
        StudyMismatchError: It is another; the message names both.
    """
    environment = workers.environment()
    differences = record.environment.differences(environment)
    if differences:
        raise StudyMismatchError(
            f"study {record.spec.name!r} was begun in another environment (then / now): "
            f"{'; '.join(differences)}; resume it where it began, or begin another study"
        )
    facts = _describe(workers, record.spec.workload, record.spec.deadline_seconds)
    if facts.fingerprint != record.facts.fingerprint:
        raise StudyMismatchError(
            f"study {record.spec.name!r} was begun with another {record.spec.workload}: its "
            f"source was {record.facts.fingerprint} and is {facts.fingerprint} now; restore it, "
            "or begin another study"
        )


def _with_budget(record: StudyRecord, settings: Settings) -> StudyRecord:
    limits = {field.name for field in fields(Budget)} & settings.model_fields_set
    given: dict[str, Any] = {limit: getattr(settings, limit) for limit in limits}
    if "planned_hours" in settings.model_fields_set:
        given["planned_seconds"] = settings.planned_seconds
    budget = replace(record.spec.budget, **given)
    is_said = "confirm" in settings.model_fields_set
    confirms = settings.confirm if is_said else record.spec.confirms
    return replace(record, spec=replace(record.spec, budget=budget, confirms=confirms))


def _describe(workers: Workers, workload: str, deadline_seconds: float) -> WorkloadFacts:
    spec = TrialSpec(
        workload=absolute_reference(workload),
        task=Task.DESCRIBE,
        trial_id=uuid.uuid4().hex,
        deadline_seconds=deadline_seconds,
    )
    return described_facts(workload, run_one(workers, spec))


def _free_name(store: StudyStore, workload: str) -> str:
    place = workload.partition("?")[0].removesuffix("/config.json").removesuffix(".json")
    stem = re.sub(r"[^\w]+", "-", place.rpartition("/")[2].replace(".py:", ":")).strip("-")
    taken = {summary.name for summary in store.studies()}
    number = 1
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"
