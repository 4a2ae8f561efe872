"""What libraries say when memory runs out or a machine is broken. Pure.

Sources: the libraries' own status names and messages, as users report them.
"""

import re
from enum import Enum


class Cause(Enum):
    """What a message speaks of.

    CONFIG               a kernel that no free memory would start: the config cannot train
    HOST                 the host's memory
    DEVICE               the device's memory
    DEVICE_IF_FULL       the device's memory if it is full, a broken machine otherwise
    CANNOT_UNLESS_FULL   the device's memory if it is full, a config that cannot train otherwise
    HOST_IF_FULL         as DEVICE_IF_FULL, of the host
    BROKEN               the machine
    """

    CONFIG = "config"
    HOST = "host"
    DEVICE = "device"
    DEVICE_IF_FULL = "device_if_full"
    CANNOT_UNLESS_FULL = "cannot_unless_full"
    HOST_IF_FULL = "host_if_full"
    BROKEN = "broken"


_STATUS = (
    "(cublas|cudnn|cusolver|cusparse|curand|hipblas|hipsolver|hipsparse|rocblas|hiprand)_status_"
)
_WORDINGS = {
    Cause.CONFIG: (
        "out of resource:",  # Triton: registers or shared memory of a core, whatever is free
        "too many resources requested for launch",
        "invalid configuration argument",
        "device-side assert triggered",
    ),
    Cause.HOST: (
        "defaultcpuallocator",
        "c10 out of memory",
        "posix_memalign",
        "std::bad_alloc",
        "can't allocate memory",
        "cannot allocate memory",
        "not enough memory to allocate",  # oneMKL
        "could not allocate memory for tensor",
        "(cuda|hip)(hostalloc|mallochost|hostmalloc|hostregister)",
        "cumemhostalloc",
        "failed to cuda host alloc",  # NCCL
        "host_allocation_failed",  # cuDNN 9
        "out_of_host_memory",
        "is killed by signal: killed",  # torch's DataLoader, of its worker
    ),
    Cause.DEVICE: (
        "out of memory",
        "out_of_(device_)?memory",
        "outofmemory",
        "(cuda|hip)errormemoryallocation",
        "device_allocation_failed",  # cuDNN 9
        "oom when allocating",  # TensorFlow
        "memory not available to allocate buffer",  # MIOpen
        "rocblas_status_memory_error",
    ),
    Cause.DEVICE_IF_FULL: (
        f"{_STATUS}(alloc(ation)?_failed|not_initialized|internal_error|execution_failed)",
        f"{_STATUS}(insufficient_resources|initialization_failed)",
        "(cufft|hipfft)_(alloc_failed|internal_error|exec_failed)",
        "miopenstatus(allocfailed|internalerror|unknownerror)",
        "unhandled cuda error",  # NCCL
        "ncclunhandledcudaerror",
        "failed to cuda (calloc|malloc)",
        "ur_result_error_out_of_resources",
    ),
    Cause.CANNOT_UNLESS_FULL: (
        f"{_STATUS}not_supported",
        "unable to find a valid cudnn algorithm",
        "unable to find an engine to execute",
        "no (valid )?execution plans",
    ),
    Cause.HOST_IF_FULL: (
        "could not (create|execute) a primitive",  # oneDNN
        "could not create a memory object",
        "can't start new thread",
    ),
    Cause.BROKEN: (
        "(cuda|hip|nccl)( driver| runtime)? error",
        "(cuda|hip|nccl) failure",
        "sublibrary_loading_failed",
        "unhandled system error",
        "ncclsystemerror",
        "out of shared memory",  # /dev/shm, which has a limit of its own
    ),
}
"""The first that a message matches is meant: what is certain comes before what is not."""
_PRINTED = {
    Cause.HOST: ("memoryerror",),
    Cause.DEVICE: ("resourceexhaustederror", "resource_exhausted", "resource exhausted:"),
    Cause.HOST_IF_FULL: (
        r"pthread_create\(\) failed",
        "thread creation failed",
        "resource temporarily unavailable",
        "unable to allocate necessary resources",
    ),
}
"""Further ones of programs, whose exceptions are known by what they print alone."""


def _compiled(wordings: dict[Cause, tuple[str, ...]]) -> dict[Cause, re.Pattern[str]]:
    return {c: re.compile("|".join(words), re.IGNORECASE) for c, words in wordings.items()}


_OF_ERRORS = _compiled(_WORDINGS)
_OF_OUTPUT = _compiled(
    {cause: (*words, *_PRINTED.get(cause, ())) for cause, words in _WORDINGS.items()}
)


def cause_of_error(message: str) -> Cause | None:
    """Return what an exception's message speaks of; None if of none of these."""
    return _first(_OF_ERRORS, message)


def cause_of_output(text: str) -> Cause | None:
    """Return what the last lines of a program's output speak of; None if of none of these."""
    return _first(_OF_OUTPUT, text)


def _first(patterns: dict[Cause, re.Pattern[str]], text: str) -> Cause | None:
    return next((cause for cause, pattern in patterns.items() if pattern.search(text)), None)
