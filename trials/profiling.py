"""Steps of a trial under torch's profiler: operators, waits, a trace and a picture of memory.

It is done in a process of its own, after the one that measures: profiling slows steps down and
takes memory, and neither may show in a measurement.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from search_spaces import OffloadTarget
from trials.codec import to_plain
from trials.engines import Engine
from trials.errors import TrialSetupError
from trials.memory import MemoryMeter
from trials.optimizers import tensor_blocks
from trials.profile import OperatorUse, Profile, Wait
from trials.spec import TrialSpec
from trials.timeline import Held, Timeline, last_step
from trials.timeline_picture import draw_timeline
from trials.trace import (
    BACKWARD,
    DATA,
    DISK,
    FORWARD,
    LABELS,
    OPTIMIZER,
    STEP,
    Trace,
    read_trace,
    seconds_outside,
)
from trials.training import TrainingState, train_step
from trials.workload import Batch

SETTLING_STEPS, PROFILED_STEPS = 1, 3
"""The profiler's own start falls into the first."""
SHORT_LIST, LONG_LIST = 5, 40
"""Operators that are reported, and that are written to the table."""
TRACE, PICTURE, TABLE, NUMBERS, SNAPSHOT = (
    *("trace.json", "memory.svg", "operators.txt", "profile.json"),
    "memory_snapshot.pickle",
)
SNAPSHOT_ENTRIES = 200_000
"""Allocations that a snapshot remembers, the last ones."""


def profile_steps(
    state: TrainingState, batches: Iterator[Batch], meter: MemoryMeter, spec: TrialSpec
) -> Profile | None:
    """Take a few steps more, and profile them; None beside the rank that does.

    Args:
        state: That has stepped already; changed in place.
        batches: Endless.
        meter: That was started before the model was built.
        spec: Of the trial.

    Raises:
        TrialSetupError: A file cannot be written.
    """
    if spec.rank > 0:
        for _ in range(SETTLING_STEPS + PROFILED_STEPS):
            train_step(state, batches)
        return None
    assert spec.profile_folder is not None
    folder = Path(spec.profile_folder)
    held = _held(state.engine, meter)
    gradients = _label(state)
    _remember_allocations(state.device)
    with _profiler(state) as profiler:
        for _ in range(SETTLING_STEPS + PROFILED_STEPS):
            with record_function(STEP):
                train_step(state, _labelled(batches))
            profiler.step()
    with _written(folder):
        snapshots = _write_snapshot(state.device, folder)
        profiler.export_chrome_trace(str(folder / TRACE))
        events = json.loads((folder / TRACE).read_text())["traceEvents"]
        trace = read_trace(events, state.device.type)
        timeline = last_step(trace, held, gradients[-len(trace.spans[BACKWARD]) :])
        (folder / PICTURE).write_text(_picture(timeline, state))
        names = [TRACE, PICTURE, TABLE, NUMBERS, *snapshots]
        operators = _operators(profiler, state.device.type)
        found = Profile(
            files=tuple(str(folder / name) for name in names),
            num_steps=PROFILED_STEPS,
            step_seconds=sum(s.end - s.start for s in trace.spans[STEP]) / PROFILED_STEPS,
            wait_seconds=wait_seconds(trace, state.device.type),
            peak_bytes=timeline.peak.total,
            by_time=_most(operators, SHORT_LIST, lambda use: use.seconds),
            by_memory=_most(operators, SHORT_LIST, lambda use: use.allocated_bytes),
        )
        _write_operators(folder, found, operators)
    return found


def wait_seconds(trace: Trace, device_kind: str) -> dict[str, float]:
    """Return the seconds of a step, by ``Wait``, in which the device computes nothing.

    Source: on CUDA the part of each span in which no kernel runs; what is neither a wait for data
    nor for a disk is one for the host. On CPU the processor does the rest of a step itself.
    """
    busy = trace.computing
    data, disk = trace.spans[DATA], trace.spans[DISK]
    waits = {
        Wait.DATA: seconds_outside(data, busy),
        Wait.HOST: 0.0,
        Wait.DISK: seconds_outside(disk, [*busy, *data]),
    }
    if device_kind != "cpu":
        waits[Wait.HOST] = seconds_outside(trace.spans[STEP], [*busy, *data, *disk])
    return {str(wait): seconds / len(trace.spans[STEP]) for wait, seconds in waits.items()}


def operators_text(operators: list[OperatorUse]) -> str:
    """Return the operators of a step as a table for people, by time and by memory."""
    total = sum(use.seconds for use in operators) or 1.0
    lines = []
    for title, chosen in (
        ("by time", _most(operators, LONG_LIST, lambda use: use.seconds)),
        ("by memory", _most(operators, LONG_LIST, lambda use: use.allocated_bytes)),
    ):
        lines += [f"Operators {title}, per optimizer step, what they call left out", ""]
        lines.append(f"{'ms':>10}  {'share':>6}  {'MiB':>10}  {'calls':>7}  operator")
        lines += [
            f"{use.seconds * 1e3:10.3f}  {use.seconds / total:6.1%}  "
            f"{use.allocated_bytes / 2**20:10.2f}  {use.calls:7.1f}  {use.name}"
            for use in chosen
        ]
        lines.append("")
    return "\n".join(lines)


