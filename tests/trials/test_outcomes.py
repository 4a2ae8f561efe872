import gc
import sys
import types
import weakref
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import CheckpointError

import trials
from trials.checkpointing import checkpoint_blocks
from trials.errors import TrialSetupError, WorkloadError
from trials.measurement import Outcome, Where
from trials.outcomes import (
    DivergedError,
    Evidence,
    ExitEvidence,
    from_exception,
    from_exit,
    from_program,
)

GIB = 2**30


def evidence(free=0.2, budget=80.0, **fields):
    usual = {"phase": "warm_up", "peak_bytes": int((budget - free) * GIB)}
    return Evidence(
        free_bytes=int(free * GIB), budget_bytes=int(budget * GIB), **{**usual, **fields}
    )


def outcome_of(error, **fields):
    return from_exception(error, evidence(**fields))[0]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB", "and a second argument"),
        RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"),
        MemoryError(),
    ],
)
def test_every_wording_of_out_of_memory_is_one_on_any_device(error):
    assert outcome_of(error, free=60.0) == Outcome.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "message",
    [
        "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "Unable to find a valid cuDNN algorithm to run convolution",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        "could not create a primitive",
        "can't start new thread",
    ],
)
def test_some_messages_mean_memory_on_a_full_device_alone(message):
    assert outcome_of(RuntimeError(message), free=0.2) == Outcome.OUT_OF_MEMORY
    assert outcome_of(RuntimeError(message), free=60.0) != Outcome.OUT_OF_MEMORY


def test_an_allocation_failure_on_an_empty_card_is_a_broken_environment():
    error = RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    outcome, failure = from_exception(error, evidence(free=60.0))
    assert outcome == Outcome.CRASHED
    assert "60.0 GiB free" in failure.reason


def stub_torch(*names):
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace()
    kinds = {}
    for place, name in names:
        kinds[place] = type("OutOfMemoryError", (RuntimeError,), {})
        setattr(torch if place == "torch" else torch.cuda, name, kinds[place])
    return torch, list(kinds.values())


@pytest.mark.parametrize(
    "places", [(), ("cuda",), ("torch", "cuda")], ids=["neither", "cuda", "both"]
)
def test_torchs_own_class_is_found_under_whichever_name_it_has(monkeypatch, places):
    torch, kinds = stub_torch(*((place, "OutOfMemoryError") for place in places))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert all(outcome_of(kind("no words"), free=60.0) == Outcome.OUT_OF_MEMORY for kind in kinds)
    assert outcome_of(RuntimeError("shapes differ"), free=60.0) == Outcome.INVALID


def test_an_out_of_memory_that_caused_another_error_is_found():
    error = RuntimeError("backward failed")
    error.__cause__ = RuntimeError("CUDA out of memory.")
    assert outcome_of(error) == Outcome.OUT_OF_MEMORY


def test_what_was_attempted_is_read_from_the_message():
    error = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total")
    _, failure = from_exception(error, evidence(free=1.0, budget=80.0))
    assert failure.attempted_bytes == 81 * GIB
    assert failure.where == Where.DEVICE


def test_what_was_attempted_is_always_over_the_budget():
    _, failure = from_exception(MemoryError(), evidence(free=40.0, budget=80.0))
    assert failure.attempted_bytes == 80 * GIB + 1


def test_out_of_memory_beside_other_processes_is_worth_another_run():
    _, failure = from_exception(MemoryError(), evidence(foreign_bytes=3 * GIB))
    assert failure.is_suspect
    assert "other processes used 3.0 GiB" in failure.reason


def test_a_loss_that_is_not_finite_diverged():
    assert outcome_of(DivergedError("the loss is nan")) == Outcome.DIVERGED


def test_a_machine_that_cannot_run_trials_is_no_fault_of_the_config():
    assert outcome_of(TrialSetupError("device dirty: 78% in use")) == Outcome.CRASHED


def test_any_other_error_is_invalid_with_type_message_and_place():
    try:
        raise ValueError("shapes differ")
    except ValueError as error:
        outcome, failure = from_exception(error, evidence())
    assert outcome == Outcome.INVALID
    assert failure.reason.startswith("ValueError: shapes differ (")
    assert "test_outcomes.py:" in failure.reason


def reason_of(error, workload_file=""):
    return from_exception(error, evidence(workload_file=workload_file))[1].reason


def raised_through(*files):
    """An error whose frames lie in these files, the last one raising it."""
    scope = {"inner": None}
    for depth, file in enumerate(reversed(files)):
        body = "raise ValueError('shapes differ')" if depth == 0 else "inner()"
        exec(compile(f"def call():\n    {body}", file, "exec"), scope)
        scope = {"inner": scope["call"]}
    try:
        scope["inner"]()
    except ValueError as error:
        return error


TORCH = str(Path(torch.__file__).with_name("functional.py"))
TRIALS = str(Path(trials.__file__).with_name("training.py"))


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ([TRIALS, "/home/mine.py", TRIALS, "/lib/vendor.py", TORCH], "/home/mine.py:2"),
        ([TRIALS, "/home/mine.py", "/lib/vendor.py", "/home/mine.py"], "/home/mine.py:2"),
        ([TRIALS, "/lib/vendor.py", TORCH, "<frozen importlib>"], "/lib/vendor.py:2"),
    ],
)
def test_an_error_is_placed_where_the_workloads_author_looks(files, place):
    assert reason_of(raised_through(*files), "/home/mine.py").endswith(f"({place})")


def test_a_workload_that_says_memory_in_its_own_error_is_still_the_users():
    outcome, failure = from_exception(WorkloadError("no file 'out of memory.py'"), evidence())
    assert outcome == Outcome.INVALID and failure.is_users_fault


