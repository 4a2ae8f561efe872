"""Bytes of optimizer state, exactly, and what an optimizer step takes beside it."""

from collections.abc import Iterable

from search_spaces import OffloadTarget, Optimizer, TrainingConfig

SMALL = 4096
"""Elements; a smaller tensor keeps 32 bits, in bitsandbytes and in torchao."""
FULL = 4
"""Bytes of an fp32 value."""
MOMENTS = {Optimizer.ADAMW: 2, Optimizer.LION: 1, Optimizer.SGD: 1}
"""Values that an update rule keeps of a parameter."""
BLOCK_8, MAP_8 = 256, 1024
"""Elements that share a scale in bitsandbytes, and bytes of each of its tables of values."""
BLOCK_4, MAP_4 = 128, 64
"""The same in torchao, which has a table for each tensor."""
COUNTER = 4
"""Bytes of the step that torch's and torchao's AdamW count for each tensor."""
CPU_STEP = {
    (Optimizer.ADAMW, 32): 2,
    (Optimizer.SGD, 32): 0,
    (Optimizer.LION, 32): 3,
    (Optimizer.ADAMW, 8): 5,
    (Optimizer.LION, 8): 5,
    (Optimizer.SGD, 8): 3,
    (Optimizer.ADAMW, 4): 15,
}
"""fp32 copies of a parameter that its update makes on a CPU, counted in the libraries' source."""

Sizes = Iterable[tuple[int, int]]


def state_bytes(config: TrainingConfig, sizes: Sizes, weight_bytes: int = FULL) -> int:
    """Return the bytes of state of one process that shards nothing.

    Args:
        config: Whose optimizer it is.
        sizes: Elements of the trained tensors, and how many have so many.
        weight_bytes: Of an element of them; torch and torchao keep what they do not quantize as
            wide as the weight, and bitsandbytes in fp32.
    """
    counts = list(sizes)
    moments = MOMENTS[config.optimizer]
    each = {32: _full, 8: _eight, 4: _four}[config.optimizer_bits]
    is_torchs = config.optimizer != Optimizer.LION and config.offload_target != OffloadTarget.PAGED
    width = weight_bytes if is_torchs else FULL
    total = sum(count * (moments * each(size, width) + _counter(config)) for size, count in counts)
    if config.optimizer_bits == 8 and any(size >= SMALL for size, _ in counts):
        stepping = sum(count for size, count in counts if size >= SMALL)
        tables = stepping if config.optimizer_in_backward == "on" else 1
        total += moments * MAP_8 * tables
    return total


def step_bytes(
    config: TrainingConfig, sizes: Sizes, device_kind: str, weight_bytes: int = FULL
) -> int:
    """Return what an optimizer step takes for a while, beside parameters, gradients and state.

    On a GPU bitsandbytes and torchao step within one kernel; torch's AdamW makes the square
    roots of all tensors at once. On a CPU tensors are stepped one after the other.
    """
    counts = list(sizes)
    kind, bits = config.optimizer, config.optimizer_bits
    if config.offload_target in (OffloadTarget.CPU, OffloadTarget.NVME):
        return 0
    if device_kind == "cuda":
        is_torchs = bits == 32 and kind == Optimizer.ADAMW
        is_plain = is_torchs and config.offload_target == OffloadTarget.NONE
        return weight_bytes * sum(size * count for size, count in counts) if is_plain else 0
    return FULL * CPU_STEP[kind, bits] * max((size for size, _ in counts), default=0)


def _counter(config: TrainingConfig) -> int:
    is_paged = config.offload_target == OffloadTarget.PAGED
    counts_in_tensor = config.optimizer == Optimizer.ADAMW and config.optimizer_bits != 8
    return COUNTER if counts_in_tensor and not is_paged else 0


def _full(size: int, width: int) -> int:
    return width * size


def _eight(size: int, _: int) -> int:
    return FULL * size if size < SMALL else size + FULL * -(-size // BLOCK_8)


def _four(size: int, width: int) -> int:
    if size < SMALL or size % BLOCK_4:
        return width * size
    return size // 2 + FULL * (size // BLOCK_4) + MAP_4
