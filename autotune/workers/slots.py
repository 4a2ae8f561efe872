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
    """

    name: str
    device: str
    num_threads: int
    cores: tuple[int, ...] = ()

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


def plan_slots(device_kind: str, num_slots: int | None, machine: Machine) -> tuple[SlotPlan, ...]:
    """Plan slots on one machine, each with a device and with cores of its own.

    Args:
        device_kind: ``cpu`` or ``cuda``.
        num_slots: How many; None for one per GPU, or on CPU two where there are the cores.
        machine: Which has them.

    Raises:
        WorkersError: The machine does not have them; the message says what it has.
    """
    num_cores, gpus = len(machine.cores), machine.num_gpus
    if device_kind == "cpu":
        count = min(DEFAULT_CPU_SLOTS, num_cores) if num_slots is None else num_slots
        _require(count, num_cores, needed="usable CPU core")
        return _plans("cpu", count, _shares(machine.cores, count))
    _require_cuda(device_kind)
    count = gpus if num_slots is None else num_slots
    _require(count, gpus, needed="visible GPU")
    # Shares of all GPUs, used or not: a trial is measured alike however many slots there are.
    return _plans("cuda", count, _shares(machine.cores, gpus))


def plan_cluster_slots(
    device_kind: str, num_slots: int | None, nodes: Sequence[Mapping[str, float]]
) -> tuple[SlotPlan, ...]:
    """Plan slots on a cluster of several machines; cores are left to each machine.

    Args:
        device_kind: ``cpu`` or ``cuda``.
        num_slots: As for ``plan_slots``.
        nodes: Of each living node, how much it has of ``CPU`` and ``GPU``.

    Raises:
        WorkersError: The cluster does not have them; the message says what it has.
    """
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    if device_kind == "cpu":
        count = min(DEFAULT_CPU_SLOTS, sum(cpus)) if num_slots is None else num_slots
        _require(count, sum(cpus), needed="CPU", where=" in the cluster")
        threads = max(t for t in range(1, max(cpus) + 1) if sum(n // t for n in cpus) >= count)
        return tuple(
            SlotPlan(name=f"cpu-{index}", device="cpu", num_threads=threads)
            for index in range(count)
        )
    _require_cuda(device_kind)
    gpus = [int(node.get("GPU", 0)) for node in nodes]
    count = sum(gpus) if num_slots is None else num_slots
    _require(count, sum(gpus), needed="GPU", where=" in the cluster")
    threads = min(cpu // gpu for cpu, gpu in zip(cpus, gpus, strict=True) if gpu)
    return tuple(
        SlotPlan(name=f"cuda-{index}", device="cuda:0", num_threads=max(1, threads))
        for index in range(count)
    )


def _plans(kind: str, count: int, shares: Sequence[tuple[int, ...]]) -> tuple[SlotPlan, ...]:
    return tuple(
        SlotPlan(
            name=f"{kind}-{index}",
            device=kind if kind == "cpu" else f"{kind}:{index}",
            num_threads=max(1, len(shares[index])),
            cores=shares[index],
        )
        for index in range(count)
    )


def _shares(cores: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Split cores into equal parts; a remainder stays free, or slots would differ."""
    size = len(cores) // count
    return [tuple(sorted(cores[i * size : (i + 1) * size])) for i in range(count)]


def _require(count: int, available: int, *, needed: str, where: str = "") -> None:
    """Refuse more slots than there is of what each needs."""
    if 1 <= count <= available:
        return
    is_gpu = needed.endswith("GPU")
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
