"""A clean process that preloads torch and forks a fresh child for every trial.

The child is there within milliseconds; a process that imports torch itself takes seconds.
"""

import json
import multiprocessing
import multiprocessing.forkserver
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from trials.child import PRELOAD
from trials.child import main as child_main
from trials.devices import PATIENCE_SECONDS
from trials.errors import TrialSetupError
from trials.folders import PrivateFolder
from trials.groups import TrialGroup
from trials.machine import host_free_bytes, kernel_kills
from trials.measurement import Failure, Measurement, Outcome
from trials.outcomes import ExitEvidence, failed, from_exit, timed_out
from trials.processes import end_all, end_group, end_strays, in_group
from trials.spec import TrialSpec

TRIAL_RUNNER = "trials.runner:run_trial"
_LOG_TAIL_BYTES = 2000
_JOIN_SECONDS = 10.0
_start_lock = threading.Lock()
_open_hosts: set["TrialHost"] = set()


class TrialHost:
    """Starts trial processes, any number at once."""

    def __init__(self, runner: str = TRIAL_RUNNER, preload: Sequence[str] = ()) -> None:
        """Prepare a host; its helper process starts with the first trial.

        Args:
            runner: What the child calls, as ``module:function``.
            preload: Further modules that the helper imports, so that no trial has to.
        """
        self._runner = runner
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD, *preload])
        self._folder = PrivateFolder("autotune-host-")
        self._swap_folders: dict[str, PrivateFolder] = {}
        _open_hosts.add(self)

    def start(self, spec: TrialSpec) -> "RunningTrial | TrialGroup":
        """Start a trial, of one process or of several, and return at once.

        Raises:
            TrialSetupError: The helper process is broken.
        """
        if spec.is_group:
            return TrialGroup(spec, self._start_process, self._folder.path)
        return self._start_process(spec)

    def run(self, spec: TrialSpec) -> Measurement:
        """Run a trial to its end or its deadline.

        Raises:
            TrialSetupError: The helper process is broken.
        """
        trial = self.start(spec)
        try:
            return trial.result()
        finally:
            trial.end()

    def _start_process(self, spec: TrialSpec) -> "RunningTrial":
        path = spec.nvme_path
        if spec.swaps_to_disk and path is not None and os.access(path, os.W_OK):
            spec = replace(spec, nvme_path=self._swap_folder(path))
        return RunningTrial(spec, self._context, self._runner, self._folder.path)

    def _swap_folder(self, parent: str) -> str:
        """Return a folder of this host alone, which is removed even if the host is killed."""
        if parent not in self._swap_folders:
            self._swap_folders[parent] = PrivateFolder("autotune-swap-", Path(parent))
        return str(self._swap_folders[parent].path)

    def close(self) -> None:
        """Remove the host's folder, and end the helper process with its last host.

        Trials under way must have ended. Safe to call twice.
        """
        for folder in (self._folder, *self._swap_folders.values()):
            folder.remove()
        with _start_lock:
            _open_hosts.discard(self)
            if not _open_hosts:
                _end_helper()


