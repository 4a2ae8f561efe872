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

_SURELY_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "hip out of memory",
    "std::bad_alloc",
    "oom when allocating",
)
_MEMORY_IF_FULL = (
    "cublas_status_alloc_failed",
    "cublas_status_not_initialized",
    "cusolver_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "cudnn_status_not_supported",
    "cudnn_status_internal_error",
    "unable to find a valid cudnn algorithm",
    "could not create a primitive",
    "can't start new thread",
    "unhandled cuda error",
)
_MEMORY_IN_OUTPUT = (
    *_SURELY_MEMORY,
    "memoryerror",
    "resourceexhaustederror",
    "resource_exhausted",
    "resource exhausted:",
)
"""As programs print it, TensorFlow's and JAX's among them."""
_MEMORY_IN_OUTPUT_IF_FULL = (
    *_MEMORY_IF_FULL,
    "pthread_create() failed",
    "thread creation failed",
    "resource temporarily unavailable",
)
_SIGNAL_CODES = range(129, 193)
"""Exit codes by which shells and containers say that a signal ended what they ran."""
_FULL_SHARE = 0.1
"""A device with less than this share of its budget free counts as full."""
_ATTEMPTED = re.compile(r"tried to allocate ([\d.]+) ?(bytes|[kmg]ib)", re.IGNORECASE)
_DTYPE = re.compile(r"'dtype': torch\.(\w+)")
_UNIT_BYTES = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was known when a trial broke off.

    Attributes:
        phase: What it was doing.
        free_bytes: Device memory that was free then.
        budget_bytes: Device memory that it was allowed.
        peak_bytes: Device memory that it had used at most.
        foreign_bytes: Device memory that other processes used.
        workload_file: Where the workload's author looks for a mistake; empty if unknown.
    """

    phase: str
    free_bytes: int
    budget_bytes: int
    peak_bytes: int
    foreign_bytes: int = 0
    workload_file: str = ""

    @property
    def is_full(self) -> bool:
        """Whether the device was nearly full."""
        return self.free_bytes < _FULL_SHARE * self.budget_bytes


class DivergedError(ArithmeticError):
    """The loss is not finite."""


class SkippedStepsError(ArithmeticError):
    """The gradient scaler skips nearly every step."""


class ThrashingError(MemoryError):
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
    if _is_out_of_memory(error, evidence):
        attempted = max(evidence.peak_bytes, 0) + _attempted_bytes(str(error))
        foreign = evidence.foreign_bytes
        note = f" (other processes used {foreign / 2**30:.1f} GiB)" if foreign else ""
        return Outcome.OUT_OF_MEMORY, Failure(
            reason=_text(error) + note,
            is_suspect=foreign > 0,
            phase=evidence.phase,
            where=Where.DEVICE,
            attempted_bytes=max(attempted, evidence.budget_bytes + 1),
        )
    if isinstance(error, DivergedError):
        return Outcome.DIVERGED, Failure(reason=str(error), phase=evidence.phase)
    if isinstance(error, TrialSetupError):
        return Outcome.CRASHED, Failure(reason=_text(error), phase=evidence.phase)
    if _is_broken_environment(error):
        reason = f"{_text(error)} with {evidence.free_bytes / 2**30:.1f} GiB free"
        return Outcome.CRASHED, Failure(reason=reason, phase=evidence.phase)
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
    """

    exit_code: int
    phase: str
    host_free_bytes: int
    kernel_kills: int | None
    log_tail: str = ""
    process: str = "trial process"


def from_exit(evidence: ExitEvidence) -> tuple[Outcome, Failure]:
    """Classify a trial process that ended without a report.

    SIGKILL (or exit 137, as containers report it) is how the kernel ends a process when the
    host is out of memory. It is suspect, and worth one more run, unless the kernel counted such
    a kill; where the kernel counts and counted none, someone else killed it.
    """
    is_kill = evidence.exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    free = f"{evidence.host_free_bytes / 2**30:.1f} GiB of host memory free"
    if not is_kill or evidence.kernel_kills == 0:
        reason = f"{evidence.process} ended by {_exit_name(evidence.exit_code)}, with {free}"
        failure = Failure(reason=reason, phase=evidence.phase, log_tail=evidence.log_tail)
        return Outcome.CRASHED, failure
    return Outcome.OUT_OF_MEMORY, Failure(
        reason=f"host out of memory: {evidence.process} killed by the kernel, {free} afterwards; "
        "less on the host helps (another offload target), a smaller micro-batch does not",
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
    text = exited.log_tail.lower()
    last_line = exited.log_tail.strip().rpartition("\n")[2].strip()
    reason = f"{exited.process} ended by {_exit_name(exited.exit_code)}: {last_line}".rstrip(": ")
    failure = Failure(
        reason=reason,
        phase=exited.phase,
        is_users_fault=exited.phase in ("load", "build", "train"),
        log_tail=exited.log_tail,
    )
    is_full = evidence.is_full and any(words in text for words in _MEMORY_IN_OUTPUT_IF_FULL)
    if is_full or any(words in text for words in _MEMORY_IN_OUTPUT):
        needed = max(evidence.peak_bytes + _attempted_bytes(text), evidence.budget_bytes + 1)
        return Outcome.OUT_OF_MEMORY, replace(
            failure, where=Where.DEVICE, attempted_bytes=needed, is_users_fault=False
        )
    if exited.exit_code < 0 or exited.exit_code in _SIGNAL_CODES:
        return from_exit(exited)
    is_broken = any(words in text for words in (*_MEMORY_IF_FULL, "cuda error"))
    return Outcome.CRASHED if is_broken else Outcome.INVALID, failure


def timed_out(phase: str, deadline_seconds: float, log_tail: str = "") -> Measurement:
    """Return the measurement of a trial that was ended at its deadline."""
    reason = f"not done after {deadline_seconds:g} s, in phase {phase}"
    failure = Failure(reason=reason, phase=phase, log_tail=log_tail)
    return Measurement(outcome=Outcome.TIMED_OUT, failure=failure)


def failed(outcome: Outcome, failure: Failure, memory: MemoryUse | None = None) -> Measurement:
    """Return the measurement of a trial that did not complete."""
    return Measurement(outcome=outcome, failure=failure, memory=memory)


def _is_out_of_memory(error: BaseException, evidence: Evidence) -> bool:
    if any(
        isinstance(link, (MemoryError, *_memory_errors(sys.modules.get("torch"))))
        for link in _chain(error)
    ):
        return True
    texts = [str(link).lower() for link in _chain(error) if not isinstance(link, WorkloadError)]
    if any(words in text for text in texts for words in _SURELY_MEMORY):
        return True
    return evidence.is_full and any(w in text for text in texts for w in _MEMORY_IF_FULL)


def _is_broken_environment(error: BaseException) -> bool:
    text = str(error).lower()
    return any(words in text for words in _MEMORY_IF_FULL) or "cuda error" in text


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
    return int(float(found[1]) * _UNIT_BYTES[found[2].lower()]) if found else 0


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
