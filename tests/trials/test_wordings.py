"""Every wording at a full and at an empty GPU: memory, a broken machine, or the config."""

import pytest

from trials.measurement import Outcome, Where
from trials.outcomes import Evidence, ExitEvidence, from_exception, from_exit, from_program

GIB = 2**30
DEVICE = (Outcome.OUT_OF_MEMORY, Where.DEVICE)
HOST = (Outcome.OUT_OF_MEMORY, Where.HOST)
BROKEN = (Outcome.CRASHED, None)
CONFIG = (Outcome.INVALID, None)

DEVICE_ALWAYS = [
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
    "CUDA out of memory. Tried to allocate more than 1EB memory.",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some",
    "cuda runtime error (2) : out of memory at THCStorage.cu:58",
    "CUDA driver error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA runtime API error: cudaErrorMemoryAllocation",
    "NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled cuda error, NCCL version 2.21.5\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\n"
    "Last error:\nCuda failure 2 'out of memory'",
    "HIP out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.98 GiB",
    "HIP error: out of memory",
    "hipErrorOutOfMemory",
    "rocBLAS error: rocblas_status_memory_error",
    "MIOpen Error: Memory not available to allocate buffer: 655360000",
    "MPS backend out of memory (MPS allocated: 15.72 GiB, other allocations: 2.41 MiB, max "
    "allowed: 18.13 GiB). Tried to allocate 5.81 GiB on private pool.",
    "XPU out of memory. Tried to allocate 1.00 GiB (GPU 0; 15.56 GiB total capacity)",
    "UR backend failed. UR backend returns:39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "Error out of memory at line 534 in file /src/csrc/pythonInterface.cpp",  # bitsandbytes
]
DEVICE_IF_FULL_ELSE_BROKEN = [
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasLtMatmulAlgoGetHeuristic(...)`",
    "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasLtMatmul(...)`",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "cuFFT error: CUFFT_INTERNAL_ERROR",
    "CUDA error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`",
    "CUDA error: CUSPARSE_STATUS_INSUFFICIENT_RESOURCES when calling `cusparseSpMM(...)`",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "cusolver error: CUSOLVER_STATUS_NOT_INITIALIZED, when calling `cusolverDnCreate(handle)`",
    "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "miopenStatusAllocFailed",
    "miopenStatusUnknownError",
    "NCCL error in: ProcessGroupNCCL.cpp:1269, internal error, NCCL version 2.14.3\n"
    "ncclInternalError: Internal check failed.\nLast error:\n"
    "Failed to CUDA calloc async 1920 bytes",
    "NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "UR backend failed. UR backend returns:40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
]
DEVICE_IF_FULL_ELSE_CONFIG = [
    "Unable to find a valid cuDNN algorithm to run convolution",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-",
    "GET was unable to find an engine to execute this computation",
    "FIND was unable to find an engine to execute this computation",
    "cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph.",
    "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul(...)`",
]
HOST_ALWAYS = [
    "[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 11521753088 bytes. Error code 12 (Cannot allocate memory)",
    "[enforce fail at alloc_cpu.cpp:117] data. DefaultCPUAllocator: not enough memory: you "
    "tried to allocate 8589934592 bytes.",
    "[enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) == 0. 12",
    "unable to mmap 1048576 bytes from file </dev/zero>: Cannot allocate memory (12)",
    "[Errno 12] Cannot allocate memory",
    "std::bad_alloc",
    "Intel oneMKL DFTI ERROR: Not enough memory to allocate",
    "cudaHostAlloc failed",
    "cuMemHostAlloc failed: CUDA_ERROR_OUT_OF_MEMORY",
    "cudaMallocHost: out of memory",
    "hipHostMalloc: hipErrorOutOfMemory",
    "Failed to CUDA host alloc 4194304 bytes",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "UR backend failed. UR backend returns:38 (UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)",
    "DataLoader worker (pid 4711) is killed by signal: Killed. ",
]
BROKEN_ALWAYS = [
    "CUDA error: no kernel image is available for execution on the device",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(...)`",
    "CUDA error: all CUDA-capable devices are busy or unavailable",
    "CUDA driver error: invalid device context",
    "cuDNN error: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED",
    "HIP error: the operation cannot be performed in the present state",
    "NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error, NCCL version 2.21.5\n"
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
    "DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that "
    "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
]
CONFIG_ALWAYS = [
    "out of resource: shared memory, Required: 98304, Hardware limit: 65536. Reducing block sizes "
    "or `num_stages` may help.",
    "No valid triton configs. OutOfMemoryError: out of resource: triton_tem_fused_mm Required: "
    "105472 Hardware limit: 101376",
    "CUDA error: too many resources requested for launch",
    "CUDA error: device-side assert triggered",
    "Error invalid configuration argument at line 117 in file /src/csrc/ops.cu",
    "Attempting to unscale FP16 gradients.",
    "mat1 and mat2 shapes cannot be multiplied (4x8 and 4x8)",
]
TABLE = [
    *((message, DEVICE, DEVICE) for message in DEVICE_ALWAYS),
    *((message, DEVICE, BROKEN) for message in DEVICE_IF_FULL_ELSE_BROKEN),
    *((message, DEVICE, CONFIG) for message in DEVICE_IF_FULL_ELSE_CONFIG),
    *((message, HOST, HOST) for message in HOST_ALWAYS),
    *((message, BROKEN, BROKEN) for message in BROKEN_ALWAYS),
    *((message, CONFIG, CONFIG) for message in CONFIG_ALWAYS),
]
every_wording = pytest.mark.parametrize(
    ("message", "at_full", "at_empty"), TABLE, ids=[message[:60] for message, *_ in TABLE]
)


def gpu(free, **fields):
    """A GPU of 80 GiB that the trial alone has filled to a part."""
    usual = {"phase": "warm_up", "device_kind": "cuda", "peak_bytes": int((80 - free) * GIB)}
    return Evidence(free_bytes=int(free * GIB), budget_bytes=80 * GIB, **{**usual, **fields})


def of_error(message, evidence):
    outcome, failure = from_exception(RuntimeError(message), evidence)
    return outcome, failure.where


def of_program(message, evidence):
    exited = ExitEvidence(
        exit_code=1,
        phase="timing",
        host_free_bytes=GIB,
        kernel_kills=0,
        log_tail=f"RuntimeError: {message}\n",
        process="program",
        device_kind=evidence.device_kind,
    )
    outcome, failure = from_program(exited, evidence)
    return outcome, failure.where


@every_wording
@pytest.mark.parametrize("read", [of_error, of_program], ids=["raised", "printed"])
def test_a_wording_means_what_the_memory_of_the_gpu_says(message, at_full, at_empty, read):
    assert read(message, gpu(free=0.2)) == at_full
    assert read(message, gpu(free=60)) == at_empty


@pytest.mark.parametrize("message", HOST_ALWAYS)
def test_the_hosts_memory_is_the_devices_where_the_cpu_is_the_device(message):
    assert of_error(message, gpu(free=60, device_kind="cpu")) == DEVICE


@pytest.mark.parametrize("message", DEVICE_IF_FULL_ELSE_BROKEN)
def test_a_gpu_that_others_fill_is_no_fault_of_a_trial_that_has_just_begun(message):
    begun = gpu(free=0.2, peak_bytes=GIB, foreign_bytes=78 * GIB)
    outcome, failure = from_exception(RuntimeError(message), begun)
    assert outcome == Outcome.CRASHED
    assert "0.2 GiB free (other processes used 78.0 GiB)" in failure.reason


@pytest.mark.parametrize(
    "message", ["could not create a primitive", "could not execute a primitive"]
)
def test_one_dnn_fails_for_memory_on_a_full_cpu_alone(message):
    assert of_error(message, gpu(free=0.2, device_kind="cpu")) == DEVICE
    assert of_error(message, gpu(free=60, device_kind="cpu")) == BROKEN
    assert of_error(message, gpu(free=0.2)) == BROKEN


def pin_memory(message):
    raise RuntimeError(message)


def pinned(message):
    try:
        pin_memory(message)
    except RuntimeError as error:
        outcome, failure = from_exception(error, gpu(free=60))
        return outcome, failure.where


def test_page_locked_memory_is_the_hosts_though_cuda_names_neither():
    assert pinned("CUDA error: out of memory\nCUDA kernel errors might be") == HOST
    assert pinned("CUDA out of memory. Tried to allocate 2.00 GiB.") == DEVICE


def test_host_memory_says_what_helps_and_nothing_of_the_device():
    _, failure = from_exception(RuntimeError("cudaHostAlloc failed"), gpu(free=60))
    assert failure.attempted_bytes is None
    assert failure.reason.startswith("host out of memory: RuntimeError: cudaHostAlloc failed; ")
    assert "another offload target" in failure.reason


def ended(log_tail, exit_code=1, device_kind="cuda"):
    outcome, failure = from_exit(
        ExitEvidence(
            exit_code=exit_code,
            phase="warm_up",
            host_free_bytes=GIB,
            kernel_kills=0,
            log_tail=log_tail,
            device_kind=device_kind,
        )
    )
    return (outcome, failure.where), failure


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Error out of memory at line 534 in file /src/csrc/pythonInterface.cpp", DEVICE),
        ("terminate called after throwing an instance of 'std::bad_alloc'", HOST),
        ("Error invalid configuration argument at line 117 in file /src/csrc/ops.cu", BROKEN),
    ],
)
@pytest.mark.parametrize("exit_code", [1, -6])
def test_a_library_that_ends_the_process_says_why_in_its_last_lines(line, expected, exit_code):
    found, failure = ended(f"before\n{line}\n", exit_code)
    assert found == expected
    assert expected == BROKEN or (failure.is_suspect and line in failure.reason)


def test_what_was_printed_long_before_the_end_is_no_cause_of_it():
    assert ended("out of memory? no\n" + "step\n" * 3)[0] == BROKEN
