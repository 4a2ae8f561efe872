"""Commands that look at the store, and the few that change it without running anything."""

import json
import sys
from contextlib import closing
from dataclasses import fields
from typing import Any

import typer

from autotune.cli.interrupts import INTERRUPTED
from autotune.cli.options import Output
from autotune.cli.tables import front_table, studies_table, trials_table, write_documents
from autotune.documents import trial_columns, trial_document
from autotune.errors import NoMeasurementsError, SettingsError
from autotune.front import recommend
from autotune.optimizer.storage import delete_optuna_study, opened_storage
from autotune.prices.savings import savings_of
from autotune.records import StudyRecord, StudyState, StudySummary, TrialRecord
from autotune.reruns import Rerun, reruns_of, verdict_text
from autotune.settings import Settings, default_store, default_store_path
from autotune.store.base import StudyStore
from autotune.store.leases import this_process
from autotune.store.migrate import migrate
from autotune.store.reader import StoreReader
from autotune.store.sql import SqlStore
from autotune.summary import against_baseline, baseline_of, shown_state, stopped_text
from autotune.verdicts import headline, is_verified, verified_text
from autotune.verifying import verdicts_of
from trials.codec import to_plain


def show_studies(settings: Settings, output: Output) -> None:
    """Write every study's line, or in words that there are none yet."""
    found, driven = _studies(settings)
    if not found:
        sys.stderr.write("no studies yet; begin one with: autotune run\n")
    if output != Output.TABLE:
        documents = [_study_document(study, study.name in driven) for study in found]
        write_documents(documents, output, [field.name for field in fields(StudySummary)])
    elif found:
        studies_table(found, driven)


def show_trials(settings: Settings, output: Output) -> None:
    """Write every trial of a study."""
    name = _name(settings)
    with closing(StoreReader.open(settings.store)) as reader, reader.snapshot() as store:
        study, found, is_driven = store.study(name), store.trials(name), name in store.driven()
        reruns = _reruns(store, study)
        verified = _verified(store, study)
    if study.state == StudyState.RUNNING and not is_driven:
        sys.stderr.write(f"study {name}: {stopped_text(name)}\n")
    if output == Output.TABLE:
        trials_table(study, found, is_driven, reruns)
        return
    documents = [
        trial_document(
            trial,
            study,
            is_driven=is_driven,
            rerun=reruns.get(trial.number),
            is_verified=verified.get(trial.number),
        )
        for trial in found
    ]
    write_documents(documents, output, trial_columns(study))


def show_front(settings: Settings, output: Output) -> None:
    """Write a study's front.

    Raises:
        NoMeasurementsError: It has none yet.
    """
    with closing(StoreReader.open(settings.store)) as reader, reader.snapshot() as store:
        study, found = _front(store, _name(settings))
        recommended = store.recommended(_name(settings))
        reruns = _reruns(store, study)
        verified = _verified(store, study)
    if output == Output.TABLE:
        front_table(study, found, recommended)
        return
    documents = [
        trial_document(
            trial, study, rerun=reruns.get(trial.number), is_verified=verified[trial.number]
        )
        for trial in found
    ]
    write_documents(documents, output, trial_columns(study))


def show_best(settings: Settings, output: Output) -> None:
    """Write the recommended point of a study, and why.

    Raises:
        NoMeasurementsError: There is none yet.
    """
    with closing(StoreReader.open(settings.store)) as reader, reader.snapshot() as store:
        study, found = _front(store, _name(settings))
        baseline = baseline_of(store.trials(_name(settings)), study)
        reruns = _reruns(store, study)
        verdicts = {trial.number: verdicts_of(store, study, trial) for trial in found}
    holding = [trial for trial in found if is_verified(verdicts[trial.number]) is not False]
    chosen = recommend(holding or found, study.spec.objectives, study.facts.quality_direction)
    assert chosen is not None
    best = [trial for trial in found if trial.number == chosen.number]
    document = trial_document(
        best[0],
        study,
        rerun=reruns.get(chosen.number),
        is_verified=is_verified(verdicts[chosen.number]),
    )
    document["recommendation"] = chosen.reason
    if output == Output.JSON:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    elif output == Output.CSV:
        write_documents([document], output, trial_columns(study))
    else:
        front_table(study, best, chosen.number)
        label = headline(verdicts[chosen.number])
        sys.stdout.write(f"{label}: trial {chosen.number}, {chosen.reason}.\n")
        sys.stdout.write(verdict_text(best[0], reruns))
        for number, found_of in verdicts.items():
            if number != chosen.number and is_verified(found_of) is False:
                sys.stdout.write(f"Trial {number}: {verified_text(study.spec.name, found_of)}")
        sys.stdout.write(verified_text(study.spec.name, verdicts[chosen.number]))
        _tell_against_baseline(best[0], baseline, study)


