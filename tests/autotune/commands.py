"""Run ``autotune`` commands: in this process, where the helper of trials is kept, or apart."""

import io
import os
import signal
import subprocess
import sys
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from autotune.cli import run_command
from trials.host import TrialHost

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Done:
    """What a command left behind, under the names of ``subprocess.CompletedProcess``."""

    returncode: int
    stdout: str
    stderr: str


@contextmanager
def kept_helper():
    """Keep the process alive that forks trials: it takes seconds to start, once per command."""
    host = TrialHost()
    try:
        yield
    finally:
        host.close()


def call_here(*arguments, folder=None, **environment):
    """Run a command within this process.

    Trials see the environment of when their helper started, not the one that is given.
    """
    before = signal.getsignal(signal.SIGINT)
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            chdir(folder or Path.cwd()),
            mock.patch.dict(os.environ, environment),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = run_command(list(map(str, arguments)))
    finally:
        signal.signal(signal.SIGINT, before)
    return Done(code, out.getvalue(), err.getvalue())


def call_apart(*arguments, folder=None, **environment):
    """Run a command in a process of its own, as a shell does."""
    return subprocess.run(
        [sys.executable, "-m", "autotune.cli", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
