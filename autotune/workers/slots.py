"""Which slots there are to run trials on: a device, threads and cores for each. No Ray."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import WorkersError
from trials.machine import usable_cores
from trials.nvml import num_gpus
from trials.spec import TrialSpec

DEFAULT_CPU_SLOTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlan:
    """What one slot gets.

    Attributes:
        name: For people.
        device: ``cpu`` or ``cuda:INDEX``, as the trial process sees it.
        num_threads: Compute threads of a trial.
        cores: CPU cores of the slot alone; empty where cores are not assigned.
        num_devices: Devices of one trial, of which ``device`` is the first; on CPU, processes.
    """

    name: str
    device: str
    num_threads: int
    cores: tuple[int, ...] = ()
    num_devices: int = 1

    @property
    def is_cuda(self) -> bool:
        """Whether the slot needs a GPU."""
        return self.device.startswith("cuda")

    def place(self, spec: TrialSpec) -> TrialSpec:
        """Return a spec bound to what the slot gets."""
        return spec.placed(device=self.device, num_threads=self.num_threads, cores=self.cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What there is to plan with.

    Attributes:
        cores: That this process may use, hyperthreads of one core side by side.
        num_gpus: That this process would see.
    """

    cores: tuple[int, ...]
    num_gpus: int


def this_machine() -> Machine:
    """Return what this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = num_gpus()
    if visible is not None:
        gpus = min(gpus, len([entry for entry in visible.split(",") if entry.strip()]))
    cores = sorted(usable_cores(), key=lambda core: (*_physical_core(core), core))
    return Machine(cores=tuple(cores), num_gpus=gpus)


def plan_slots(
    device_kind: str, num_slots: int | None, machine: Machine, num_devices: int = 1
) -> tuple[SlotPlan, ...]:
    """Plan slots on one machine, each with a device and with cores of its own.

    Args:
        device_kind: ``cpu`` or ``cuda``.
        num_slots: How many; None for one per GPU, or on CPU two where there are the cores.
        machine: Which has them.
        num_devices: Devices of one trial; on CPU, processes with a core or more each.

    Raises:
        WorkersError: The machine does not have them; the message says what it has.
    """
    if device_kind == "cpu":
        room = len(machine.cores) // num_devices
        count = min(DEFAULT_CPU_SLOTS, room) if num_slots is None else num_slots
        _require(count, room, needed=_group("usable CPU core", num_devices))
        return _plans("cpu", _shares(machine.cores, count), num_devices)
    _require_cuda(device_kind)
    room = machine.num_gpus // num_devices
    count = room if num_slots is None else num_slots
    _require(count, room, needed=_group("visible GPU", num_devices))
    # Shares of all GPUs, used or not: a trial is measured alike however many slots there are.
    return _plans("cuda", _shares(machine.cores, room)[:count], num_devices)


def plan_cluster_slots(
    device_kind: str,
    num_slots: int | None,
    nodes: Sequence[Mapping[str, float]],
    num_devices: int = 1,
) -> tuple[SlotPlan, ...]:
    """Plan slots on a cluster of several machines; cores are left to each machine.

    Args:
        device_kind: ``cpu`` or ``cuda``.
        num_slots: As for ``plan_slots``.
        nodes: Of each living node, how much it has of ``CPU`` and ``GPU``.
        num_devices: As for ``plan_slots``; a trial's devices are on one node.

    Raises:
        WorkersError: The cluster does not have them; the message says what it has.
    """
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    if device_kind == "cpu":
        room = sum(cpu // num_devices for cpu in cpus)
        count = min(DEFAULT_CPU_SLOTS, room) if num_slots is None else num_slots
        _require(count, room, needed=_group("CPU", num_devices), where=" in the cluster")
        sizes = range(num_devices, max(cpus) + 1)
        threads = max(t for t in sizes if sum(n // t for n in cpus) >= count)
        return tuple(
            SlotPlan(
                name=f"cpu-{index}", device="cpu", num_threads=threads, num_devices=num_devices
            )
            for index in range(count)
        )
    _require_cuda(device_kind)
    gpus = [int(node.get("GPU", 0)) for node in nodes]
    room = sum(gpu // num_devices for gpu in gpus)
    count = room if num_slots is None else num_slots
    _require(count, room, needed=_group("GPU", num_devices), where=" in the cluster")
    threads = min(cpu // gpu for cpu, gpu in zip(cpus, gpus, strict=True) if gpu) * num_devices
    return tuple(
        SlotPlan(
            name=f"cuda-{index}",
            device="cuda:0",
            num_threads=max(1, threads),
            num_devices=num_devices,
        )
        for index in range(count)
    )


def _plans(kind: str, shares: Sequence[tuple[int, ...]], num_devices: int) -> tuple[SlotPlan, ...]:
    return tuple(
        SlotPlan(
            name=f"{kind}-{index}",
            device=kind if kind == "cpu" else f"{kind}:{index * num_devices}",
            num_threads=max(1, len(cores)),
            cores=cores,
            num_devices=num_devices,
        )
        for index, cores in enumerate(shares)
    )


def _group(device: str, count: int) -> str:
    return device if count == 1 else f"group of {count} {device}s for a trial"


def _shares(cores: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Split cores into equal parts; a remainder stays free, or slots would differ."""
    size = len(cores) // count
    return [tuple(sorted(cores[i * size : (i + 1) * size])) for i in range(count)]


def _require(count: int, available: int, *, needed: str, where: str = "") -> None:
    """Refuse more slots than there is of what each needs."""
    if 1 <= count <= available:
        return
    is_gpu = "GPU" in needed
    if available == 0 and needed.startswith("group"):
        raise WorkersError(
            f"there is no {needed}{where or ' on this machine'}; take fewer --trial-devices"
        )
    if available == 0:
        remedy = "use --device cpu" if is_gpu else "start a node that has one"
        raise WorkersError(f"there is no {needed}{where or ' on this machine'}; {remedy}")
    there_are = f"there is 1 {needed}" if available == 1 else f"there are {available} {needed}s"
    raise WorkersError(
        f"asked for {count} slots, but {there_are}{where}, and a {'CUDA' if is_gpu else 'CPU'} "
        f"slot needs one; --slots {available} at most"
    )


def _require_cuda(device_kind: str) -> None:
    if device_kind != "cuda":
        raise WorkersError(f"device {device_kind!r} is not known; choose cpu or cuda")


def _physical_core(core: int) -> tuple[int, int]:
    topology = Path(f"/sys/devices/system/cpu/cpu{core}/topology")
    try:
        package = int((topology / "physical_package_id").read_text())
        return package, int((topology / "core_id").read_text())
    except OSError:
        return 0, core
