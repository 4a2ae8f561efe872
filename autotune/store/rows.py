"""Records to rows of the tables, and back."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields, replace
from datetime import UTC
from functools import cache
from typing import Any

from sqlalchemy import Row

from autotune.records import (
    Budget,
    MeasurementKey,
    QualityKey,
    Scores,
    Source,
    StoredMeasurement,
    StoredQuality,
    StudyRecord,
    StudySpec,
    StudyState,
    StudySummary,
    TrialRecord,
    TrialState,
    WorkTime,
)
from search_spaces import KNOBS, TrainingConfig
from trials.codec import from_plain, to_plain
from trials.environment import Environment
from trials.measurement import Measurement, Outcome, WorkloadFacts

Values = dict[str, Any]
KEY_COLUMNS = ("workload", "config", "environment", "protocol")
SCORES = tuple(field.name for field in fields(Scores))


def environment_values(environment: Environment) -> Values:
    """Return the row of an environment."""
    return {
        "hash": environment.hash,
        "device_kind": environment.device_kind,
        "device_name": environment.device_name,
        "device_memory_bytes": environment.device_memory_bytes,
        "document": json.dumps(to_plain(environment)),
    }


def study_values(record: StudyRecord) -> Values:
    """Return the row of a new study, which nobody owns."""
    return {
        "name": record.spec.name,
        "workload": record.spec.workload,
        "environment": record.environment.hash,
        "quality_name": record.facts.quality_name,
        "memory_budget_bytes": record.spec.memory_budget_bytes,
        "state": str(record.state),
        "stop_reason": plain_text(record.stop_reason),
        "created_at": record.created_at.astimezone(UTC).replace(tzinfo=None),
        "wall_seconds": record.worked.wall_seconds,
        "device_seconds": record.worked.device_seconds,
        "epoch": 0,
        "spec": json.dumps(to_plain(record.spec)),
        "facts": json.dumps(to_plain(record.facts)),
    }


def spec_under(document: str, budget: Budget) -> str:
    """Return the document of a study's spec, under another budget."""
    spec = from_plain(StudySpec, json.loads(document))
    return json.dumps(to_plain(replace(spec, budget=budget)))


def study_record(row: Row[Any]) -> StudyRecord:
    """Read a study's row, with the ``document`` of its environment."""
    return StudyRecord(
        spec=from_plain(StudySpec, json.loads(row.spec)),
        facts=from_plain(WorkloadFacts, json.loads(row.facts)),
        environment=from_plain(Environment, json.loads(row.document)),
        created_at=row.created_at.replace(tzinfo=UTC),
        state=StudyState(row.state),
        stop_reason=row.stop_reason,
        worked=WorkTime(wall_seconds=row.wall_seconds, device_seconds=row.device_seconds),
    )


def study_summary(row: Row[Any]) -> StudySummary:
    """Read a study's row, with its trials counted."""
    return StudySummary(
        name=row.name,
        workload=row.workload,
        state=StudyState(row.state),
        created_at=row.created_at.replace(tzinfo=UTC),
        num_trials=row.num_trials,
        num_completed=row.num_completed,
        num_out_of_memory=row.num_out_of_memory,
        stop_reason=row.stop_reason,
    )


def key_values(key: MeasurementKey) -> Values:
    """Return the columns by which a measurement is found again."""
    return {
        "workload": key.workload,
        "config": key.config.hash,
        "environment": key.environment,
        "protocol": key.protocol,
    }


def measurement_values(
    key: MeasurementKey, memory_budget_bytes: int | None, measurement: Measurement
) -> Values:
    """Return the row of a measurement, its main numbers readable beside the whole of it."""
    memory, timing = measurement.memory, measurement.timing
    return {
        **key_values(key),
        **key.config.as_dict(),
        "memory_budget_bytes": memory_budget_bytes,
        "outcome": str(measurement.outcome),
        "peak_device_bytes": memory and memory.peak_device_bytes,
        "peak_host_bytes": memory and memory.peak_host_bytes,
        "mean_step_seconds": timing and timing.mean_seconds,
        "samples_per_second": timing and timing.samples_per_second,
        "document": measurement.to_json(),
    }


def stored_measurement(row: Row[*tuple[Any, ...]]) -> StoredMeasurement:
    """Read a measurement's row."""
    return StoredMeasurement(
        id=row.id,
        memory_budget_bytes=row.memory_budget_bytes,
        measurement=Measurement.from_json(row.document),
    )


def quality_values(quality: StoredQuality) -> Values:
    """Return the row of a quality run."""
    reading = quality.measurement.quality
    return {
        **asdict(quality.key),
        "seed": quality.seed,
        "outcome": str(quality.measurement.outcome),
        "value": reading and reading.value,
        "document": quality.measurement.to_json(),
    }


def stored_quality(row: Row[Any]) -> StoredQuality:
    """Read a quality run's row."""
    return StoredQuality(
        key=QualityKey(
            workload=row.workload,
            numerics=row.numerics,
            environment=row.environment,
            samples=row.samples,
        ),
        seed=row.seed,
        measurement=Measurement.from_json(row.document),
    )


def trial_values(trial: TrialRecord) -> Values:
    """Return the row of a trial."""
    return {
        "study": trial.study,
        "number": trial.number,
        **trial.config.as_dict(),
        "state": str(trial.state),
        "source": str(trial.source),
        "attempt": trial.attempt,
        "lease": trial.lease,
        "slot": trial.slot,
        "outcome": trial.outcome and str(trial.outcome),
        "reason": plain_text(trial.reason),
        "measurement_id": trial.measurement_id,
        **asdict(trial.scores),
        "violation": trial.violation,
    }


def trial_records(rows: Iterable[Row[Any]]) -> list[TrialRecord]:
    """Read trials' rows, each with the ``document`` of its measurement or None."""
    read_once = cache(Measurement.from_json)  # trials answered from the store share theirs
    return [_trial_record(row, read_once) for row in rows]


def plain_text(text: str) -> str:
    """Return what every database takes of a text that a dying process may have written."""
    return text.replace("\0", "").encode(errors="replace").decode()


def _trial_record(row: Row[Any], read: Callable[[str], Measurement]) -> TrialRecord:
    values = row._mapping
    return TrialRecord(
        study=row.study,
        number=row.number,
        config=TrainingConfig.from_mapping({knob: values[knob] for knob in KNOBS}),
        state=TrialState(row.state),
        source=Source(row.source),
        attempt=row.attempt,
        lease=row.lease,
        slot=row.slot,
        outcome=None if row.outcome is None else Outcome(row.outcome),
        reason=row.reason,
        measurement_id=row.measurement_id,
        measurement=None if row.document is None else read(row.document),
        scores=Scores(**{score: values[score] for score in SCORES}),
        violation=row.violation,
    )