def _tell_against_baseline(
    best: TrialRecord, baseline: TrialRecord | None, study: StudyRecord
) -> None:
    """Write what the recommended point gains on the config of today, and how sure that is."""
    if baseline is None:
        return
    words = against_baseline(best, baseline, study.spec.memory_budget_bytes)
    sys.stdout.write(f"{words[0].upper()}{words[1:]}.\n")
    savings = savings_of(best, baseline)
    if savings is not None:
        sys.stdout.write(f"How sure, {savings}.\n")


def migrate_store(settings: Settings) -> None:
    """Bring a store to the current schema, and say from which."""
    before, now = migrate(settings.store)
    sys.stderr.write(f"store schema: {before or 'none'} -> {now}\n")


def delete_study(settings: Settings, *, asks: bool) -> None:
    """Remove a study from our tables and Optuna's.

    Args:
        settings: Of the command.
        asks: Whether a person must agree first.

    Raises:
        SettingsError: Nobody is there to agree.
    """
    with closing(StoreReader.open(settings.store)) as existing:
        state = existing.study(_name(settings)).state
    if asks and not _is_agreed(f"delete study {_name(settings)!r} from the store?"):
        sys.stderr.write("nothing deleted\n")
        return
    with closing(SqlStore.open(settings.store)) as store:
        epoch = store.claim(_name(settings), this_process(), lease_seconds=30.0)
        store.release(_name(settings), epoch, state, "being deleted")
        # Optuna's part first: should this end in between, the study is there to delete again.
        with opened_storage(settings.store) as storage:
            delete_optuna_study(storage, _name(settings))
        store.delete_study(_name(settings))
    sys.stderr.write(f"deleted study {_name(settings)}\n")


def _is_agreed(question: str) -> bool:
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\nnothing deleted\n")
        raise typer.Exit(INTERRUPTED) from None
    if not answer:
        sys.stderr.write("\n")
        raise SettingsError("nobody answers; give --yes to delete without asking")
    return answer.strip().lower() in {"y", "yes"}


def _studies(settings: Settings) -> tuple[list[StudySummary], frozenset[str]]:
    """Return the studies, and which of them a living driver runs; none if nothing was begun."""
    if settings.store == default_store() and not default_store_path().exists():
        return [], frozenset()
    with closing(StoreReader.open(settings.store)) as reader, reader.snapshot() as store:
        return store.studies(), store.driven()


def _study_document(study: StudySummary, is_driven: bool) -> dict[str, Any]:
    state, reason = shown_state(study, is_driven)
    changed = {"state": state, "stop_reason": reason, "created_at": study.created_at.isoformat()}
    return {**to_plain(study), **changed}


def _name(settings: Settings) -> str:
    assert settings.study is not None
    return settings.study


def _reruns(store: StudyStore, study: StudyRecord) -> dict[int, Rerun]:
    later = store.later_measurements(study.spec.name)
    return reruns_of(later, study.spec.memory_budget_bytes)


def _verified(store: StudyStore, study: StudyRecord) -> dict[int, bool | None]:
    """Return what training with the export of each point of the front said, by trial."""
    return {
        trial.number: is_verified(verdicts_of(store, study, trial))
        for trial in store.front(study.spec.name)
    }


def _front(store: StudyStore, name: str) -> tuple[StudyRecord, list[TrialRecord]]:
    study, found = store.study(name), store.front(name)
    if not found:
        raise NoMeasurementsError(
            f"study {name!r} has no front yet: no trial has completed and been scored; "
            f"see autotune trials {name}"
        )
    return study, found
