"""A runner for tests of workers: does what the spec's workload says, ``scripted:WHAT[=VALUE]``."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trials.environment import Environment
from trials.measurement import Failure, Measurement, Outcome
from trials.spec import Task, TrialSpec

RUNNER = "tests.autotune.scripted:run"


def run(spec: TrialSpec, on_phase: Callable[[str], None]) -> Measurement:
    on_phase("load")
    if spec.task == Task.ENVIRONMENT:
        return Measurement(outcome=Outcome.COMPLETED, environment=_environment_of(spec))
    what, _, value = spec.workload.removeprefix("scripted:").partition("=")
    if what == "placement":
        return said(f"{spec.device} {spec.num_threads} {' '.join(map(str, spec.cores))}")
    return ACTIONS[what](value)


def run_nowhere(spec: TrialSpec, on_phase: Callable[[str], None]) -> Measurement:
    """A runner to which no environment is good enough."""
    return Measurement(
        outcome=Outcome.CRASHED, failure=Failure(reason="scripted fault", phase="device")
    )


def said(text: str) -> Measurement:
    """A measurement that carries a text."""
    failure = Failure(reason=text, phase="load")
    return Measurement(outcome=Outcome.INVALID, failure=failure)


def _environment_of(spec: TrialSpec) -> Environment:
    file = os.environ.get("SCRIPTED_DEVICE_FILE")
    name = "Scripted" if file is None else Path(file).read_text()
    return Environment(
        device_kind=spec.device.partition(":")[0],
        device_name=name,
        device_memory_bytes=2**30,
        num_threads=spec.num_threads,
        python="3",
        torch="2",
    )


def _done(_: str) -> Measurement:
    return Measurement(outcome=Outcome.COMPLETED)


def _sleep(seconds: str) -> Measurement:
    time.sleep(float(seconds))
    return _done("")


def _hang(_: str) -> Measurement:
    while True:
        time.sleep(60)


def _exit(code: str) -> Measurement:
    os._exit(int(code))


def _kill(_: str) -> Measurement:
    os.kill(os.getpid(), signal.SIGKILL)
    return _hang("")


def _print(text: str) -> Measurement:
    sys.stdout.write(text)
    sys.stdout.flush()
    os._exit(1)


def _pad(size: str) -> Measurement:
    return said("x" * int(size))


def _environment(name: str) -> Measurement:
    return said(repr(os.environ.get(name)))


def _niceness(_: str) -> Measurement:
    return said(str(os.nice(0)))


def _stray(path: str) -> Measurement:
    """Start a program in a session of its own and a child in the trial's group."""
    program = subprocess.Popen(["sleep", "600"], start_new_session=True)
    while not Path(f"/proc/{program.pid}/environ").read_bytes():
        time.sleep(0.001)  # the kernel has not finished starting it: it has no environment yet
    if (child := os.fork()) == 0:
        time.sleep(600)
    _write_pids(path, [os.getpid(), program.pid, child])
    return _done("")


def _stray_and_hang(path: str) -> Measurement:
    _stray(path)
    return _hang("")


def _heir(path: str) -> Measurement:
    """Die and leave a child behind that holds the trial's pipe open."""
    if (child := os.fork()) == 0:
        os.setsid()
        time.sleep(600)
    _write_pids(path, [os.getpid(), child])
    os._exit(3)


def _write_pids(path: str, pids: list[int]) -> None:
    draft = f"{path}.draft"
    with open(draft, "w") as file:
        file.write(" ".join(map(str, pids)))
    os.rename(draft, path)


ACTIONS: dict[str, Callable[[str], Measurement]] = {
    "done": _done,
    "sleep": _sleep,
    "hang": _hang,
    "exit": _exit,
    "kill": _kill,
    "print": _print,
    "pad": _pad,
    "environment": _environment,
    "niceness": _niceness,
    "stray": _stray,
    "stray-and-hang": _stray_and_hang,
    "heir": _heir,
}
