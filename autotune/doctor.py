"""What this machine has for trials, found out by trying, and what to do about what it lacks."""

import os
import platform
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from autotune.checks import Check, Status, failed, ok, warning
from autotune.errors import StoreError, WorkersError
from autotune.figures import shown_count
from autotune.inspection import C_COMPILERS, Machine
from autotune.settings import Settings
from autotune.store.engine import normalise_url
from autotune.store.sql import SqlStore
from autotune.technique_checks import header_check, package_checks, technique_checks
from autotune.workers.probes import described_facts, probe_spec, probed_environment
from trials.child import PRELOAD
from trials.environment import Environment
from trials.errors import TrialSetupError, WorkloadError
from trials.machine import host_memory_bytes, processor_name
from trials.measurement import WorkloadFacts
from trials.spec import Task

GIB = 2**30
LOW_MEMORY_BYTES = 2 * GIB
LOW_DISK_BYTES = GIB

COMPILERS = (C_COMPILERS, ("c++", "g++", "clang++"))
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


def run_checks(settings: Settings, machine: Machine) -> list[Check]:
    """Look at everything, whatever is missing.

    Args:
        settings: The store, the workload and the device to look at.
        machine: From ``this_machine``.

    Raises:
        SettingsError: The store's address is none.
    """
    checks = [ok("python", f"{platform.python_version()} at {sys.executable}"), _system(machine)]
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
    packages = package_checks(machine)
    return [
        *checks,
        *_trial_checks(settings, machine, kind, packages),
        _nvml(machine),
        _compilers(machine),
        header_check(machine),
        *packages,
    ]


def _trial_checks(
    settings: Settings, machine: Machine, kind: str, packages: Sequence[Check]
) -> list[Check]:
    """Check what only a trial's own process can tell."""
    environment, torch_check = _torch(machine, settings.nvme_path)
    if environment is None:
        return [torch_check]
    device_check = _device(machine, kind)
    is_on_gpu = kind == "cuda" and device_check.status == Status.OK
    device = "cuda:0" if is_on_gpu else "cpu"
    workload, workload_check = _workload(machine, settings.workload, device)
    here = _gpu_environment(machine, settings.nvme_path, device) or environment
    facts = here.device_facts() if workload is None else workload.rules_facts(here)
    return [torch_check, device_check, workload_check, *technique_checks(facts, packages)]


def _refused(name: str, error: Exception) -> Check:
    """Fail for an error of ours, which tells its remedy after what is wrong."""
    found, _, remedy = str(error).partition("; ")
    return failed(name, found, remedy or "try again; autotune probe --local shows more")


def _system(machine: Machine) -> Check:
    if machine.system == "Linux":
        return ok("system", platform.platform())
    return failed("system", machine.system, "run trials on Linux: they need its /proc")


def _peak_memory(machine: Machine) -> Check:
    complaint = machine.complaint_about(RESET_PEAK)
    if not complaint:
        return ok("peak memory", "can be reset and read")
    return failed("peak memory", complaint, "run outside of a sandbox that hides /proc")


def _memory_limit(machine: Machine, *, is_needed: bool) -> Check:
    complaint = machine.complaint_about(KEEP_LIMIT)
    if not complaint:
        return ok("memory limit", "the kernel keeps RLIMIT_DATA")
    make = failed if is_needed else warning
    remedy = "trials on CPU need Linux 4.7 or later, outside of a sandbox that emulates it"
    return make("memory limit", complaint, remedy)


def _cores(machine: Machine) -> Check:
    found = f"{len(machine.cores())} x {processor_name()}"
    if len(machine.cores()) > 1:
        return ok("cores", found)
    return warning("cores", found, "give it two: beside the driver a trial's times are noisy")


def _memory(machine: Machine) -> Check:
    free = machine.free_memory_bytes()
    found = f"{_gib(free)} of {_gib(host_memory_bytes())} free"
    if free >= LOW_MEMORY_BYTES:
        return ok("memory", found)
    return warning("memory", found, f"end other programs: trials need {_gib(LOW_MEMORY_BYTES)}")


