"""The profile of a probe: the folder that takes it, and what a terminal shows of it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from autotune.cli.tables import MIB, write_table
from autotune.errors import SettingsError
from autotune.settings import Settings
from trials.command_line import is_command
from trials.measurement import Measurement
from trials.profile import OperatorUse, Profile, Wait

WAIT_ROWS = {
    Wait.DATA: "data (the next batch)",
    Wait.HOST: "host (copies, optimizer on the processor, launching)",
    Wait.DISK: "disk (DeepSpeed's swapping)",
}
ONE_PLACE = "host and device are one on a CPU"
VIEWERS = "https://ui.perfetto.dev and chrome://tracing open trace.json"
SNAPSHOT_VIEWER = "https://pytorch.org/memory_viz opens memory_snapshot.pickle"


def prepare_folder(settings: Settings, folder: Path, *, replaces: bool) -> None:
    """Make the folder of a profile, before anything is measured.

    Args:
        settings: Of the probe.
        folder: To make, or to use.
        replaces: Whether it may hold files, which a profile then replaces by name.

    Raises:
        SettingsError: No profile can be made of this workload, or there; the message says why.
    """
    if is_command(settings.workload):
        raise SettingsError(
            "--profile shows what torch does in a trial's own process, and a command: workload "
            "is a program of its own; profile it with its framework's tools"
        )
    if settings.ray_address is not None:
        raise SettingsError(
            f"--profile writes on the machine that runs the trial, and --ray-address "
            f"{settings.ray_address} may run it on another; log in there and use --local"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except FileExistsError as error:
        raise SettingsError(f"--profile {folder} is a file; give a folder") from error
    except OSError as error:
        raise SettingsError(f"--profile {folder}: {error.strerror}; give another") from error
    if not is_empty and not replaces:
        raise SettingsError(
            f"--profile {folder} is not empty; give another folder, or --force to write there"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"--profile {folder} cannot be written; give another folder")


def tell_why_none(profiled: Measurement | None, folder: Path) -> None:
    """Write to standard error why there is no profile; nothing where there is one."""
    if profiled is None:
        sys.stderr.write(f"no profile in {folder}: only a config that completes is profiled\n")
    elif profiled.profile is None:
        outcome = str(profiled.outcome).replace("_", " ")
        sys.stderr.write(
            f"no profile in {folder}: the second trial, which makes it, ended as {outcome}: "
            f"{profiled.reason}; the measurement stands\n"
        )


def show_profile(found: Profile, *, is_cpu: bool) -> None:
    """Write what a profile found to standard output."""
    sys.stdout.write(
        f"Profile of {found.num_steps} steps of a second trial, {found.step_seconds * 1e3:,.1f} "
        f"ms each under the profiler, peak {found.peak_bytes / MIB:,.1f} MiB\n"
        "The profiler slows the steps and holds memory of its own: the measurement above stands.\n"
    )
    write_table("Waits", ["kind", "share", "ms per step"], _wait_rows(found))
    if is_cpu:
        sys.stdout.write(f"{ONE_PLACE}: what is not a wait for data or disk is compute.\n")
    columns = ["operator", "calls", "ms", "MiB"]
    write_table("Operators by time, per step", columns, _operator_rows(found.by_time))
    write_table("Operators by memory, per step", columns, _operator_rows(found.by_memory))
    folder = Path(found.files[0]).parent
    names = [Path(name).name for name in found.files]
    viewers = [VIEWERS, *([SNAPSHOT_VIEWER] if len(names) > 4 else [])]
    sys.stdout.write(f"wrote {', '.join(names)} to {folder}; {'; '.join(viewers)}\n")


def _wait_rows(found: Profile) -> list[list[str]]:
    waits = {Wait(kind): seconds for kind, seconds in found.wait_seconds.items()}
    rows = [(WAIT_ROWS[wait], seconds) for wait, seconds in waits.items()]
    rows.append(("none: the device computes", found.step_seconds - sum(waits.values())))
    return [
        [name, f"{seconds / found.step_seconds:.1%}", f"{seconds * 1e3:,.2f}"]
        for name, seconds in rows
    ]


def _operator_rows(operators: Sequence[OperatorUse]) -> list[list[str]]:
    return [
        [
            use.name,
            f"{use.calls:,.4g}",
            f"{use.seconds * 1e3:,.2f}",
            f"{use.allocated_bytes / MIB:,.2f}",
        ]
        for use in operators
    ]
