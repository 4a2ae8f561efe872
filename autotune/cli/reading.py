"""Commands that look at the store, and the few that change it without running anything."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from autotune.cli.options import Output
from autotune.cli.tables import front_table, studies_table, trials_table, write_documents
from autotune.documents import export_config, trial_document
from autotune.errors import NoMeasurementsError, SettingsError
from autotune.front import recommend
from autotune.optimizer.study import delete_optuna_study, opened_storage
from autotune.records import StudyRecord, TrialRecord
from autotune.settings import Settings
from autotune.store.base import StudyStore
from autotune.store.leases import this_process
from autotune.store.migrate import migrate
from autotune.store.sql import SqlStore
from trials.codec import to_plain


def show_studies(settings: Settings, output: Output) -> None:
    """Write every study's line."""
    with _reading(settings) as store:
        found = store.studies()
    if output == Output.TABLE:
        studies_table(found)
        return
    documents = [{**to_plain(s), "created_at": s.created_at.isoformat()} for s in found]
    write_documents(documents, output)


def show_trials(settings: Settings, output: Output) -> None:
    """Write every trial of a study."""
    with _reading(settings) as store:
        study, found = store.study(_name(settings)), store.trials(_name(settings))
    if output == Output.TABLE:
        trials_table(study, found)
        return
    write_documents([trial_document(trial, study) for trial in found], output)


def show_front(settings: Settings, output: Output) -> None:
    """Write a study's front.

    Raises:
        NoMeasurementsError: It has none yet.
    """
    with _reading(settings) as store:
        study, found = _front(store, _name(settings))
        recommended = store.recommended(_name(settings))
    if output == Output.TABLE:
        front_table(study, found, recommended)
        return
    write_documents([trial_document(trial, study) for trial in found], output)


def show_best(settings: Settings, output: Output) -> None:
    """Write the recommended point of a study.

    Raises:
        NoMeasurementsError: There is none yet.
    """
    with _reading(settings) as store:
        study, found = _front(store, _name(settings))
    chosen = recommend(found, study.spec.objectives, study.facts.quality_direction)
    assert chosen is not None
    best = [trial for trial in found if trial.number == chosen.number]
    if output == Output.JSON:
        sys.stdout.write(json.dumps(trial_document(best[0], study), indent=2) + "\n")
    elif output == Output.CSV:
        write_documents([trial_document(best[0], study)], output)
    else:
        front_table(study, best, chosen.number)
        sys.stdout.write(f"Recommended: trial {chosen.number}, {chosen.reason}.\n")


def export_trial(settings: Settings, *, form: str, number: int | None, to: Path | None) -> None:
    """Write a trial's config to a file or to standard output.

    Raises:
        NoMeasurementsError: No such trial, or no recommended one yet.
        SettingsError: No such format.
    """
    with _reading(settings) as store:
        study = store.study(_name(settings))
        wanted = store.recommended(_name(settings)) if number is None else number
        found = [t for t in store.trials(_name(settings)) if t.number == wanted]
    if not found:
        label = "recommended trial" if number is None else f"trial {number}"
        raise NoMeasurementsError(
            f"study {study.spec.name!r} has no {label}; see autotune trials {study.spec.name}"
        )
    text = export_config(found[0], study, form=form, now=datetime.now(UTC))
    if to is None:
        sys.stdout.write(text)
    else:
        _write(to, text)
    if not found[0].is_feasible:
        sys.stderr.write(f"warning: trial {found[0].number} is {found[0].outcome}, not feasible\n")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{str(path)!r} cannot be written: {error.strerror}") from error
    sys.stderr.write(f"wrote {path}\n")


def migrate_store(settings: Settings) -> None:
    """Bring a store to the current schema, and say from which."""
    before, now = migrate(settings.store)
    sys.stderr.write(f"store schema: {before or 'none'} -> {now}\n")


def delete_study(settings: Settings) -> None:
    """Remove a study from our tables and Optuna's."""
    with _reading(settings) as store:
        state = store.study(_name(settings)).state
        epoch = store.claim(_name(settings), this_process(), lease_seconds=30.0)
        store.release(_name(settings), epoch, state, "being deleted")
        # Optuna's part first: should this end in between, the study is there to delete again.
        with opened_storage(settings.store) as storage:
            delete_optuna_study(storage, _name(settings))
        store.delete_study(_name(settings))
    sys.stderr.write(f"deleted study {_name(settings)}\n")


@contextmanager
def _reading(settings: Settings) -> Iterator[StudyStore]:
    store = SqlStore.open(settings.store)
    try:
        yield store
    finally:
        store.close()


def _name(settings: Settings) -> str:
    assert settings.study is not None
    return settings.study


def _front(store: StudyStore, name: str) -> tuple[StudyRecord, list[TrialRecord]]:
    study, found = store.study(name), store.front(name)
    if not found:
        raise NoMeasurementsError(
            f"study {name!r} has no front yet: no trial has completed; see autotune trials {name}"
        )
    return study, found