def exit_evidence(code, kills):
    return ExitEvidence(
        exit_code=code, phase="timing", host_free_bytes=4 * GIB, kernel_kills=kills, log_tail="x"
    )


@pytest.mark.parametrize("code", [-9, 137])
@pytest.mark.parametrize(("kills", "is_suspect"), [(1, False), (None, True)])
def test_a_kill_is_host_out_of_memory_unless_the_kernel_denies_it(code, kills, is_suspect):
    outcome, failure = from_exit(exit_evidence(code, kills))
    assert (outcome, failure.where) == (Outcome.OUT_OF_MEMORY, Where.HOST)
    assert failure.is_suspect == is_suspect
    assert "offload" in failure.reason and failure.attempted_bytes is None


def test_a_kill_that_the_kernel_did_not_do_is_a_crash():
    outcome, failure = from_exit(exit_evidence(-9, 0))
    assert outcome == Outcome.CRASHED
    assert failure.reason == "trial process ended by SIGKILL, with 4.0 GiB of host memory free"


@pytest.mark.parametrize(("code", "name"), [(-11, "SIGSEGV"), (3, "exit code 3")])
def test_any_other_end_is_a_crash_that_names_its_signal_or_code(code, name):
    outcome, failure = from_exit(exit_evidence(code, 5))
    assert outcome == Outcome.CRASHED and name in failure.reason and failure.log_tail == "x"


def test_nothing_of_the_exception_outlives_its_classification():
    class Big:
        pass

    def fail(big):
        raise RuntimeError("CUDA out of memory.")

    big = Big()
    alive = weakref.ref(big)
    try:
        fail(big)
    except RuntimeError as error:
        result = from_exception(error, evidence())
    del big
    gc.collect()
    assert alive() is None and result[0] == Outcome.OUT_OF_MEMORY


def test_a_missing_file_is_named():
    _, failure = from_exception(FileNotFoundError(2, "No such file", "data.bin"), evidence())
    assert "data.bin" in failure.reason


class SwitchesAutocast(torch.nn.Module):
    """Trains in the dtype of the autocast around it, and recomputes without one."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.is_first = True

    def forward(self, inputs):
        is_first, self.is_first = self.is_first, False
        with torch.autocast("cpu", torch.bfloat16, enabled=is_first):
            return self.layer(inputs).sin()


def test_a_block_that_recomputes_in_another_dtype_is_invalid_on_a_full_device():
    block = SwitchesAutocast()
    checkpoint_blocks([block])
    with pytest.raises(RuntimeError) as caught:
        block(torch.ones(2, 4, requires_grad=True)).sum().backward()
    outcome, failure = from_exception(caught.value, evidence(free=0.1))
    assert outcome == Outcome.INVALID
    assert "other tensors of type bfloat16 and float32 than its forward saved" in failure.reason
    assert "--set checkpoint_interval=0" in failure.reason and "\n" not in failure.reason


def test_a_block_that_saves_fewer_tensors_again_is_invalid():
    error = CheckpointError("A different number of tensors was saved. out of memory")
    outcome, failure = from_exception(error, evidence())
    assert outcome == Outcome.INVALID
    assert "recomputed other tensors than its forward saved" in failure.reason


def program(exit_code=1, log_tail="", kernel_kills=0, phase="timing"):
    return ExitEvidence(
        exit_code=exit_code,
        phase=phase,
        host_free_bytes=GIB,
        kernel_kills=kernel_kills,
        log_tail=log_tail,
        process="program",
    )


@pytest.mark.parametrize(
    "line",
    [
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 2.00 GiB for an array",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapp",
        "OOM when allocating tensor with shape[8192,8192] and type float",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: failed to allocate 8.00GiB",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    ],
)
@pytest.mark.parametrize("exit_code", [1, -6, 134])
def test_a_program_that_prints_of_memory_at_its_end_ran_out_of_it(line, exit_code):
    outcome, failure = from_program(program(exit_code, f"{line}\nhint"), evidence(free=60))
    assert (outcome, failure.where) == (Outcome.OUT_OF_MEMORY, Where.DEVICE)
    assert failure.attempted_bytes > 80 * GIB and failure.log_tail.endswith("hint")


def test_a_program_out_of_threads_ran_out_of_memory_if_it_was_full():
    tail = program(-6, "terminate called: pthread_create() failed (11 vs. 0)")
    assert from_program(tail, evidence(free=0.2))[0] == Outcome.OUT_OF_MEMORY
    assert from_program(tail, evidence(free=60))[0] == Outcome.CRASHED


def test_a_program_that_fails_otherwise_is_invalid_with_its_last_line():
    outcome, failure = from_program(program(2, "usage\ntrain.py: no such flag\n"), evidence())
    assert outcome == Outcome.INVALID
    assert failure.reason == "program ended by exit code 2: train.py: no such flag"
    assert not failure.is_users_fault
    assert from_program(program(phase="load"), evidence())[1].is_users_fault


@pytest.mark.parametrize("exit_code", [-11, 139])
def test_a_program_ended_by_a_signal_crashed_also_behind_a_shell(exit_code):
    assert from_program(program(exit_code), evidence())[0] == Outcome.CRASHED


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_program_that_the_kernel_killed_ran_out_of_host_memory(exit_code):
    outcome, failure = from_program(program(exit_code, kernel_kills=1), evidence())
    assert (outcome, failure.where) == (Outcome.OUT_OF_MEMORY, Where.HOST)
    assert "program killed by the kernel" in failure.reason
    assert from_program(program(exit_code), evidence())[0] == Outcome.CRASHED


def test_a_broken_gpu_is_no_fault_of_the_program():
    tail = program(1, "RuntimeError: CUDA error: unspecified launch failure")
    assert from_program(tail, evidence(free=60))[0] == Outcome.CRASHED
