"""The command that trains with what is exported before it is recommended."""

import sys

from autotune.errors import SettingsError
from autotune.records import TrialRecord
from autotune.settings import Settings
from autotune.verdicts import Verdict, verified_text
from autotune.verifying import TARGETS, Request, verify_study
from trials.spec import Through


def verify_and_show(settings: Settings, *, number: int | None, through: str, repeats: int) -> None:
    """Verify a trial, or the best that holds, and write what came of each to standard output.

    Raises:
        SettingsError: No such program.
        NothingFitsError: None holds.
    """
    if through not in TARGETS:
        raise SettingsError(f"--through {through!r}: known: {', '.join(TARGETS)}")
    request = Request(number=number, through=Through(through), repeats=repeats)
    trial = verify_study(settings, request, _tell)
    if number is None:
        sys.stdout.write(f"Recommended: trial {trial.number} ({trial.config}).\n")


def _tell(trial: TrialRecord, verdict: Verdict) -> None:
    text = verified_text(trial.study, {verdict.through: verdict})
    sys.stdout.write(f"Trial {trial.number}: {text[0].lower()}{text[1:]}")
    sys.stdout.flush()
