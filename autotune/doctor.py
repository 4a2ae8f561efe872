"""What this machine has for trials, found out by trying, and what to do about what it lacks."""

import os
import platform
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from autotune.errors import StoreError, WorkersError
from autotune.inspection import Machine
from autotune.settings import Settings
from autotune.store.engine import normalise_url
from autotune.store.sql import SqlStore
from autotune.workers.probes import described_facts, probe_spec, probed_environment
from search_spaces import TECHNIQUES, DeviceFacts
from trials.child import PRELOAD
from trials.environment import Environment
from trials.errors import TrialSetupError, WorkloadError
from trials.machine import host_memory_bytes, processor_name
from trials.spec import Task

GIB = 2**30
LOW_MEMORY_BYTES = 2 * GIB
LOW_DISK_BYTES = GIB

COMPILERS = (("cc", "gcc", "clang"), ("c++", "g++", "clang++"))
RESET_PEAK = """
from pathlib import Path
Path("/proc/self/clear_refs").write_text("5")
if "VmHWM" not in Path("/proc/self/status").read_text():
    raise SystemExit("/proc/self/status has no VmHWM")
"""
KEEP_LIMIT = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_DATA)
resource.setrlimit(resource.RLIMIT_DATA, (2**27, hard))
try:
    bytearray(2**28)
except MemoryError:
    raise SystemExit
raise SystemExit("256 MiB were granted under an RLIMIT_DATA of 128 MiB")
"""


class Status(StrEnum):
    """How a check went.

    ok       there, and it works
    warning  trials run; something else does not
    failed   trials cannot run
    """

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: Of the thing.
        status: How it went.
        found: What is there, or what is wrong.
        remedy: What to do about it; empty when it is ok.
        is_users_fault: Whether it failed by what the user gave, and not by the machine.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""
    is_users_fault: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A Python package that some of the program needs.

    Attributes:
        name: As it is installed.
        module: Imported to see whether it works; empty where being installed is enough.
        if_broken: Status when it is installed and cannot be imported.
        remedy: What to do when it is missing or broken.
    """

    name: str
    module: str = ""
    if_broken: Status = Status.WARNING
    remedy: str


PACKAGES = (
    Package(
        name="bitsandbytes",
        module="bitsandbytes.optim",
        if_broken=Status.FAILED,  # what starts trials imports it where it is installed
        remedy="pip install --force-reinstall bitsandbytes, or do without it and without "
        "optimizer_bits=8: pip uninstall bitsandbytes",
    ),
    Package(
        name="deepspeed",
        remedy="pip install deepspeed; only zero_stage and offload_target need it",
    ),
    Package(name="ray", module="ray", remedy="pip install 'ray>=2.60', or run with --local"),
    Package(
        name="optuna-dashboard",
        module="optuna_dashboard",
        remedy="pip install optuna-dashboard; only autotune dashboard needs it",
    ),
)


def run_checks(settings: Settings, machine: Machine) -> list[Check]:
    """Look at everything, whatever is missing.

    Args:
        settings: The store, the workload and the device to look at.
        machine: From ``this_machine``.

    Raises:
        SettingsError: The store's address is none.
    """
    checks = [_ok("python", f"{platform.python_version()} at {sys.executable}"), _system(machine)]
    if checks[-1].status == Status.FAILED:
        return checks
    kind = settings.device or ("cuda" if machine.num_gpus() else "cpu")
    checks += [
        *_store_checks(settings.store, machine),
        _temporary_files(machine),
        _cores(machine),
        _memory(machine),
        _peak_memory(machine),
        _memory_limit(machine, is_needed=kind == "cpu"),
    ]
    environment, torch_check = _torch(machine, settings.nvme_path)
    checks.append(torch_check)
    if environment is not None:
        checks.append(_device(machine, kind))
        is_on_gpu = kind == "cuda" and checks[-1].status == Status.OK
        device = "cuda:0" if is_on_gpu else "cpu"
        checks.append(_workload(machine, settings.workload, device))
        on_gpu = _device_facts(machine, settings.nvme_path, device)
        facts = on_gpu or environment.device_facts()
        checks += [_technique(name, facts) for name in TECHNIQUES]
    checks += [_nvml(machine), _compilers(machine)]
    return checks + [_package(machine, package) for package in PACKAGES]


