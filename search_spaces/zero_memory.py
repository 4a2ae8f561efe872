"""Memory of what ZeRO shards and offloads: DeepSpeed's own estimate, and what is certain."""

from dataclasses import dataclass

from search_spaces.config import OffloadTarget, TrainingConfig

BUFFER_FACTOR = 1.5
"""What DeepSpeed's estimate adds to host memory for its buffers."""

SMALLEST_SWAP_BYTES = 2**20
SWAPPED_BYTES = 16
"""A parameter's own on disk: AdamW's two moments, an fp32 copy and its gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is trained, and on what host.

    Attributes:
        num_parameters: Of the model, trained or not.
        num_trainable: Of those, the trained ones.
        num_ranks: Processes that train together on the host, a device each.
        host_bytes: Memory of the host.
    """

    num_parameters: int
    num_trainable: int
    num_ranks: int
    host_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroEstimate:
    """Bytes of weights, gradients and optimizer state in 16-bit training; no activations.

    Attributes:
        device_bytes: On each device.
        host_bytes: On each host.
    """

    device_bytes: int
    host_bytes: int


def estimate_zero2(
    num_parameters: int, *, num_ranks: int, num_hosts: int = 1, is_offloaded: bool
) -> ZeroEstimate:
    """Return DeepSpeed's published estimate for stage 2.

    Source: the documentation's memory requirements and its table (DeepSpeed issues 965, 1536): a
    device holds 4 bytes a parameter and a share of 16, or 2 where the state is offloaded to a
    host that holds 16 or 4 for every device. Later releases count 2 and a share of 18.

    Args:
        num_parameters: Of the model.
        num_ranks: Devices of a host.
        num_hosts: Hosts.
        is_offloaded: Whether optimizer state lives in host memory.
    """
    world = num_ranks * num_hosts
    if is_offloaded:
        device, host = 2.0, max(4 * world, 16)
    else:
        device, host = 4 + 16 / world, 4 * num_ranks
    return ZeroEstimate(
        device_bytes=int(device * num_parameters),
        host_bytes=int(host * BUFFER_FACTOR * num_parameters),
    )


def estimate_zero3_offloaded(
    num_parameters: int,
    *,
    largest_layer: int,
    num_ranks: int,
    num_hosts: int = 1,
    is_built_sharded: bool,
) -> ZeroEstimate:
    """Return DeepSpeed's published estimate for stage 3, parameters and state in host memory.

    Source: as of ``estimate_zero2``. A device holds the largest layer in fp32, and a host 18
    bytes for every parameter of its share, or at least 4 for every device while each of its
    processes builds the whole model.

    Args:
        num_parameters: Of the model.
        largest_layer: Parameters of its largest layer.
        num_ranks: Devices of a host.
        num_hosts: Hosts.
        is_built_sharded: Whether the model is built under ``deepspeed.zero.Init``.
    """
    share = 18 / num_hosts
    host = share if is_built_sharded else max(4 * num_ranks, share)
    return ZeroEstimate(
        device_bytes=4 * largest_layer, host_bytes=int(host * BUFFER_FACTOR * num_parameters)
    )


def too_much_for_host(config: TrainingConfig, job: JobFacts) -> str | None:
    """Return why a host cannot hold what a config offloads to it; None if it may.

    Only what is certain counts: an fp32 copy of each trained parameter and AdamW's two moments,
    whatever the stage and however many processes share them. Buffers, gradients and the processes
    come on top, as in the estimate.
    """
    if config.offload_target != OffloadTarget.CPU or config.lora_rank > 0:
        return None  # adapters are few
    needed = job.num_trainable * (4 + 2 * config.optimizer_bits // 8)
    if needed <= job.host_bytes:
        return None
    if config.zero_stage == 3:
        estimate = estimate_zero3_offloaded(
            job.num_parameters, largest_layer=0, num_ranks=job.num_ranks, is_built_sharded=False
        )
    else:
        estimate = estimate_zero2(job.num_parameters, num_ranks=job.num_ranks, is_offloaded=True)
    return (
        f"offload_target=cpu at zero_stage={config.zero_stage} keeps at least {_gib(needed)} of "
        f"optimizer state in host memory, and with buffers about {_gib(estimate.host_bytes)} by "
        f"DeepSpeed's estimate; this machine has {_gib(job.host_bytes)}; take nvme at zero_stage=3"
    )


def too_little_for_disk(config: TrainingConfig, job: JobFacts) -> str | None:
    """Return why nothing of a model would go to disk; None if it does.

    Source: DeepSpeed's ``MIN_AIO_BYTES``; a smaller shard stays in memory without a word.
    """
    shard = 4 * job.num_trainable // job.num_ranks
    if config.offload_target != OffloadTarget.NVME or shard >= SMALLEST_SWAP_BYTES:
        return None
    return (
        "offload_target=nvme moves nothing of a model this small: DeepSpeed keeps less than 1 "
        f"MiB in memory, and the fp32 shard of a device has {shard / 2**20:.2f} MiB; take cpu or "
        "none"
    )


def too_much_for_disk(num_parameters: int, *, free_bytes: int) -> str | None:
    """Return why a disk cannot hold what a model's training offloads to it; None if it can."""
    needed = SWAPPED_BYTES * num_parameters
    if needed <= free_bytes:
        return None
    return (
        f"offload_target=nvme may write {_gib(needed)} of optimizer state, and --nvme-path has "
        f"{_gib(free_bytes)} free; give another"
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
