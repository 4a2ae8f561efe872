"""Bytes of a config by kind, and the peak: the fullest of the phases of a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.predict.optimizer_state import FULL, state_bytes, step_bytes
from search_spaces import (
    ActivationOffload,
    AmpDtype,
    OffloadTarget,
    Sharding,
    Switch,
    TrainingConfig,
)
from search_spaces.deepspeed_document import LARGEST_BUCKET, LARGEST_GATHERED, NVME_BUFFERS
from trials.trace_facts import GraphTrace, Stretch, StretchMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """What forward and backward take, apart from how they are stepped.

    Attributes:
        held: Bytes that wait for the backward pass at the end of the forward pass.
        forward: The most of the forward pass.
        backward: For each stretch, the most of its backward pass without the gradients of
            parameters, then with those that it completes.
        done: For each stretch, bytes of gradients that are complete before it.
        completed: For each stretch, bytes of gradients that it completes.
    """

    held: float
    forward: float
    backward: tuple[tuple[float, float], ...]
    done: tuple[int, ...]
    completed: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Bytes of one process that are there whatever the micro-batch.

    Attributes:
        parameters: And buffers, as they are kept.
        beside: Of weights that are gathered or unpacked while they are used, and their scales.
        gradients: At the end of a backward pass.
        state: Of the optimizer.
        buffers: Of what shards: always there, and no kind of their own.
        step: While the optimizer steps.
        host: In host memory beside the device's.
        built: In host memory while the model is built there, before it moves to a GPU.
    """

    parameters: int
    beside: int
    gradients: int
    state: int
    buffers: int
    step: int
    host: int
    built: int = 0


def recomputed_blocks(config: TrainingConfig, num_blocks: int) -> frozenset[int]:
    """Return which blocks recompute, as ``trials.checkpointing`` chooses them."""
    if config.checkpoint_interval == 0:
        return frozenset()
    chosen = range(num_blocks)[-config.checkpoint_deepest :][:: config.checkpoint_interval]
    return frozenset(chosen)


def unheld_copies(graph: GraphTrace, config: TrainingConfig, device_kind: str) -> float:
    """Return bytes of 16-bit weights that the trace holds for each block, and a GPU does not.

    The trace has frozen weights in fp32: autocast casts each, and its linear layer keeps the copy
    for the backward pass. Packed weights are unpacked once more there instead.
    """
    is_low = config.amp_dtype in (AmpDtype.BF16, AmpDtype.FP16)
    if device_kind == "cpu" or config.weight_bits == 32 or not is_low:
        return 0.0
    num_stretches = sum(stretch.block is not None for stretch in graph.stretches)
    elements = sum(size * count for size, count in graph.adapted)
    return 2 * elements / max(1, num_stretches)


def passes(
    graph: GraphTrace, config: TrainingConfig, num_blocks: int, copies: float = 0.0
) -> Passes:
    """Return what the passes of a config take, from the trace of its graph.

    Args:
        graph: Of the config.
        config: The config.
        num_blocks: Of the model.
        copies: Bytes that each block holds in the trace, and would not.
    """
    chosen = recomputed_blocks(config, num_blocks)
    memory = [_without(memory_of(s, chosen), s, chosen, copies) for s in graph.stretches]
    is_offloaded = config.activation_offload == ActivationOffload.CPU
    size = config.micro_batch_size
    level = forward = held = 0.0
    backward = []
    for part in memory:
        forward = max(forward, level + part.forward_peak.at(size))
        own = part.held.at(size)
        # What waits elsewhere is back while its own stretch runs backward.
        held, level = (own, 0.0) if is_offloaded else (held + own, level + part.growth.at(size))
        both = (part.backward_peak.at(size), part.backward_peak_with_gradients.at(size))
        backward.append((held + both[0], held + both[1]))
    completed = tuple(stretch.gradient_bytes for stretch in graph.stretches)
    done = tuple(sum(completed[index + 1 :]) for index in range(len(completed)))
    return Passes(
        held=sum(part.held.at(size) for part in memory),
        forward=forward,
        backward=tuple(backward),
        done=done,
        completed=completed,
    )


def memory_of(stretch: Stretch, recomputed: frozenset[int]) -> StretchMemory:
    """Return a stretch's memory: recomputed, if its block is chosen."""
    is_chosen = stretch.block is not None and stretch.block in recomputed
    if is_chosen and stretch.recomputed is not None:
        return stretch.recomputed
    return stretch.kept