def _ok(name: str, found: str) -> Check:
    return Check(name=name, status=Status.OK, found=found)


def _warning(name: str, found: str, remedy: str) -> Check:
    return Check(name=name, status=Status.WARNING, found=found, remedy=remedy)


def _failed(name: str, found: str, remedy: str) -> Check:
    return Check(name=name, status=Status.FAILED, found=found, remedy=remedy)


def _refused(name: str, error: Exception) -> Check:
    """Fail for an error of ours, which tells its remedy after what is wrong."""
    found, _, remedy = str(error).partition("; ")
    return _failed(name, found, remedy or "try again; autotune probe --local shows more")


def _system(machine: Machine) -> Check:
    if machine.system == "Linux":
        return _ok("system", platform.platform())
    return _failed("system", machine.system, "run trials on Linux: they need its /proc")


def _peak_memory(machine: Machine) -> Check:
    complaint = machine.complaint_about(RESET_PEAK)
    if not complaint:
        return _ok("peak memory", "can be reset and read")
    return _failed("peak memory", complaint, "run outside of a sandbox that hides /proc")


def _memory_limit(machine: Machine, *, is_needed: bool) -> Check:
    complaint = machine.complaint_about(KEEP_LIMIT)
    if not complaint:
        return _ok("memory limit", "the kernel keeps RLIMIT_DATA")
    make = _failed if is_needed else _warning
    remedy = "trials on CPU need Linux 4.7 or later, outside of a sandbox that emulates it"
    return make("memory limit", complaint, remedy)


def _cores(machine: Machine) -> Check:
    found = f"{len(machine.cores())} x {processor_name()}"
    if len(machine.cores()) > 1:
        return _ok("cores", found)
    return _warning("cores", found, "give it two: beside the driver a trial's times are noisy")


def _memory(machine: Machine) -> Check:
    free = machine.free_memory_bytes()
    found = f"{_gib(free)} of {_gib(host_memory_bytes())} free"
    if free >= LOW_MEMORY_BYTES:
        return _ok("memory", found)
    return _warning("memory", found, f"end other programs: trials need {_gib(LOW_MEMORY_BYTES)}")


def _temporary_files(machine: Machine) -> Check:
    name = "temporary files"
    try:
        folder = Path(machine.temporary_folder())
    except FileNotFoundError as error:
        return _failed(name, str(error), "set TMPDIR to a folder that can be written to")
    return _space(name, folder, machine)


def _space(name: str, folder: Path, machine: Machine) -> Check:
    free = machine.free_disk_bytes(folder)
    found = f"{_gib(free)} free in {folder}"
    if free >= LOW_DISK_BYTES:
        return _ok(name, found)
    return _warning(name, found, f"free some: below {_gib(LOW_DISK_BYTES)} is little")


def _store_checks(store_url: str, machine: Machine) -> list[Check]:
    url = normalise_url(store_url)
    if url.get_backend_name() != "sqlite":
        return [_store(store_url)]
    assert url.database is not None
    path = Path(url.database)
    folder = next(place for place in path.parents if place.exists())
    store = _store(store_url) if path.exists() else _new_store(path, folder)
    return [store, _space("disk", folder, machine)]


def _store(store_url: str) -> Check:
    try:
        with closing(SqlStore.open(store_url)) as store:
            count = len(store.studies())
    except StoreError as error:
        return _refused("store", error)
    return _ok("store", f"reached, its schema is current, {count} studies")


def _new_store(path: Path, folder: Path) -> Check:
    if folder.is_dir() and os.access(folder, os.W_OK):
        return _ok("store", f"none yet; the first study makes {path}")
    remedy = "choose a folder that you may write to, with --store"
    return _failed("store", f"{path} cannot be made in {folder}", remedy)


