"""Learn by measurement which memory configuration to train with.

The Python API does what the commands do::

    from autotune import Settings, StopSwitch, run_study

    settings = Settings.load({"workload": "mine.py:Mine", "trials": 20})
    study, result = run_study(settings, {}, listen=print, stop=StopSwitch())
    result.front, result.recommendation
"""

from importlib import import_module
from typing import Any

_PLACES = {
    "Settings": "autotune.settings",
    "SqlStore": "autotune.store.sql",
    "StopSwitch": "autotune.stopping",
    "StudyResult": "autotune.tuner",
    "apply": "trials.applying",
    "probe": "autotune.session",
    "resume_study": "autotune.session",
    "run_study": "autotune.session",
}

__all__ = [
    "Settings",
    "SqlStore",
    "StopSwitch",
    "StudyResult",
    "apply",
    "probe",
    "resume_study",
    "run_study",
]


def __getattr__(name: str) -> Any:
    """Open a public name's module when it is first asked for: ``--help`` needs none of them."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
