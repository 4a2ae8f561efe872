"""The machine as ``autotune.doctor`` asks it: each question can be answered by a test instead."""

import importlib.metadata
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trials import nvml
from trials.host import TrialHost
from trials.machine import free_disk_bytes, host_free_bytes, usable_cores
from trials.measurement import Measurement
from trials.spec import TrialSpec

C_COMPILERS = ("cc", "gcc", "clang")
PATIENCE_SECONDS = 120.0
"""How long a process of a check may take; the first import of torch can take a minute."""


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def complaint_about(code: str) -> str:
    """Run Python code in a process of its own and return its last words; empty if it worked."""
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {PATIENCE_SECONDS:.0f} seconds"
    if done.returncode == 0:
        return ""
    return done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"


def lacks_header(name: str) -> bool:
    """Tell whether the C compiler does not find a header; without a compiler, none is found."""
    compiler = next(filter(None, map(shutil.which, C_COMPILERS)), None)
    if compiler is None:
        return True
    command = [compiler, "-E", "-x", "c", "-"]
    source = f"#include <{name}>\n"
    return subprocess.run(command, input=source, text=True, capture_output=True).returncode != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the checks ask, and who answers.

    Attributes:
        run_trial: Runs a trial in a process of its own.
        system: The operating system's name.
        complaint_about: Tries Python code in a process of its own.
        find_program: Finds a program by name.
        lacks_header: Tells whether the C compiler does not find a header.
        installed_version: Finds a package's version.
        cores: Lists the cores that may be used.
        free_memory_bytes: Reads the host memory that could be had.
        free_disk_bytes: Reads the space left in a folder.
        temporary_folder: Finds where temporary files go.
        num_gpus: Counts GPUs.
        driver_version: Asks the NVIDIA driver.
        device_files: Where the kernel shows devices.
    """

    run_trial: Callable[[TrialSpec], Measurement]
    system: str = field(default_factory=platform.system)
    complaint_about: Callable[[str], str] = complaint_about
    find_program: Callable[[str], str | None] = shutil.which
    lacks_header: Callable[[str], bool] = lacks_header
    installed_version: Callable[[str], str | None] = installed_version
    cores: Callable[[], tuple[int, ...]] = usable_cores
    free_memory_bytes: Callable[[], int] = host_free_bytes
    free_disk_bytes: Callable[[Path], int] = free_disk_bytes
    temporary_folder: Callable[[], str] = tempfile.gettempdir
    num_gpus: Callable[[], int] = nvml.num_gpus
    driver_version: Callable[[], str] = nvml.driver_version
    device_files: Path = Path("/dev")


@contextmanager
def this_machine() -> Iterator[Machine]:
    """Yield the machine as it is."""
    host = TrialHost()
    try:
        yield Machine(run_trial=host.run)
    finally:
        host.close()
