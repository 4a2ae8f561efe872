"""Studies in the experiment trackers that teams have. Each client has one door here."""

import os
from importlib import import_module
from pathlib import Path

from autotune.errors import SettingsError, TrackingError
from autotune.tracking.base import Recorded, Tracker, tracked_study

__all__ = ["TRACKERS", "Recorded", "Tracker", "open_tracker", "tracked_study"]

TRACKERS = {"mlflow": "mlflow-skinny", "wandb": "wandb"}
"""Names of trackers, each with the package that its client is of; its extra has its name."""
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_MODE": "offline",
}
"""What clients are told unless the environment says otherwise; they read it when imported."""


def open_tracker(name: str, folder: Path | None) -> Tracker:
    """Return a tracker, its client loaded.

    Args:
        name: One of ``TRACKERS``.
        folder: Where it keeps runs on this machine; None leaves that to the client's own
            environment variables.

    Raises:
        SettingsError: No such tracker.
        TrackingError: Its client is not installed, or cannot be used.
    """
    if name not in TRACKERS:
        raise SettingsError(f"no tracker {name!r}; known: {', '.join(TRACKERS)}")
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)
    try:
        door = import_module(f"autotune.tracking.{name}")
    except ImportError as error:
        raise TrackingError(
            f"--to {name} needs {TRACKERS[name]}: run pip install 'autotune[{name}]' ({error})"
        ) from error
    tracker: Tracker = door.open_tracker(folder)
    return tracker
