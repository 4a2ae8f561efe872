"""The command that hands a study to an experiment tracker. It runs nothing, and only reads."""

import sys
from contextlib import closing
from pathlib import Path

from autotune.errors import NoMeasurementsError
from autotune.settings import Settings
from autotune.store.reader import StoreReader
from autotune.tracking import open_tracker, tracked_study


def track_study(settings: Settings, to: str, folder: Path | None) -> None:
    """Bring a tracker up to date with a study.

    Raises:
        NoMeasurementsError: The study has no measured trial yet.
        SettingsError: No such tracker.
        TrackingError: It is not installed, refuses, or cannot be reached.
    """
    name = settings.study
    assert name is not None
    with closing(StoreReader.open(settings.store)) as reader, reader.snapshot() as store:
        tracked = tracked_study(
            store.study(name),
            store.trials(name),
            front={trial.number for trial in store.front(name)},
            recommended=store.recommended(name),
            is_driven=name in store.driven(),
        )
    if not tracked.trials:
        raise NoMeasurementsError(f"study {name!r} has no measured trial; see autotune trials")
    done = open_tracker(to, folder).record(tracked)
    sys.stderr.write(
        f"{len(tracked.trials)} trials of {name} in {done.place}: {done.num_new} new, "
        f"{done.num_changed} changed, {done.num_same} as they were\n"
    )
