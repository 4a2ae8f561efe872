"""Which outcome an exception or an exit stands for. Pure: evidence in, failure out.

Exception types come first, the whole message text second, the exit signal third; how much
memory was free at the time settles what a text alone leaves open.
"""

import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trials.errors import TrialSetupError, WorkloadError
from trials.measurement import Failure, Measurement, MemoryUse, Outcome, Where
from trials.wordings import Cause, cause_of_error, cause_of_output

_SURELY_MEMORY = (Cause.DEVICE, Cause.HOST)
_MACHINES = (Cause.DEVICE_IF_FULL, Cause.HOST_IF_FULL, Cause.BROKEN)
"""Faults of the machine where memory is not to blame."""
_SIGNAL_CODES = range(129, 193)
"""Exit codes by which shells and containers say that a signal ended what they ran."""
_FULL_SHARE = 0.1
"""A device with less than this share of its budget free counts as full."""
_LAST_LINES = 3
"""Of a log: what a C++ library says before it ends the process."""
_INNERMOST_FRAMES = 3
_PINNING = ("pin_memory", "pack_to_cpu")
"""In the code that raised: page-locked host memory, whose lack CUDA reports as the device's."""
_ATTEMPTED = re.compile(r"tried to allocate ([\d.]+) ?(bytes|[kmgt]i?b)", re.IGNORECASE)
_DTYPE = re.compile(r"'dtype': torch\.(\w+)")
_UNIT_BYTES = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_HOST_ADVICE = "less on the host helps (another offload target), a smaller micro-batch does not"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was known when a trial broke off.

    Attributes:
        phase: What it was doing.
        free_bytes: Device memory that was free then.
        budget_bytes: Device memory that it was allowed.
        peak_bytes: Device memory that it had used at most.
        device_kind: ``cpu``, where the host's memory is the device's, or ``cuda``.
        foreign_bytes: Device memory that other processes used.
        workload_file: Where the workload's author looks for a mistake; empty if unknown.
    """

    phase: str
    free_bytes: int
    budget_bytes: int
    peak_bytes: int
    device_kind: str = "cpu"
    foreign_bytes: int = 0
    workload_file: str = ""

    @property
    def is_full(self) -> bool:
        """Whether the device was nearly full, and not of others' memory alone."""
        least = _FULL_SHARE * self.budget_bytes
        is_blameless = self.device_kind != "cpu" and self.peak_bytes < least
        return self.free_bytes < least and not is_blameless

    @property
    def host(self) -> Where:
        """Whose memory the host's is."""
        return Where.DEVICE if self.device_kind == "cpu" else Where.HOST

    @property
    def note(self) -> str:
        """What to add to a reason: the memory of others."""
        foreign = self.foreign_bytes
        return f" (other processes used {foreign / 2**30:.1f} GiB)" if foreign else ""


class DivergedError(ArithmeticError):
    """The loss is not finite."""


class SkippedStepsError(ArithmeticError):
    """The gradient scaler skips nearly every step."""


class DeviceMemoryError(MemoryError):
    """The device's memory is not enough."""


class ThrashingError(DeviceMemoryError):
    """The allocator frees its cache on every step: it fits only on paper."""


