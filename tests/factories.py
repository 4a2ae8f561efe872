"""Valid values for tests; each takes overrides by keyword."""

from datetime import UTC, datetime
from typing import Any

from autotune.rates import Rates
from autotune.records import (
    MeasurementKey,
    QualityKey,
    Scores,
    StoredMeasurement,
    StoredQuality,
    StudyRecord,
    StudySpec,
    TrialRecord,
    TrialState,
)
from search_spaces import SearchSpace, TrainingConfig
from trials.environment import Environment
from trials.measurement import (
    Direction,
    Failure,
    Measurement,
    MemoryUse,
    Outcome,
    QualityReading,
    StepTiming,
    Where,
    WorkloadFacts,
)

MIB = 1024**2
GIB = 1024**3


def make_config(**knobs: Any) -> TrainingConfig:
    return TrainingConfig.from_mapping({"micro_batch_size": 4, "accumulation_steps": 2, **knobs})


def make_environment(**override: Any) -> Environment:
    values = {
        "device_kind": "cpu",
        "device_name": "Test CPU",
        "device_memory_bytes": 16 * GIB,
        "num_threads": 1,
        "python": "3.11.7",
        "torch": "2.9.0",
        "bitsandbytes": "0.48.0",
    }
    return Environment(**{**values, **override})


def make_facts(**override: Any) -> WorkloadFacts:
    values = {
        "fingerprint": "byte-gpt-1",
        "num_parameters": 1000,
        "num_trainable": 1000,
        "num_blocks": 4,
        "unit": "tokens",
        "quality_name": "held-out loss",
        "quality_direction": Direction.MINIMIZE,
        "global_batch_size": 8,
        "quality_samples": 64,
    }
    return WorkloadFacts(**{**values, **override})


def make_timing(mean_seconds: float = 0.5, **override: Any) -> StepTiming:
    values = {
        "step_seconds": (mean_seconds - 0.01, mean_seconds, mean_seconds + 0.01),
        "low_seconds": mean_seconds - 0.01,
        "high_seconds": mean_seconds + 0.01,
        "samples_per_step": 8,
        "units_per_step": 512.0,
        "warm_up_seconds": 1.0,
        "data_wait_seconds": 0.001,
        "optimizer_steps": 5,
    }
    return StepTiming(**{**values, **override})


def make_memory(**override: Any) -> MemoryUse:
    values = {"peak_device_bytes": 400 * MIB, "peak_host_bytes": 200 * MIB}
    return MemoryUse(**{**values, "by_kind": {"parameters": 100 * MIB}, **override})


def make_measurement(**override: Any) -> Measurement:
    values = {"outcome": Outcome.COMPLETED, "timing": make_timing(), "memory": make_memory()}
    return Measurement(**{**values, "process_seconds": 3.0, "start_seconds": 0.02, **override})


def make_oom(**override: Any) -> Measurement:
    failure = Failure(
        reason="OutOfMemoryError: tried to allocate 1.00 GiB",
        phase="warm_up",
        where=Where.DEVICE,
        attempted_bytes=900 * MIB,
    )
    values = {"outcome": Outcome.OUT_OF_MEMORY, "failure": failure, "memory": make_memory()}
    return Measurement(**{**values, "process_seconds": 1.0, **override})


def make_quality(value: float = 2.5, *, seed: int = 0, **key: Any) -> StoredQuality:
    values = {
        "workload": "byte-gpt-1",
        "numerics": str(make_config().numerics_class()),
        "environment": make_environment().hash,
        "samples": 64,
    }
    reading = QualityReading(value=value, samples=64, seed=seed, train_seconds=2.0)
    return StoredQuality(
        key=QualityKey(**{**values, **key}),
        seed=seed,
        measurement=Measurement(outcome=Outcome.COMPLETED, quality=reading),
    )


def make_rates(**override: Any) -> Rates:
    values = {
        "device_usd_per_hour": 2.0,
        "device_gib_usd_per_hour": 0.01,
        "host_gib_usd_per_hour": 0.002,
        "nvme_gib_usd_per_hour": 0.0001,
        "dated": "2026-06-30",
    }
    return Rates(**{**values, **override})


def make_study_record(name: str = "study", **override: Any) -> StudyRecord:
    spec = StudySpec(
        name=name,
        workload="byte-gpt",
        space=SearchSpace.of({"micro_batch_size": [1, 2, 4, 8]}, global_batch_size=8),
        memory_budget_bytes=600 * MIB,
        rates=make_rates(),
        baseline=make_config(),
    )
    values = {"spec": spec, "facts": make_facts(), "environment": make_environment()}
    created_at = datetime(2026, 9, 1, 12, 30, tzinfo=UTC)
    return StudyRecord(**{**values, "created_at": created_at, **override})


def make_trial(number: int = 0, *, study: str = "study", **override: Any) -> TrialRecord:
    values = {"config": make_config(), "state": TrialState.LEASED, "lease": f"lease-{number}"}
    return TrialRecord(study=study, number=number, **{**values, **override})


def make_key(trial: TrialRecord | None = None, **override: Any) -> MeasurementKey:
    values = {
        "workload": "byte-gpt-1",
        "config": make_config() if trial is None else trial.config,
        "environment": make_environment().hash,
        "protocol": "protocol-1",
    }
    return MeasurementKey(**{**values, **override})


def make_stored(
    measurement: Measurement | None = None, *, budget_bytes: int | None = 600 * MIB
) -> StoredMeasurement:
    found = make_measurement() if measurement is None else measurement
    return StoredMeasurement(id=1, memory_budget_bytes=budget_bytes, measurement=found)


def make_told(
    number: int = 0, measurement: Measurement | None = None, **override: Any
) -> TrialRecord:
    """A trial that is told: completed and feasible, unless its measurement says otherwise."""
    found = make_measurement() if measurement is None else measurement
    values = {
        "state": TrialState.TOLD,
        "outcome": found.outcome,
        "reason": found.reason,
        "measurement": found,
        "violation": -0.5 if found.outcome == Outcome.COMPLETED else 0.5,
    }
    return make_trial(number, **{**values, **override})


def make_scored(
    number: int = 0,
    *,
    cost: float | None = 10.0,
    throughput: float | None = 16.0,
    quality: float | None = 2.5,
    noise: tuple[float, float, float] = (0.0, 0.0, 0.0),
    **override: Any,
) -> TrialRecord:
    """A told trial with these scores; noise holds the half widths in the same order."""
    scores = Scores(
        cost_usd_per_million_samples=cost,
        cost_half_width=noise[0],
        throughput_samples_per_second=throughput,
        throughput_half_width=noise[1],
        quality=quality,
        quality_half_width=noise[2],
    )
    return make_told(number, scores=scores, **override)