def _without(
    part: StretchMemory, stretch: Stretch, recomputed: frozenset[int], copies: float
) -> StretchMemory:
    """Return a stretch's memory without bytes that it holds from its forward to its backward.

    One that recomputes holds them from the start of its backward pass on.
    """
    if stretch.block is None or copies == 0:
        return part
    if part is stretch.recomputed:
        return replace(
            part,
            backward_peak=part.backward_peak.less(copies),
            backward_peak_with_gradients=part.backward_peak_with_gradients.less(copies),
        )
    return replace(
        part,
        held=part.held.less(copies),
        growth=part.growth.less(copies),
        forward_peak=part.forward_peak.less(copies),
    )


def kept_bytes(
    graph: GraphTrace, config: TrainingConfig, *, device_kind: str, num_ranks: int
) -> Kept:
    """Return what one process keeps, by where the config has it.

    Args:
        graph: Of the config.
        config: The config.
        device_kind: ``cpu`` or ``cuda``; on a CPU the host's memory is the device's.
        num_ranks: Processes that shard.
    """
    parameters, scales, unpacked = _weights(graph, config)
    if config.zero_stage == 0:
        width = graph.weight_bytes
        plain = Kept(
            parameters=parameters,
            beside=scales + unpacked,
            gradients=width * graph.num_trained,
            state=state_bytes(config, graph.trained, width),
            buffers=0,
            step=step_bytes(config, graph.trained, device_kind, width),
            host=0,
        )
        kept = plain if device_kind == "cpu" else _moved_off_gpu(plain, config)
    elif config.sharding == Sharding.FSDP:
        kept = _fsdp(graph, config, parameters, device_kind, num_ranks)
    else:
        kept = _deepspeed(graph, config, parameters + scales, device_kind, num_ranks)
    # Weights that are quantized are whole before that, and trials forget the peak of it.
    is_built_apart = device_kind == "cuda" and config.weight_bits == 32
    return replace(kept, built=graph.parameter_bytes if is_built_apart else 0)


def _weights(graph: GraphTrace, config: TrainingConfig) -> tuple[int, int, int]:
    """Return bytes of parameters, of the scales of packed ones, and of the largest unpacked.

    8 bits have a scale for each row, at most one for 64 elements; 4 bits a byte for 64 and a
    float for 256 of those (QLoRA). Linear4bit unpacks a weight to multiply with it.
    """
    if config.weight_bits == 32:
        return graph.parameter_bytes, 0, 0
    elements = sum(size * count for size, count in graph.adapted)
    largest = max((size for size, _ in graph.adapted), default=0)
    packed = elements * config.weight_bits // 8
    parameters = graph.parameter_bytes - FULL * elements + packed
    width = FULL if config.amp_dtype == "fp32" else 2
    return parameters, elements // 64, largest * width


def _moved_off_gpu(kept: Kept, config: TrainingConfig) -> Kept:
    """Return what is left on a GPU, and what lies on the host, without ZeRO.

    torchao keeps a copy of parameters and gradients beside the state, page-locked.
    """
    if config.offload_target == OffloadTarget.NONE:
        return kept
    copies = 2 * kept.gradients if config.offload_target == OffloadTarget.CPU else 0
    return Kept(
        parameters=kept.parameters,
        beside=kept.beside,
        gradients=kept.gradients,
        state=0,
        buffers=0,
        step=kept.step,
        host=kept.state + copies,
    )