def _temporary_files(machine: Machine) -> Check:
    name = "temporary files"
    try:
        folder = Path(machine.temporary_folder())
    except FileNotFoundError as error:
        return failed(name, str(error), "set TMPDIR to a folder that can be written to")
    return _space(name, folder, machine)


def _space(name: str, folder: Path, machine: Machine) -> Check:
    free = machine.free_disk_bytes(folder)
    found = f"{_gib(free)} free in {folder}"
    if free >= LOW_DISK_BYTES:
        return ok(name, found)
    return warning(name, found, f"free some: below {_gib(LOW_DISK_BYTES)} is little")


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
    return ok("store", f"reached, its schema is current, {shown_count(count, 'study', 'studies')}")


def _new_store(path: Path, folder: Path) -> Check:
    if folder.is_dir() and os.access(folder, os.W_OK):
        return ok("store", f"none yet; the first study makes {path}")
    remedy = "choose a folder that you may write to, with --store"
    return failed("store", f"{path} cannot be made in {folder}", remedy)


def _torch(machine: Machine, nvme_path: Path | None) -> tuple[Environment | None, Check]:
    probe = probe_spec(None if nvme_path is None else str(nvme_path.resolve()))
    try:
        environment = probed_environment("cpu", machine.run_trial(probe))
    except (WorkersError, TrialSetupError) as error:
        reason = machine.complaint_about(f"import {PRELOAD}") or str(error)
        remedy = "pip install --force-reinstall torch, unless another check says the same"
        return None, failed("torch", reason, remedy)
    return environment, ok("torch", f"{environment.torch}, in a trial's own process")


def _gpu_environment(machine: Machine, nvme_path: Path | None, device: str) -> Environment | None:
    """Return what a GPU is; None on a CPU, which is looked at already."""
    if device == "cpu":
        return None
    probe = probe_spec(None if nvme_path is None else str(nvme_path.resolve()))
    return machine.run_trial(replace(probe, device=device)).environment


def _device(machine: Machine, kind: str) -> Check:
    if kind == "cpu":
        count = machine.num_gpus()
        found = f"{shown_count(count, 'GPU')}, left alone" if count else "no GPU"
        return ok("device", f"{found}: trials run on cpu")
    try:
        spec = replace(probe_spec(), device="cuda:0")
        gpu = probed_environment(spec.device, machine.run_trial(spec))
    except (WorkersError, TrialSetupError) as error:
        remedy = "install torch for the driver's CUDA, or run with --device cpu"
        return failed("device", str(error), remedy)
    memory = _gib(gpu.device_memory_bytes)
    return ok("device", f"{machine.num_gpus()} x {gpu.device_name}, {memory}, CUDA {gpu.cuda}")


def _workload(machine: Machine, reference: str, device: str) -> tuple[WorkloadFacts | None, Check]:
    spec = replace(probe_spec(), workload=reference, task=Task.DESCRIBE, device=device)
    try:
        facts = described_facts(reference, machine.run_trial(spec))
    except WorkloadError as error:
        theirs = failed("workload", str(error), "mend it, or name another")
        return None, replace(theirs, is_users_fault=True)
    except TrialSetupError as error:
        return None, _refused("workload", error)
    found = f"{reference}: {facts.num_parameters:,} parameters, {facts.num_blocks} blocks"
    return facts, ok("workload", found)


def _nvml(machine: Machine) -> Check:
    try:
        return ok("nvml", f"driver {machine.driver_version()}")
    except TrialSetupError as error:
        if not (machine.device_files / "nvidiactl").exists():
            return ok("nvml", "no NVIDIA driver; only GPUs need it")
        remedy = "mend the NVIDIA driver (after an update, restart): GPUs go unused without it"
        return warning("nvml", str(error), remedy)


def _compilers(machine: Machine) -> Check:
    paths = [next(filter(None, map(machine.find_program, names)), None) for names in COMPILERS]
    found = ", ".join(
        path or f"no {names[0]}" for path, names in zip(paths, COMPILERS, strict=True)
    )
    if all(paths):
        return ok("compilers", found)
    remedy = "install gcc and g++; only DeepSpeed's operators need them"
    return warning("compilers", found, remedy)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
