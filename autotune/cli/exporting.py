"""The command that hands a trial's config to the program that will train."""

import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from autotune.cli.files import require_place, write_file
from autotune.errors import NoMeasurementsError
from autotune.exports import Handover, export_bundle
from autotune.settings import Settings
from autotune.store.reader import StoreReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is to be written, and where.

    Attributes:
        form: Format of the file.
        number: Of the trial; the recommended one if None.
        pair: Format of a file that belongs to it and is written beside; None for none.
        steps: Optimizer steps to pin; None leaves them to the training.
        to: File; standard output if None.
        replaces: Whether files may exist.
    """

    form: str
    number: int | None
    pair: str | None
    steps: int | None
    to: Path | None
    replaces: bool


def export_trial(settings: Settings, request: ExportRequest) -> None:
    """Write a trial's config to a file or to standard output, and what it does not say.

    Raises:
        NoMeasurementsError: No such trial, or no recommended one yet.
        SettingsError: No such format, or a file that exists or cannot be written.
        UnsupportedExportError: The format cannot express the config.
    """
    handover = _handover(settings, request)
    trial = handover.trial
    bundle = export_bundle(handover, form=request.form, pair=request.pair, to=request.to)
    if request.to is None:
        sys.stdout.write(bundle.text)
    else:
        files = [(request.to, bundle.text), *bundle.beside]
        for path, _ in files:
            require_place(path, request.replaces)
        for path, text in files:
            write_file(path, text)
            sys.stderr.write(f"wrote trial {trial.number} of {trial.study} to {path}\n")
    for note in bundle.notes:
        sys.stderr.write(f"note: {note}\n")
    if not trial.is_feasible:
        sys.stderr.write(f"warning: trial {trial.number} is {trial.outcome}, not feasible\n")


def _handover(settings: Settings, request: ExportRequest) -> Handover:
    name = settings.study
    assert name is not None
    with closing(StoreReader.open(settings.store)) as store:
        study = store.study(name)
        wanted = store.recommended(name) if request.number is None else request.number
        found = [trial for trial in store.trials(name) if trial.number == wanted]
    if not found:
        label = "recommended trial" if request.number is None else f"trial {request.number}"
        raise NoMeasurementsError(f"study {name!r} has no {label}; see autotune trials {name}")
    return Handover(trial=found[0], study=study, now=datetime.now(UTC), steps=request.steps)
