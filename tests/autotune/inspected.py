"""A machine as the doctor sees it that has everything, and answers that lack something."""

from autotune.inspection import Machine
from tests.factories import GIB, make_environment, make_facts
from trials.errors import TrialSetupError
from trials.measurement import Failure, Measurement, Outcome
from trials.spec import Task

GPU = make_environment(
    device_kind="cuda",
    device_name="NVIDIA H200",
    device_memory_bytes=141 * GIB,
    cuda="13.0",
    compute_capability="9.0",
)


def answer(spec):
    environment = GPU if spec.is_cuda else make_environment()
    is_described = spec.task == Task.DESCRIBE
    part = {"facts": make_facts()} if is_described else {"environment": environment}
    return Measurement(outcome=Outcome.COMPLETED, **part)


def crash(reason):
    return Measurement(outcome=Outcome.CRASHED, failure=Failure(reason=reason, phase="load"))


def refuse(*args):
    raise TrialSetupError("the NVIDIA driver does not answer: not found")


def fail_on(*words, complaint="it broke"):
    return lambda code: complaint if any(word in code for word in words) else ""


def whole_machine(folder):
    return Machine(
        run_trial=answer,
        system="Linux",
        complaint_about=lambda code: "",
        find_program=lambda name: f"/usr/bin/{name}",
        lacks_header=lambda name: False,
        installed_version=lambda package: "1.2.3",
        cores=lambda: (0, 1),
        free_memory_bytes=lambda: 16 * GIB,
        free_disk_bytes=lambda folder: 50 * GIB,
        temporary_folder=lambda: "/tmp",
        num_gpus=lambda: 0,
        driver_version=refuse,
        device_files=folder,
    )
