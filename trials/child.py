"""The trial process: cut loose from its host's terminal, tied to its host's life."""

import ctypes
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path

from trials.errors import TrialSetupError
from trials.measurement import Failure, Measurement, Outcome
from trials.processes import TRIAL_ID_VARIABLE, end_strays
from trials.spec import TrialSpec

PRELOAD = "trials.preload"
_PR_SET_PDEATHSIG = 1
_LIKELIEST_VICTIM = "1000"


def main(connection: Connection, spec_json: str, runner: str, log_path: str) -> None:
    """Run one trial and report through a pipe: when it started, each phase, the result.

    Args:
        connection: Written to, one JSON object a message.
        spec_json: A ``TrialSpec``.
        runner: ``module:function`` from a spec and a phase callback to a measurement.
        log_path: Takes what the workload prints.
    """
    _send(connection, started=time.monotonic())
    spec = TrialSpec.from_json(spec_json)
    try:
        _isolate(spec.trial_id, log_path)
    except FileNotFoundError:
        os._exit(1)  # the host is gone, and with it its folder and whoever would read of it
    run = _resolve(runner) if PRELOAD in sys.modules else _refuse
    measurement = run(spec, lambda phase: _send(connection, phase=phase))
    _send(connection, result=measurement.to_json())
    connection.close()
    # Nothing of the trial is worth tearing down in order; the kernel does it faster.
    os._exit(0)


def _isolate(trial_id: str, log_path: str) -> None:
    os.setpgid(0, 0)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ[TRIAL_ID_VARIABLE] = trial_id
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(
        target=_die_with_host, args=(trial_id,), name="die-with-host", daemon=True
    ).start()
    # When the host's memory runs out, the kernel should end the trial, not what watches it.
    Path("/proc/self/oom_score_adj").write_text(_LIKELIEST_VICTIM)


def _die_with_host(trial_id: str) -> None:
    host = parent_process()
    assert host is not None
    wait([host.sentinel])
    end_strays(trial_id)
    os.killpg(0, signal.SIGKILL)


def _refuse(spec: TrialSpec, on_phase: Callable[[str], None]) -> Measurement:
    """Stand in for a runner where ``multiprocessing`` kept silent about a failed preload.

    Trials would run, but each would import torch anew, within its deadline and its budget.
    """
    reason = (
        f"{TrialSetupError.__name__}: the helper process that starts trials could not import "
        f"{PRELOAD}; `{sys.executable} -c 'import {PRELOAD}'` says why"
    )
    failure = Failure(reason=reason, phase="start")
    return Measurement(outcome=Outcome.CRASHED, failure=failure)


def _resolve(dotted: str) -> Callable[[TrialSpec, Callable[[str], None]], Measurement]:
    module, _, name = dotted.partition(":")
    found: Callable[[TrialSpec, Callable[[str], None]], Measurement]
    found = getattr(importlib.import_module(module), name)
    return found


def _send(connection: Connection, **message: object) -> None:
    connection.send_bytes(json.dumps(message).encode())
