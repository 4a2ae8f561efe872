"""The command that checks the machine."""

import sys

import typer

from autotune.checks import Check, Status
from autotune.cli.options import Output
from autotune.cli.tables import write_documents, write_table
from autotune.doctor import run_checks
from autotune.errors import REPLIES
from autotune.inspection import this_machine
from autotune.settings import Settings
from trials.codec import to_plain
from trials.errors import TrialSetupError, WorkloadError

WIDEST = 100
"""Columns of the table where no terminal says how many there are: it is prose, not numbers."""


def build_and_tell() -> None:
    """Compile DeepSpeed's operators; exit as for a broken machine if one fails."""
    from trials.zero import build_operators  # imports torch

    troubles = build_operators(lambda name: _say(f"building {name}, which takes minutes, once"))
    for trouble in troubles:
        _say(trouble)
    if troubles:
        raise typer.Exit(REPLIES[TrialSetupError].exit_code)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _found(check: Check) -> str:
    """Return what was found, and what a study leaves out for it."""
    if not check.left_out:
        return check.found
    return f"{check.found}; leaves out {', '.join(check.left_out)}"


def show_checks(settings: Settings, output: Output) -> None:
    """Write what every check found.

    Exits as for a machine that cannot run trials if so, or else as for a workload that cannot.
    """
    with this_machine() as machine:
        checks = run_checks(settings, machine)
    if output == Output.TABLE:
        rows = [[check.name, check.status, _found(check), check.remedy] for check in checks]
        write_table("Checks", ["check", "status", "found", "remedy"], rows, widest=WIDEST)
    else:
        write_documents([to_plain(check) for check in checks], output)
    failed = [check for check in checks if check.status == Status.FAILED]
    if failed:
        is_theirs = all(check.is_users_fault for check in failed)
        error = WorkloadError if is_theirs else TrialSetupError
        raise typer.Exit(REPLIES[error].exit_code)