def _torch(machine: Machine, nvme_path: Path | None) -> tuple[Environment | None, Check]:
    probe = probe_spec(None if nvme_path is None else str(nvme_path.resolve()))
    try:
        environment = probed_environment("cpu", machine.run_trial(probe))
    except (WorkersError, TrialSetupError) as error:
        reason = machine.complaint_about(f"import {PRELOAD}") or str(error)
        remedy = "pip install --force-reinstall torch, unless another check says the same"
        return None, _failed("torch", reason, remedy)
    return environment, _ok("torch", f"{environment.torch}, in a trial's own process")


def _device_facts(machine: Machine, nvme_path: Path | None, device: str) -> DeviceFacts | None:
    """Return what the rules know of a GPU; None on a CPU, which is looked at already."""
    if device == "cpu":
        return None
    probe = probe_spec(None if nvme_path is None else str(nvme_path.resolve()))
    found = machine.run_trial(replace(probe, device=device)).environment
    return None if found is None else found.device_facts()


def _technique(name: str, device: DeviceFacts) -> Check:
    why = device.why_missing(name)
    if why is None:
        return _ok(name, "can be tried")
    found, _, remedy = why.partition(": ")
    return _warning(name, found, remedy or "nothing else needs it")


def _device(machine: Machine, kind: str) -> Check:
    if kind == "cpu":
        count = machine.num_gpus()
        found = f"{count} GPU(s), left alone" if count else "no GPU"
        return _ok("device", f"{found}: trials run on cpu")
    try:
        spec = replace(probe_spec(), device="cuda:0")
        gpu = probed_environment(spec.device, machine.run_trial(spec))
    except (WorkersError, TrialSetupError) as error:
        remedy = "install torch for the driver's CUDA, or run with --device cpu"
        return _failed("device", str(error), remedy)
    memory = _gib(gpu.device_memory_bytes)
    return _ok("device", f"{machine.num_gpus()} x {gpu.device_name}, {memory}, CUDA {gpu.cuda}")


def _workload(machine: Machine, reference: str, device: str) -> Check:
    spec = replace(probe_spec(), workload=reference, task=Task.DESCRIBE, device=device)
    try:
        facts = described_facts(reference, machine.run_trial(spec))
    except WorkloadError as error:
        failed = _failed("workload", str(error), "mend it, or name another")
        return replace(failed, is_users_fault=True)
    except TrialSetupError as error:
        return _refused("workload", error)
    return _ok(
        "workload", f"{reference}: {facts.num_parameters:,} parameters, {facts.num_blocks} blocks"
    )


def _nvml(machine: Machine) -> Check:
    try:
        return _ok("nvml", f"driver {machine.driver_version()}")
    except TrialSetupError as error:
        if not (machine.device_files / "nvidiactl").exists():
            return _ok("nvml", "no NVIDIA driver; only GPUs need it")
        remedy = "mend the NVIDIA driver (after an update, restart): GPUs go unused without it"
        return _warning("nvml", str(error), remedy)


def _compilers(machine: Machine) -> Check:
    paths = [next(filter(None, map(machine.find_program, names)), None) for names in COMPILERS]
    found = ", ".join(
        path or f"no {names[0]}" for path, names in zip(paths, COMPILERS, strict=True)
    )
    if all(paths):
        return _ok("compilers", found)
    remedy = "install gcc and g++; only DeepSpeed's operators need them"
    return _warning("compilers", found, remedy)


def _package(machine: Machine, package: Package) -> Check:
    version = machine.installed_version(package.name)
    if version is None:
        return _warning(package.name, "not installed", package.remedy)
    complaint = machine.complaint_about(f"import {package.module}") if package.module else ""
    if not complaint:
        return _ok(package.name, version)
    return Check(
        name=package.name,
        status=package.if_broken,
        found=f"{version} cannot be imported: {complaint}",
        remedy=package.remedy,
    )


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