def _fsdp(
    graph: GraphTrace, config: TrainingConfig, parameters: int, device_kind: str, num_ranks: int
) -> Kept:
    """Return what a rank of ``fully_shard`` keeps: shards, and what is gathered of them."""
    shards = [(-(-size // num_ranks), count) for size, count in graph.trained]
    state = state_bytes(config, shards, graph.weight_bytes)
    largest = max((stretch.gradient_bytes for stretch in graph.stretches), default=0)
    gathered = parameters if config.zero_stage == 2 else min(parameters, 2 * largest)
    is_moved = config.offload_target == OffloadTarget.CPU and device_kind == "cuda"
    share = parameters // num_ranks
    gradients = graph.weight_bytes * graph.num_trained // num_ranks
    return Kept(
        parameters=0 if is_moved else share,
        beside=gathered + largest,
        gradients=0 if is_moved else gradients,
        state=0 if is_moved else state,
        buffers=0,
        step=step_bytes(config, shards, device_kind, graph.weight_bytes),
        host=share + gradients + state if is_moved else 0,
    )


def _deepspeed(
    graph: GraphTrace, config: TrainingConfig, parameters: int, device_kind: str, num_ranks: int
) -> Kept:
    """Return what a rank of DeepSpeed keeps.

    It steps fp32 copies of its share of parameters, all in one tensor; at stage 3 weights in fp32
    need none, unless they are offloaded. It gathers gradients in buckets as large as it is told
    (``deepspeed_document``), and on their way to a host in one more, in fp32. Read off trials of
    one rank on a CPU; see the README's Limits.
    """
    share, width = -(-graph.num_trained // num_ranks), graph.weight_bytes
    is_whole = config.zero_stage < 3
    is_offloaded = config.offload_target != OffloadTarget.NONE
    has_copies = is_whole or is_offloaded or width < FULL
    state = FULL * share * has_copies + state_bytes(config, [(share, 1)])
    own = parameters if is_whole else parameters // num_ranks
    gradients = graph.num_trained if config.zero_stage == 1 else share
    gradients *= FULL if is_offloaded else width
    bucket = width * min(graph.num_trained, LARGEST_BUCKET)
    buffers = bucket if num_ranks > 1 or not is_whole else 0
    if is_offloaded:
        buffers += 2 * bucket if is_whole else bucket
    if config.offload_target == OffloadTarget.NVME:
        buffers += NVME_BUFFERS * FULL * graph.largest_trained
    is_moved = is_offloaded and (
        device_kind == "cuda" or config.offload_target == OffloadTarget.NVME
    )
    to_host = is_moved and config.offload_target == OffloadTarget.CPU
    moved = state + gradients + (0 if is_whole else own)
    return Kept(
        parameters=0 if is_moved and not is_whole else own,
        beside=0 if is_whole else min(parameters, width * LARGEST_GATHERED),
        gradients=0 if is_moved else gradients,
        state=0 if is_moved else state,
        buffers=buffers,
        step=step_bytes(config, [(share, 1)], device_kind),
        host=moved if to_host else 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryParts:
    """What the memory of a config is made up of, before any trial corrects it.

    Attributes:
        by_kind: As in ``trials.measurement.MemoryUse``.
        peak: The fullest phase.
        fixed: Of that, parameters and optimizer state.
        host: In host memory, beside the process itself.
        phases: Bytes at the fullest of each phase: forward, backward and step.
    """

    by_kind: dict[str, int]
    peak: float
    fixed: int
    host: int
    phases: dict[str, float]


def fullest(phases: Mapping[str, float]) -> str:
    """Return the phase that takes the most."""
    return max(phases, key=lambda name: phases[name])


def memory_parts(
    config: TrainingConfig, found: Passes, kept: Kept, job_devices: int, overhead: int
) -> MemoryParts:
    """Return the memory of a config: the largest of forward, backward and optimizer step.

    Args:
        config: The config.
        found: What its passes take.
        kept: What it keeps.
        job_devices: That average their gradients.
        overhead: Of the process, beside tensors.
    """
    always = kept.parameters + kept.state + kept.buffers + overhead
    is_freed = config.optimizer_in_backward == Switch.ON
    keeps_all = config.accumulation_steps > 1 or (config.zero_stage == 0 and job_devices > 1)
    before = kept.gradients if keeps_all else 0
    phases = {
        "forward": before + kept.beside + found.forward,
        "backward": kept.beside + _backward(found, kept, keeps_all=keeps_all, is_freed=is_freed),
        "step": 0 if is_freed else kept.gradients + kept.step,
    }
    phases = {name: always + size for name, size in phases.items()}
    peak = max(phases.values())
    at_rest = kept.parameters + kept.state
    gradients = 0 if is_freed else kept.gradients
    is_away = config.activation_offload == ActivationOffload.CPU
    held = 0 if is_away else int(found.held)
    largest = max(held + (gradients if keeps_all else 0), gradients)
    return MemoryParts(
        by_kind={
            "parameters": kept.parameters,
            "gradients": gradients,
            "optimizer_state": kept.state,
            "activations": held,
            "temporary": max(0, int(peak) - at_rest - largest),
        },
        peak=peak,
        fixed=at_rest,
        host=max(kept.built, kept.host + (int(found.held) if is_away else 0)),
        phases=phases,
    )


def _backward(found: Passes, kept: Kept, *, keeps_all: bool, is_freed: bool) -> float:
    """Return the most of the backward pass, gradients included."""
    stretches: Sequence[tuple[tuple[float, float], int, int]]
    stretches = list(zip(found.backward, found.done, found.completed, strict=True))
    if is_freed:
        return max(bare + min(own, kept.step) for (bare, _), _, own in stretches)
    if keeps_all:
        return kept.gradients + max(bare for (bare, _), _, _ in stretches)
    share = kept.gradients / (sum(found.completed) or 1)
    return max(full + (share * done if share < 1 else done) for (_, full), done, _ in stretches)
