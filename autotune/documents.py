"""Trials and configs as documents: JSON with stable keys, CSV rows, exported files."""

import json
import tomllib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from autotune.errors import SettingsError
from autotune.needs import needs_of
from autotune.records import StudyRecord, TrialRecord, TrialState
from autotune.reruns import Rerun
from autotune.summary import trial_state
from search_spaces import InvalidConfigError, TrainingConfig
from search_spaces.update_rules import UPDATE_RULES
from trials.codec import to_plain

EXPORT_FORMATS = ("json", "toml")
STEP_SECONDS = ("mean", "low", "high", "steps")


def trial_document(
    trial: TrialRecord,
    study: StudyRecord,
    *,
    is_driven: bool = False,
    rerun: Rerun | None = None,
    is_verified: bool | None = None,
) -> dict[str, Any]:
    """Return a trial under the keys that scripts rely on; a value not measured is None.

    Args:
        trial: To describe.
        study: Its study.
        is_driven: Whether a living driver runs the study, and so the trials under way.
        rerun: What a second run said of it.
        is_verified: What training with its export said of it; None where nothing did.
    """
    measurement = trial.measurement
    timing = None if measurement is None else measurement.timing
    memory = None if measurement is None else measurement.memory
    scores = trial.scores
    return {
        "study": trial.study,
        "trial": trial.number,
        "config": trial.config.as_dict(),
        "state": trial_state(trial, is_driven),
        "source": str(trial.source),
        "baseline": trial.config == study.spec.baseline,
        "slot": trial.slot,
        "outcome": None if trial.outcome is None else str(trial.outcome),
        "measured": trial.is_measured,
        "confirmed": None if rerun is None else rerun.is_confirmed,
        "verified": is_verified,
        "reason": trial.reason,
        "throughput_samples_per_second": None if timing is None else timing.samples_per_second,
        "step_seconds": None
        if timing is None
        else {
            "mean": timing.mean_seconds,
            "low": timing.low_seconds,
            "high": timing.high_seconds,
            "steps": len(timing.step_seconds),
        },
        "ended_early": None if timing is None else timing.is_beaten,
        "data_wait_seconds": None if timing is None else timing.data_wait_seconds,
        "is_data_bound": None if timing is None else timing.is_data_bound,
        "peak_device_bytes": None if memory is None else memory.peak_device_bytes,
        "peak_host_bytes": None if memory is None else memory.peak_host_bytes,
        "memory": {} if memory is None else dict(memory.by_kind),
        "memory_places": {} if memory is None else memory.places,
        "quality": {
            "name": study.facts.quality_name,
            "value": scores.quality,
            "direction": str(study.facts.quality_direction),
            "noise": scores.quality_half_width,
        },
        "cost_usd_per_million_samples": scores.cost_usd_per_million_samples,
        "environment": to_plain(study.environment),
    }


def trial_columns(study: StudyRecord) -> list[str]:
    """Return the columns that a CSV of a study's trials has, whatever came of them."""
    name, config = study.spec.name, TrainingConfig()
    trial = TrialRecord(study=name, number=0, config=config, state=TrialState.LEASED)
    steps = dict.fromkeys(STEP_SECONDS)
    return list(flattened({**trial_document(trial, study), "step_seconds": steps}))


def flattened(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a document without nesting: the keys of one within another joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            flat.update(flattened(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def export_config(trial: TrialRecord, study: StudyRecord, *, form: str, now: datetime) -> str:
    """Return a trial's config as a file for the pipeline that will train.

    It holds the config, the batch it makes, what it was measured to need, and where it is from.

    Raises:
        SettingsError: No such format.
    """
    document = export_document(trial, study, now)
    if form == "json":
        return json.dumps(document, indent=2) + "\n"
    if form == "toml":
        return _to_toml(document)
    raise SettingsError(f"no export format {form!r}; known: {', '.join(EXPORT_FORMATS)}")


def export_document(trial: TrialRecord, study: StudyRecord, now: datetime) -> dict[str, Any]:
    """Return what is known of a trial, for whoever trains with its config."""
    config, devices = trial.config, study.spec.space.num_devices
    measured = {
        key: value
        for key, value in trial_document(trial, study).items()
        if key.startswith(("throughput", "peak", "cost")) and value is not None
    }
    if trial.scores.quality is not None:
        measured[study.facts.quality_name] = trial.scores.quality
    return {
        "study": trial.study,
        "trial": trial.number,
        "exported_at": now.isoformat(timespec="seconds"),
        "workload": study.spec.workload,
        "config": config.as_dict(),
        "batch": {
            "micro_batch_size": config.micro_batch_size,
            "accumulation_steps": config.accumulation_steps,
            "num_devices": devices,
            "global_batch_size": config.effective_batch_size(devices),
        },
        "optimizer": _optimizer_settings(config, study),
        "needs": needs_of(trial, study),
        "measured": measured,
        "environment": {k: v for k, v in to_plain(study.environment).items() if v is not None},
    }


def _optimizer_settings(config: TrainingConfig, study: StudyRecord) -> dict[str, Any]:
    """Return how the trial's optimizer was set, without what it has not or is not known."""
    rule, rate = UPDATE_RULES[config.optimizer], study.facts.learning_rate
    settings = {
        "learning_rate": None if rate is None else rate * rule.relative_rate,
        "weight_decay": rule.weight_decay,
        "betas": None if rule.betas is None else list(rule.betas),
        "momentum": rule.momentum,
    }
    return {name: value for name, value in settings.items() if value is not None}


def read_exported_config(path: Path) -> TrainingConfig:
    """Read the config from a file that ``export_config`` wrote, or that has its ``config`` table.

    Raises:
        SettingsError: No such file, or none of ours.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError as error:
        raise SettingsError(f"no baseline file {str(path)!r}; check the path") from error
    except OSError as error:
        raise SettingsError(
            f"baseline file {str(path)!r} cannot be read: {error.strerror}"
        ) from error
    except ValueError as error:
        raise SettingsError(f"{str(path)!r} cannot be read as JSON or TOML: {error}") from error
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, Mapping):
        raise SettingsError(f"{str(path)!r} has no 'config' table of knobs")
    try:
        return TrainingConfig.from_mapping(config)
    except InvalidConfigError as error:
        raise SettingsError(f"{str(path)!r}: {error}") from error


def _to_toml(document: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in document.items() if isinstance(value, Mapping)}
    lines = [f"{key} = {_toml_value(value)}" for key, value in plain.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _toml_key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else _toml_value(name)


def _toml_value(value: object) -> str:
    """Return a string, number or boolean; JSON's own form is TOML's, but for two escapes."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
