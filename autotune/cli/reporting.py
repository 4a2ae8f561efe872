"""The command that writes a study as a page. It runs and changes nothing."""

import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from autotune.cli.files import require_place, write_file
from autotune.errors import NoMeasurementsError
from autotune.report.page import draw_report
from autotune.settings import Settings
from autotune.store.reader import StoreReader


def write_report(settings: Settings, to: Path | None, *, replaces: bool) -> None:
    """Write a study's report.

    Args:
        settings: Of the command.
        to: File; one named after the study, in this folder, where None.
        replaces: Whether the file may exist.

    Raises:
        NoMeasurementsError: No trial is on a front yet.
        SettingsError: The file cannot be written.
    """
    name = settings.study
    assert name is not None
    path = to or Path(f"{name.replace('/', '-')}.html")
    require_place(path, replaces)
    with closing(StoreReader.open(settings.store)) as reader, reader.snapshot() as store:
        study, trials = store.study(name), store.trials(name)
    if not any(trial.is_feasible for trial in trials):
        raise NoMeasurementsError(
            f"study {name!r} has nothing to report: no trial has completed and been scored; "
            f"see autotune trials {name}"
        )
    write_file(path, draw_report(study, trials, datetime.now(UTC)))
    sys.stderr.write(f"wrote {path}\n")