def from_exception(error: BaseException, evidence: Evidence) -> tuple[Outcome, Failure]:
    """Classify what a trial raised.

    Returns:
        ``out_of_memory`` when memory is to blame, ``diverged`` for a loss that is not finite,
        ``crashed`` for a fault of the machine, and ``invalid`` for everything else, such as a
        block that cannot be checkpointed: this combination cannot train.
    """
    if type(error).__name__ == "CheckpointError":
        return Outcome.INVALID, Failure(reason=_recomputed(str(error)), phase=evidence.phase)
    where = _memory_that_ran_out(error, evidence)
    if where is not None:
        return Outcome.OUT_OF_MEMORY, _out_of_memory(error, evidence, where)
    if isinstance(error, DivergedError):
        return Outcome.DIVERGED, Failure(reason=str(error), phase=evidence.phase)
    if isinstance(error, TrialSetupError):
        return Outcome.CRASHED, Failure(reason=_text(error), phase=evidence.phase)
    if _is_broken_environment(error):
        free = f" with {evidence.free_bytes / 2**30:.1f} GiB free{evidence.note}"
        return Outcome.CRASHED, Failure(reason=_text(error) + free, phase=evidence.phase)
    is_ours = isinstance(error, WorkloadError)
    return Outcome.INVALID, Failure(
        reason=str(error) if is_ours else f"{_text(error)}{_place(error, evidence.workload_file)}",
        phase=evidence.phase,
        is_users_fault=is_ours or evidence.phase in ("load", "build", "train", "evaluate"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitEvidence:
    """What the parent knew of a trial process that ended without a report.

    Attributes:
        exit_code: As from ``multiprocessing``: negative for a signal.
        phase: The last one it reported.
        host_free_bytes: Host memory free just after.
        kernel_kills: Out-of-memory kills that the kernel counted meanwhile; None if unknown.
        log_tail: The last lines the process wrote.
        process: What to call it.
        device_kind: ``cpu``, where the host's memory is the device's, or ``cuda``.
    """

    exit_code: int
    phase: str
    host_free_bytes: int
    kernel_kills: int | None
    log_tail: str = ""
    process: str = "trial process"
    device_kind: str = "cpu"


def from_exit(evidence: ExitEvidence) -> tuple[Outcome, Failure]:
    """Classify a trial process that ended without a report.

    SIGKILL (or exit 137, as containers report it) is how the kernel ends a process when the
    host is out of memory. It is suspect, and worth one more run, unless the kernel counted such
    a kill; where the kernel counts and counted none, someone else killed it. A C++ library that
    ends the process itself says why in the last lines; that is suspect too.
    """
    is_kill = evidence.exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    free = f"{evidence.host_free_bytes / 2**30:.1f} GiB of host memory free"
    if not is_kill and (ended := _ended_for_memory(evidence)) is not None:
        return Outcome.OUT_OF_MEMORY, ended
    if not is_kill or evidence.kernel_kills == 0:
        reason = f"{evidence.process} ended by {_exit_name(evidence.exit_code)}, with {free}"
        failure = Failure(reason=reason, phase=evidence.phase, log_tail=evidence.log_tail)
        return Outcome.CRASHED, failure
    return Outcome.OUT_OF_MEMORY, Failure(
        reason=f"host out of memory: {evidence.process} killed by the kernel, {free} afterwards; "
        f"{_HOST_ADVICE}",
        phase=evidence.phase,
        where=Where.HOST,
        is_suspect=evidence.kernel_kills is None,
        log_tail=evidence.log_tail,
    )


def from_program(exited: ExitEvidence, evidence: Evidence) -> tuple[Outcome, Failure]:
    """Classify a user's program that failed, by the text of its last lines, then by its signal.

    An exit code that no signal stands for is ``invalid`` unless the text speaks of memory or of
    a broken machine: as an exception of a workload is.
    """
    last_line = exited.log_tail.strip().rpartition("\n")[2].strip()
    reason = f"{exited.process} ended by {_exit_name(exited.exit_code)}: {last_line}".rstrip(": ")
    failure = Failure(
        reason=reason,
        phase=exited.phase,
        is_users_fault=exited.phase in ("load", "build", "train"),
        log_tail=exited.log_tail,
    )
    cause = cause_of_output(exited.log_tail)
    where = None if cause is None else _whose_memory(cause, evidence)
    if where is not None:
        needed = evidence.peak_bytes + _attempted_bytes(exited.log_tail)
        needed = max(needed, evidence.budget_bytes + 1)
        return Outcome.OUT_OF_MEMORY, replace(
            failure,
            where=where,
            attempted_bytes=needed if where == Where.DEVICE else None,
            is_users_fault=False,
        )
    if exited.exit_code < 0 or exited.exit_code in _SIGNAL_CODES:
        return from_exit(exited)
    return Outcome.CRASHED if cause in _MACHINES else Outcome.INVALID, failure


def timed_out(phase: str, deadline_seconds: float, log_tail: str = "") -> Measurement:
    """Return the measurement of a trial that was ended at its deadline."""
    reason = f"not done after {deadline_seconds:g} s, in phase {phase}"
    failure = Failure(reason=reason, phase=phase, log_tail=log_tail)
    return Measurement(outcome=Outcome.TIMED_OUT, failure=failure)


def failed(outcome: Outcome, failure: Failure, memory: MemoryUse | None = None) -> Measurement:
    """Return the measurement of a trial that did not complete."""
    return Measurement(outcome=outcome, failure=failure, memory=memory)


def _memory_that_ran_out(error: BaseException, evidence: Evidence) -> Where | None:
    """Return whose memory an error, or what led to it, says is out; None for neither's."""
    for link in _chain(error):
        where = _memory_of(link, evidence)
        if where is not None:
            return where
        if cause_of_error(str(link)) == Cause.CONFIG:
            return None
    return None


def _memory_of(link: BaseException, evidence: Evidence) -> Where | None:
    if isinstance(link, (DeviceMemoryError, *_memory_errors(sys.modules.get("torch")))):
        return Where.DEVICE
    if isinstance(link, MemoryError):
        return evidence.host
    if isinstance(link, WorkloadError):
        return None
    cause = cause_of_error(str(link))
    if cause == Cause.DEVICE and _is_pinning(link):
        cause = Cause.HOST
    return None if cause is None else _whose_memory(cause, evidence)


def _whose_memory(cause: Cause, evidence: Evidence) -> Where | None:
    """Return whose memory a cause blames, given how much of it was free."""
    if cause == Cause.HOST:
        return evidence.host
    is_of_device = cause in (Cause.DEVICE_IF_FULL, Cause.CANNOT_UNLESS_FULL)
    is_of_host = cause == Cause.HOST_IF_FULL and evidence.host == Where.DEVICE
    is_device = cause == Cause.DEVICE or (evidence.is_full and (is_of_device or is_of_host))
    return Where.DEVICE if is_device else None


def _is_pinning(error: BaseException) -> bool:
    """Tell whether page-locked host memory was asked for, not memory of the device."""
    if _ATTEMPTED.search(str(error)):  # so speaks torch's allocator for the device
        return False
    frames = traceback.extract_tb(error.__traceback__)[-_INNERMOST_FRAMES:]
    return any(word in f"{frame.name} {frame.line}" for frame in frames for word in _PINNING)


def _out_of_memory(error: BaseException, evidence: Evidence, where: Where) -> Failure:
    reason = _text(error) + evidence.note
    if where == Where.HOST:
        reason = f"host out of memory: {reason}; {_HOST_ADVICE}"
        return Failure(reason=reason, phase=evidence.phase, where=where)
    attempted = max(evidence.peak_bytes, 0) + _attempted_bytes(str(error))
    return Failure(
        reason=reason,
        is_suspect=evidence.foreign_bytes > 0,
        phase=evidence.phase,
        where=where,
        attempted_bytes=max(attempted, evidence.budget_bytes + 1),
    )


def _ended_for_memory(evidence: ExitEvidence) -> Failure | None:
    """Return the failure of a process that a library ended for memory, by its last words."""
    lines = evidence.log_tail.strip().splitlines()[-_LAST_LINES:]
    found = next((line for line in lines if cause_of_error(line) in _SURELY_MEMORY), None)
    if found is None:
        return None
    is_of_host = cause_of_error(found) == Cause.HOST and evidence.device_kind != "cpu"
    return Failure(
        reason=f"{evidence.process} ended by {_exit_name(evidence.exit_code)}: {found.strip()}",
        phase=evidence.phase,
        where=Where.HOST if is_of_host else Where.DEVICE,
        is_suspect=True,
        log_tail=evidence.log_tail,
    )


def _is_broken_environment(error: BaseException) -> bool:
    return any(
        cause_of_error(str(link)) in _MACHINES
        for link in _chain(error)
        if not isinstance(link, WorkloadError)
    )


def _memory_errors(module: object) -> tuple[type[BaseException], ...]:
    """Return torch's out-of-memory classes, by whichever names this version has."""
    found = (
        getattr(module, "OutOfMemoryError", None),
        getattr(getattr(module, "cuda", None), "OutOfMemoryError", None),
    )
    return tuple(kind for kind in found if isinstance(kind, type))


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _attempted_bytes(text: str) -> int:
    found = _ATTEMPTED.search(text)
    return int(float(found[1]) * _UNIT_BYTES[found[2][0].lower()]) if found else 0


def _recomputed(message: str) -> str:
    """Say what torch means by tensors of a block that were recomputed as others."""
    dtypes = sorted(set(_DTYPE.findall(message)))
    shown = f" of type {' and '.join(dtypes)}" if dtypes else ""
    return (
        f"CheckpointError: a checkpointed block recomputed other tensors{shown} than its forward "
        "saved; let its forward depend on its inputs alone, without a cache, a counter or an "
        f"autocast of its own, or use --set checkpoint_interval=0; {message.partition(chr(10))[0]}"
    )


def _text(error: BaseException) -> str:
    # Some errors keep the details in further arguments; OSError's text has the file's name.
    parts = [str(error)] if isinstance(error, OSError) else [str(part) for part in error.args]
    message = " ".join(parts) or str(error)
    return (
        f"{type(error).__name__}: {message.strip()}" if message.strip() else type(error).__name__
    )


def _place(error: BaseException, workload_file: str) -> str:
    """Return where an exception was raised, as near as can be to what the user wrote."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    theirs = [frame for frame in frames if os.path.realpath(frame.filename) == workload_file]
    others = [frame for frame in frames if not _is_machinery(frame.filename)]
    frame = (theirs or others or frames)[-1]
    return f" ({frame.filename}:{frame.lineno})"


def _is_machinery(filename: str) -> bool:
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    folders = [os.path.dirname(file) + os.sep for file in (__file__, torch) if file]
    return filename.startswith(("<", *folders))


def _exit_name(code: int) -> str:
    if code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"