class RunningTrial:
    """A trial process, seen from its host."""

    def __init__(
        self,
        spec: TrialSpec,
        context: multiprocessing.context.ForkServerContext,
        runner: str,
        folder: Path,
    ) -> None:
        """Start the process. See TrialHost."""
        self.spec = spec
        self._log_path = folder / f"{spec.trial_id}.log"
        self._kills_before = kernel_kills()
        self._phase = "start"
        self._is_cancelled = False
        self._is_over = False
        self._start_seconds = 0.0
        self._requested = time.monotonic()
        self._deadline = self._requested + PATIENCE_SECONDS + spec.deadline_seconds
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(
            target=child_main,
            args=(sender, spec.to_json(), runner, str(self._log_path)),
        )
        try:
            with _start_lock, _hidden_main_module(), _held_interrupts():
                self._process.start()
        except (OSError, EOFError) as error:
            self._receiver.close()
            raise TrialSetupError(
                f"the helper process that starts trials broke: {type(error).__name__} {error}; "
                f"`{sys.executable} -c 'import {PRELOAD}'` may say why"
            ) from error
        finally:
            sender.close()

    @property
    def pid(self) -> int:
        """The trial's process, and its group."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def waitables(self) -> tuple[Any, ...]:
        """What ``multiprocessing.connection.wait`` can wait on for news of the trial."""
        # A process that the trial left behind may hold the pipe open beyond the trial's end.
        return (self._receiver, self._process.sentinel)

    @property
    def seconds_left(self) -> float:
        """Time until the deadline; not negative."""
        return max(0.0, self._deadline - time.monotonic())

    def poll(self, timeout_seconds: float) -> Measurement | None:
        """Return the measurement once there is one, or None after a while without."""
        until = time.monotonic() + timeout_seconds
        while wait(self.waitables, min(max(0.0, until - time.monotonic()), self.seconds_left)):
            measurement = self._read()
            if measurement is not None:
                return self._finish(measurement)
        if self.seconds_left > 0:
            return None
        return self._finish(timed_out(self._phase, self.spec.deadline_seconds, self._log_tail()))

    def result(self) -> Measurement:
        """Return the measurement once there is one, by the deadline at the latest."""
        while (measurement := self.poll(self.seconds_left)) is None:
            pass
        return measurement

    def cancel(self) -> None:
        """End the trial now; ``poll`` returns that it was. May be called from another thread."""
        self._is_cancelled = True
        self._kill()

    def end(self) -> None:
        """Make sure that nothing of the trial runs any more. Safe to call twice."""
        if self._is_over:
            return
        self._kill()
        self._process.join(_JOIN_SECONDS)
        # Killed is not gone: what dies may hold memory of the device for a while.
        end_all(in_group(self.pid), patience_seconds=0.0)
        end_strays(self.spec.trial_id)
        self._receiver.close()
        self._log_path.unlink(missing_ok=True)
        if self.spec.swaps_to_disk and self.spec.nvme_folder is not None:
            shutil.rmtree(self.spec.nvme_folder, ignore_errors=True)
        self._is_over = True

    def _kill(self) -> None:
        # The process first: it may be about to lead its group, but not do so yet.
        self._process.kill()
        end_group(self.pid)

    def _read(self) -> Measurement | None:
        try:
            if not self._receiver.poll():
                return self._from_exit()
            message = json.loads(self._receiver.recv_bytes())
        except (EOFError, OSError):
            return self._from_exit()
        if "started" in message:
            self._start_seconds = message["started"] - self._requested
        elif "phase" in message:
            self._phase = message["phase"]
            if self._phase == "load":
                self._deadline = time.monotonic() + self.spec.deadline_seconds
        else:
            return Measurement.from_json(message["result"])
        return None

    def _from_exit(self) -> Measurement:
        if self._is_cancelled:
            return failed(Outcome.CRASHED, Failure(reason="cancelled", phase=self._phase))
        self._process.join(_JOIN_SECONDS)
        code = self._process.exitcode
        kills = kernel_kills()
        before = self._kills_before
        evidence = ExitEvidence(
            exit_code=-9 if code is None else code,
            phase=self._phase,
            host_free_bytes=host_free_bytes(),
            kernel_kills=None if kills is None or before is None else kills - before,
            log_tail=self._log_tail(),
            device_kind=self.spec.device_kind,
        )
        return failed(*from_exit(evidence))

    def _finish(self, measurement: Measurement) -> Measurement:
        self.end()
        return replace(
            measurement,
            process_seconds=time.monotonic() - self._requested,
            start_seconds=self._start_seconds,
        )

    def _log_tail(self) -> str:
        try:
            return self._log_path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            return ""


@contextmanager
def _hidden_main_module() -> Iterator[None]:
    """Keep ``multiprocessing`` from importing this process's main script in the child.

    It would run the command line's, or Ray's, start-up again in every trial.
    """
    main = sys.modules["__main__"]
    names = ("__file__", "__spec__")
    hidden: dict[str, object] = {n: vars(main)[n] for n in names if n in vars(main)}
    for name in hidden:
        setattr(main, name, None)
    try:
        yield
    finally:
        vars(main).update(hidden)


@contextmanager
def _held_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from the helper process, should it start now, and so from all trials.

    A terminal sends it to every process of the group, but only this one decides what ends.
    """
    # Starting the tracker lets interrupts through again; the helper starts after it.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_helper() -> None:
    server: Any = multiprocessing.forkserver._forkserver
    if server._forkserver_pid is not None:
        # It would wait for whatever a trial left behind; nothing in it is worth waiting for.
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()
