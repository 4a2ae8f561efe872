"""Walk the path to less memory: by real trials, or by predictions alone."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from autotune.estimating import Estimate, estimate
from autotune.forecast import predicted_usd
from autotune.objective import Quality, judge
from autotune.playbook import Path, Reading, Step, space_of_path, walk
from autotune.predict.predictor import Prediction
from autotune.prices.quotes import quote_parts
from autotune.quality import QualityDesk
from autotune.rates import Rates
from autotune.records import MeasurementKey, Objective, StudyRecord, TrialRecord, TrialState
from autotune.reuse import answer_from
from autotune.session import new_record
from autotune.settings import Settings
from autotune.store.base import StudyStore
from autotune.store.sql import SqlStore
from autotune.workers.base import Workers
from autotune.workplace import opened_workers, run_one
from search_spaces import SearchSpace, TrainingConfig, config_of_batch
from trials.environment import Environment
from trials.measurement import Measurement, Outcome, WorkloadFacts
from trials.spec import TrialSpec

NAME = "playbook"
Tell = Callable[[Step], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """A path that was walked.

    Attributes:
        steps: In order.
        facts: What the workload is.
        environment: For what it was measured or predicted.
        rates: Prices of the money.
        target_bytes: Device memory at which it was to end; None for none.
        is_predicted: Whether nothing was trained.
        is_assumed: Whether the device is not here, and was taken from a table.
    """

    steps: tuple[Step, ...]
    facts: WorkloadFacts
    environment: Environment
    rates: Rates
    target_bytes: int | None
    is_predicted: bool
    is_assumed: bool = False


def measure_path(settings: Settings, pins: Mapping[str, object], tell: Tell) -> Walked:
    """Walk by real trials; what the store knows is not run again.

    A trial may take the memory that its kind of device usually has, or the target where that is
    more, so that what does not fit the target is measured too.

    Args:
        settings: What was asked for; its memory budget is the target.
        pins: Knobs that no step may change.
        tell: Called with each step.

    Raises:
        InvalidConfigError: The batch cannot be split so.
    """
    target = settings.memory_budget
    at_large = settings.model_copy(update={"memory_budget": None, "slots": 1})
    with closing(SqlStore.open(settings.store)) as store, opened_workers(at_large) as workers:
        record = new_record(at_large, {}, NAME, workers)
        batch = settings.global_batch or record.facts.global_batch_size
        budget = max(target or 0, record.spec.memory_budget_bytes)
        space = space_of_path(pins, batch, settings.job_devices)
        spec = replace(record.spec, space=space, memory_budget_bytes=budget)
        record = replace(record, spec=spec)
        measurer = Measurer(store, workers, record)
        path = Path(
            start=config_of_batch(pins, batch, settings.job_devices),
            held=pins,
            target_bytes=target,
            num_blocks=record.facts.num_blocks,
        )
        steps = []
        for step in walk(path, measurer.reading, measurer.refusal):
            tell(step)
            steps.append(step)
    return Walked(
        steps=tuple(steps),
        facts=record.facts,
        environment=record.environment,
        rates=record.spec.rates,
        target_bytes=target,
        is_predicted=False,
    )


def predict_path(settings: Settings, pins: Mapping[str, object]) -> Walked:
    """Walk by predictions from one trace of the workload; nothing is trained.

    Raises:
        WorkloadError: It cannot be traced; the message says where and what to do.
    """
    found = estimate(settings, pins, _space_of)
    rates = settings.rates(found.environment)
    predictions = {prediction.config: prediction for prediction in found.predictions}
    refusals = {exclusion.config: exclusion.reason for exclusion in found.exclusions}
    batch = settings.global_batch or found.facts.global_batch_size

    def reading(config: TrainingConfig) -> Reading:
        return _predicted(found, predictions[config], rates, settings.job_devices)

    path = Path(
        start=config_of_batch(pins, batch, settings.job_devices),
        held=pins,
        target_bytes=settings.memory_budget,
        num_blocks=found.facts.num_blocks,
    )
    return Walked(
        steps=tuple(walk(path, reading, refusals.get)),
        facts=found.facts,
        environment=found.environment,
        rates=rates,
        target_bytes=settings.memory_budget,
        is_predicted=True,
        is_assumed=found.is_assumed,
    )


def _space_of(settings: Settings, pins: Mapping[str, object], batch: int) -> SearchSpace:
    return space_of_path(pins, batch, settings.job_devices)


def _predicted(found: Estimate, prediction: Prediction, rates: Rates, num_devices: int) -> Reading:
    batch = prediction.config.effective_batch_size(num_devices)
    return Reading(
        peak_bytes=int(prediction.peak_device_bytes.mean),
        seconds_per_sample=prediction.step_seconds.mean / batch,
        usd_per_million_samples=predicted_usd(prediction, rates, num_devices),
    )


class Measurer:
    """Answers from the store, or by a trial."""

    def __init__(self, store: StudyStore, workers: Workers, record: StudyRecord) -> None:
        """Measure as trials of a study would be; the study need not be in the store."""
        self._store, self._workers, self._record = store, workers, record
        self._desk = QualityDesk(store, record)

    def refusal(self, config: TrainingConfig) -> str | None:
        """Return why a config cannot run here, or None."""
        return self._record.spec.space.refusal(config, self._record.device_facts)

    def reading(self, config: TrainingConfig) -> Reading:
        """Return what a config takes, and the quality of its class."""
        measurement = self._measured(config)
        if measurement.outcome != Outcome.COMPLETED or measurement.timing is None:
            return Reading(
                is_out_of_memory=measurement.outcome == Outcome.OUT_OF_MEMORY,
                reason=measurement.reason or str(measurement.outcome).replace("_", " "),
            )
        spec = self._record.spec
        quality = None
        if Objective.QUALITY in spec.objectives:
            quality = self._quality(config, measurement)
        budget = spec.memory_budget_bytes
        verdict = judge(measurement, budget_bytes=budget, rates=spec.rates, quality=quality)
        assert measurement.memory is not None
        quote = quote_parts(measurement, spec.rates)
        has_units = self._record.facts.unit != "samples"
        return Reading(
            peak_bytes=measurement.memory.peak_device_bytes,
            seconds_per_sample=1 / measurement.timing.samples_per_second,
            usd_per_million_samples=verdict.scores.cost_usd_per_million_samples,
            usd_per_million_units=float(quote.usd_per_million_units) if has_units else None,
            quality=verdict.scores.quality,
            quality_half_width=verdict.scores.quality_half_width,
        )

    def _measured(self, config: TrainingConfig) -> Measurement:
        spec = self._spec(config)
        key = MeasurementKey(
            workload=self._record.facts.fingerprint,
            config=config,
            environment=self._record.environment.hash,
            protocol=spec.protocol,
        )
        budget = self._record.spec.memory_budget_bytes
        stored = answer_from(self._store.measurements(key), budget)
        if stored is not None:
            return stored.measurement
        measurement = run_one(self._workers, spec)
        if measurement.is_worth_another_run:
            measurement = run_one(self._workers, self._spec(config))
        self._store.record_measurement(self._trial(config), key, budget, measurement)
        return measurement

    def _quality(self, config: TrainingConfig, measurement: Measurement) -> Quality | None:
        trial = replace(self._trial(config), measurement=measurement, outcome=measurement.outcome)
        self._desk.order(trial)
        while self._desk.has_work:
            job, spec = self._desk.next_run()
            self._desk.take(job, run_one(self._workers, spec))
        return self._desk.quality(config)

    def _trial(self, config: TrainingConfig) -> TrialRecord:
        """Return a trial of no study, so that its measurement is kept and attached to none."""
        return TrialRecord(study=NAME, number=0, config=config, state=TrialState.MEASURED)

    def _spec(self, config: TrainingConfig) -> TrialSpec:
        spec = self._record.spec
        return TrialSpec(
            workload=spec.workload,
            config=config,
            trial_id=uuid.uuid4().hex,
            memory_budget_bytes=spec.memory_budget_bytes,
            num_devices=spec.space.num_devices,
            num_ranks=spec.num_ranks,
            seed=spec.seed,
            nvme_path=spec.nvme_path,
            deadline_seconds=spec.deadline_seconds,
            timing=spec.timing,
        )
