"""What each technique needs beyond torch, whether it is here, and what is left out without it."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from autotune.checks import Check, Status, ok, warning
from autotune.inspection import Machine
from autotune.needs import PACKAGE_OF
from search_spaces import TECHNIQUES, AmpDtype, DeviceFacts, KnobValue, TrainingConfig, refusal

Values = dict[str, KnobValue]
LEFT_OUT: dict[str, tuple[tuple[str, Values], ...]] = {
    "8-bit": (
        ("optimizer_bits=8", {"optimizer_bits": 8}),
        ("optimizer=lion", {"optimizer": "lion"}),
        ("offload_target=paged", {"offload_target": "paged"}),
        ("weight_bits=8", {"weight_bits": 8}),
        ("weight_bits=4", {"weight_bits": 4}),
    ),
    "4-bit": (
        ("optimizer_bits=4", {"optimizer_bits": 4}),
        ("offload_target=cpu at zero_stage=0", {"offload_target": "cpu"}),
    ),
    "8-bit-on-cpu": (
        (
            "optimizer_bits=8 with offload_target=cpu",
            {"optimizer_bits": 8, "offload_target": "cpu", "zero_stage": 1},
        ),
    ),
    "lora": (("lora_rank above 0", {"lora_rank": 1}),),
    "zero": (("zero_stage above 0 by deepspeed", {"zero_stage": 1}),),
    "offload-cpu": (
        ("offload_target=cpu by deepspeed", {"offload_target": "cpu", "zero_stage": 1}),
    ),
    "offload-nvme": (("offload_target=nvme", {"offload_target": "nvme", "zero_stage": 3}),),
    "compile": (("compile=on", {"compile": "on"}),),
}
"""By technique, in words and as an example: what no config has where it cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A Python package that some of the program needs.

    Attributes:
        name: As it is installed.
        module: Imported to see whether it works.
        if_broken: Status when it is installed and cannot be imported.
        remedy: What to do when it is missing or broken.
    """

    name: str
    module: str
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
        name="torchao",
        module="torchao.optim",
        remedy="pip install --force-reinstall 'autotune[low-bit]'; only optimizer_bits=4 and "
        "offload without ZeRO need it",
    ),
    Package(
        name="peft",
        module="peft",
        remedy="pip install --force-reinstall 'autotune[lora]'; only lora_rank needs it",
    ),
    Package(
        name="deepspeed",
        module="deepspeed",
        remedy="pip install deepspeed; only zero_stage and offload_target need it",
    ),
    Package(
        name="transformers",
        module="transformers",
        remedy="pip install 'autotune[huggingface]'; only huggingface: workloads need it",
    ),
    Package(name="ray", module="ray", remedy="pip install 'ray>=2.60', or run with --local"),
    Package(
        name="optuna-dashboard",
        module="optuna_dashboard",
        remedy="pip install optuna-dashboard; only autotune dashboard needs it",
    ),
)


def package_checks(machine: Machine) -> list[Check]:
    """Import each package in a process of its own: being installed is not enough."""
    with ThreadPoolExecutor(max_workers=len(machine.cores())) as pool:
        return list(pool.map(partial(_package, machine), PACKAGES))


def _package(machine: Machine, package: Package) -> Check:
    version = machine.installed_version(package.name)
    if version is None:
        return warning(package.name, "not installed", package.remedy)
    complaint = machine.complaint_about(f"import {package.module}")
    if not complaint:
        return ok(package.name, version)
    return Check(
        name=package.name,
        status=package.if_broken,
        found=f"{version} cannot be imported: {complaint}",
        remedy=package.remedy,
    )


def technique_checks(device: DeviceFacts, packages: Sequence[Check]) -> list[Check]:
    """Return whether each technique can be tried, and what a study leaves out if not.

    Args:
        device: What its probe found.
        packages: From ``package_checks``; a probe does not import all of them.
    """
    found = {check.name: check for check in packages}
    needed = {name: found.get(PACKAGE_OF.get(name, "")) for name in TECHNIQUES}
    checks = [_technique(name, device, package) for name, package in needed.items()]
    return [*_amp_checks(device), *checks]


def _technique(name: str, device: DeviceFacts, package: Check | None) -> Check:
    left_out = tuple(words for words, _ in LEFT_OUT[name])
    why = device.why_missing(name)
    if why is not None:
        found, _, remedy = why.rpartition("; ")
        return replace(warning(name, found, remedy), left_out=left_out)
    if package is not None and package.status != Status.OK:
        found = f"{package.name} {package.found}"
        return replace(warning(name, found, package.remedy), left_out=left_out)
    return ok(name, "can be tried")


def _amp_checks(device: DeviceFacts) -> list[Check]:
    """Return whether a GPU has the data types that not every one has."""
    if device.kind == "cpu":
        return []
    return [_amp_check(dtype, device) for dtype in (AmpDtype.TF32, AmpDtype.BF16)]


def _amp_check(dtype: AmpDtype, device: DeviceFacts) -> Check:
    why = refusal(TrainingConfig(amp_dtype=dtype), device)
    if why is None:
        return ok(dtype, "can be tried")
    lacking = warning(dtype, why, "take fp16, or a GPU of compute capability 8.0 or later")
    return replace(lacking, left_out=(f"amp_dtype={dtype}",))


def header_check(machine: Machine) -> Check:
    """Look for what DeepSpeed's operator for disks is compiled with."""
    if not machine.lacks_header("libaio.h"):
        return ok("libaio", "its headers are there")
    return warning(
        "libaio",
        "no libaio.h, without which offload_target=nvme cannot be built",
        "apt-get install libaio-dev (or libaio-devel), then autotune doctor --build",
    )
