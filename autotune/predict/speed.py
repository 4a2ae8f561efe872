"""Seconds of an optimizer step: a roofline over stretches, and what moves beside them."""

from dataclasses import dataclass, replace

from autotune.predict.memory import Kept, recomputed_blocks
from search_spaces import ActivationOffload, AmpDtype, OffloadTarget, TrainingConfig
from trials.trace_facts import GraphTrace, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpeed:
    """How fast a kind of device is, per thread on a CPU.

    Attributes:
        name: Part of the name that the device gives itself.
        flops: Per second, by data type of the matrix products.
        bytes_per_second: Of its memory.
        operator_seconds: To start an operator.
        link_bytes_per_second: To the host, each way.
        disk_bytes_per_second: To a local disk.
        memory_bytes: Of a device that is not here; 0 for one that is.
    """

    name: str
    flops: dict[AmpDtype, float]
    bytes_per_second: float
    operator_seconds: float
    link_bytes_per_second: float
    disk_bytes_per_second: float = 2e9
    memory_bytes: int = 0


def _gpu(
    name: str, fp32: float, tf32: float, half: float, bandwidth: float, gib: int
) -> DeviceSpeed:
    reached = 0.5  # of the peak that a vendor states, in training
    flops = {AmpDtype.FP32: fp32, AmpDtype.TF32: tf32, AmpDtype.BF16: half, AmpDtype.FP16: half}
    return DeviceSpeed(
        name=name,
        flops={dtype: reached * rate * 1e12 for dtype, rate in flops.items()},
        bytes_per_second=0.7 * bandwidth * 1e12,
        operator_seconds=8e-6,
        link_bytes_per_second=20e9,
        memory_bytes=gib * 2**30,
    )


GPUS = (
    _gpu("H200", 67, 495, 990, 4.8, 141),
    _gpu("H100", 67, 495, 990, 3.35, 80),
    _gpu("A100", 19.5, 156, 312, 2.0, 80),
    _gpu("L40S", 91, 183, 362, 0.86, 48),
    _gpu("V100", 15.7, 15.7, 112, 0.9, 32),
)
"""From the vendor's data sheets, dense: teraflops in fp32, tf32 and 16 bits, TB/s, GB."""
USUAL_GPU = GPUS[2]
CPU = DeviceSpeed(
    name="CPU",
    flops={
        AmpDtype.FP32: 3e10,
        AmpDtype.TF32: 3e10,
        AmpDtype.BF16: 3e9,
        AmpDtype.FP16: 3e9,
    },
    bytes_per_second=8e9,
    operator_seconds=1.5e-5,
    link_bytes_per_second=8e9,
)
"""A core without instructions for 16 bits, which then are emulated."""
CPU_UPDATE_SECONDS = {32: 0.0, 8: 5e-8, 4: 2.2e-7}
"""Of a trained parameter, by bits of state: bitsandbytes and torchao pack slowly on a CPU.

Measured on one thread of an AMD EPYC, models of 0.8 and 4.8 M parameters, 4 steps each: 5.4e-8 and
6.2e-8 in 8 bits, 2.5e-7 and 2.0e-7 in 4, less 5e-9 in 32.
"""


def speed_of(device_kind: str, device_name: str, num_threads: int = 1) -> DeviceSpeed:
    """Return the speeds of a device by the name it gives itself; the usual ones if unknown.

    Args:
        device_kind: ``cpu`` or ``cuda``.
        device_name: As in ``Environment``.
        num_threads: That compute on a CPU.
    """
    if device_kind == "cpu":
        return replace(CPU, flops={kind: num_threads * rate for kind, rate in CPU.flops.items()})
    return next((gpu for gpu in GPUS if gpu.name in device_name), USUAL_GPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Seconds of an optimizer step, before any trial corrects them.

    Attributes:
        compute: Of forward, backward and recomputing.
        starting: Of starting operators.
        stepping: Of the optimizer.
        moving: Between device, host and disk.
    """

    compute: float
    starting: float
    stepping: float
    moving: float

    @property
    def total(self) -> float:
        """Seconds together."""
        return self.compute + self.starting + self.stepping + self.moving


def step_parts(
    graph: GraphTrace,
    config: TrainingConfig,
    kept: Kept,
    held_bytes: float,
    *,
    speed: DeviceSpeed,
    num_blocks: int,
) -> StepParts:
    """Return the seconds of an optimizer step.

    Args:
        graph: Of the config.
        config: The config.
        kept: What it keeps, by where.
        held_bytes: Of activations.
        speed: Of the device.
        num_blocks: That recomputing chooses from.
    """
    chosen = recomputed_blocks(config, num_blocks)
    works = []
    for stretch in graph.stretches:
        works += [stretch.forward, stretch.backward]
        if stretch.block is not None and stretch.block in chosen:
            works.append(stretch.forward)
    flops = speed.flops[config.amp_dtype]
    compute = sum(_roofline(work, config, flops, speed.bytes_per_second) for work in works)
    operators = sum(work.operators for work in works)
    trained, tensors = graph.num_trained, sum(count for _, count in graph.trained)
    traffic = 4 * (2 * trained) + 4 * trained + 2 * kept.state
    packing = CPU_UPDATE_SECONDS[config.optimizer_bits] * trained if speed.name == CPU.name else 0
    per_step = config.accumulation_steps
    return StepParts(
        compute=per_step * compute,
        starting=per_step * operators * speed.operator_seconds,
        stepping=traffic / speed.bytes_per_second
        + 10 * tensors * speed.operator_seconds
        + packing,
        moving=_moving(config, trained, held_bytes, speed),
    )


def _roofline(work: Work, config: TrainingConfig, flops: float, bandwidth: float) -> float:
    size = config.micro_batch_size
    return max(work.flops.at(size) / flops, work.moved_bytes.at(size) / bandwidth)


def _moving(config: TrainingConfig, trained: int, held_bytes: float, speed: DeviceSpeed) -> float:
    """Return the seconds of what leaves the device and comes back, as if nothing hid them.

    Offloaded state: gradients down and parameters up in fp32, and on a disk 12 bytes a
    parameter read and written beside them. Activations: down, and up again.
    """
    moved = 0.0
    if config.offload_target in (OffloadTarget.CPU, OffloadTarget.NVME):
        moved += 8 * trained / speed.link_bytes_per_second
    if config.offload_target == OffloadTarget.NVME:
        moved += 24 * trained / speed.disk_bytes_per_second
    if config.activation_offload == ActivationOffload.CPU:
        moved += config.accumulation_steps * 2 * held_bytes / speed.link_bytes_per_second
    return moved