def _profiler(state: TrainingState) -> Any:
    activities = [ProfilerActivity.CPU]
    if state.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    return profile(
        activities=activities,
        profile_memory=True,
        schedule=schedule(wait=0, warmup=SETTLING_STEPS, active=PROFILED_STEPS, repeat=1),
    )


def _held(engine: Engine, meter: MemoryMeter) -> Held:
    """Return what is allocated between two steps."""
    blocks = {
        "parameters": tensor_blocks(engine.parameter_tensors()),
        "optimizer_state": tensor_blocks(engine.state_tensors()),
        "gradients": tensor_blocks(engine.gradient_tensors()),
    }
    sizes = {kind: sum(held.values()) for kind, held in blocks.items()}
    sizes["temporary"] = max(0, meter.allocated_bytes() - sum(sizes.values()))
    kinds = {address: kind for kind, held in blocks.items() for address in held}
    return Held(sizes=sizes, kinds=kinds)


def _label(state: TrainingState) -> list[dict[int, int]]:
    """Name the parts of a step in the trace; the list takes each backward pass's gradients."""
    engine, gradients = state.engine, list[dict[int, int]]()
    forward, backward, step = engine.forward, engine.backward, engine.step

    @contextmanager
    def labelled_forward(*, is_last: bool = True) -> Iterator[None]:
        with record_function(FORWARD), forward(is_last=is_last):
            yield

    def labelled_backward(loss: torch.Tensor, *, is_last: bool) -> None:
        with record_function(BACKWARD):
            backward(loss, is_last=is_last)
        gradients.append(tensor_blocks(engine.gradient_tensors()))

    def labelled_step() -> bool:
        with record_function(OPTIMIZER):
            return step()

    engine.forward = labelled_forward  # type: ignore[method-assign]
    engine.backward = labelled_backward  # type: ignore[method-assign]
    engine.step = labelled_step  # type: ignore[method-assign]
    if state.config.offload_target == OffloadTarget.NVME:
        # Only what swaps has DeepSpeed loaded.
        from trials.zero import watch_disk

        watch_disk(lambda: record_function(DISK))
    return gradients


def _labelled(batches: Iterator[Batch]) -> Iterator[Batch]:
    while True:
        with record_function(DATA):
            batch = next(batches)
        yield batch


def _operators(profiler: Any, device_kind: str) -> list[OperatorUse]:
    """Return what each operator took; kernels count for the operator that launched them."""
    side = "cpu" if device_kind == "cpu" else "device"
    return [
        OperatorUse(
            name=event.key,
            calls=event.count / PROFILED_STEPS,
            seconds=getattr(event, f"self_{side}_time_total") / 1e6 / PROFILED_STEPS,
            allocated_bytes=getattr(event, f"self_{side}_memory_usage") / PROFILED_STEPS,
        )
        for event in profiler.key_averages()
        if event.device_type.name == "CPU" and not _is_label(event)
    ]


def _is_label(event: Any) -> bool:
    return event.is_user_annotation or event.key == "[memory]" or event.key in LABELS


def _most(
    operators: list[OperatorUse], count: int, value: Callable[[OperatorUse], float]
) -> tuple[OperatorUse, ...]:
    ranked = sorted((use for use in operators if value(use) > 0), key=value, reverse=True)
    return tuple(ranked[:count])


def _picture(timeline: Timeline, state: TrainingState) -> str:
    return draw_timeline(
        timeline,
        title="Memory over one optimizer step",
        subtitle=f"{state.config}, on {state.device}, under the profiler",
    )


def _write_operators(folder: Path, found: Profile, operators: list[OperatorUse]) -> None:
    (folder / TABLE).write_text(operators_text(operators))
    document = {**to_plain(found), "operators": to_plain(operators)}
    (folder / NUMBERS).write_text(json.dumps(document, indent=2) + "\n")


def _remember_allocations(device: torch.device) -> None:
    """Have a GPU's allocator keep what its snapshot tells: each allocation and its stack."""
    if device.type == "cuda":
        torch.cuda.memory._record_memory_history(max_entries=SNAPSHOT_ENTRIES)


def _write_snapshot(device: torch.device, folder: Path) -> list[str]:
    """Write what the allocator kept, and return the names of the files: none on CPU."""
    if device.type != "cuda":
        return []
    torch.cuda.memory._dump_snapshot(str(folder / SNAPSHOT))  # type: ignore[no-untyped-call]
    torch.cuda.memory._record_memory_history(enabled=None)
    return [SNAPSHOT]


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Say of a file that cannot be written, or was not to its end, whose it is."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise TrialSetupError(f"the profile cannot be written to {folder}: {reason}") from error
    except json.JSONDecodeError as error:
        raise TrialSetupError(
            f"the trace in {folder} is not whole, as on a disk that is full: {error}"
        ) from error
