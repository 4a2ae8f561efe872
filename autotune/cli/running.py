"""Commands that run trials: what they show while they work and at the end."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer
from rich.console import Console

from autotune.cli.interrupts import INTERRUPTED, STOPPING
from autotune.cli.options import Output
from autotune.cli.profiles import prepare_folder, show_profile, tell_why_none
from autotune.cli.progress import Progress
from autotune.cli.tables import front_table, mib, write_documents, write_table
from autotune.documents import trial_document
from autotune.errors import REPLIES, NothingFitsError
from autotune.events import Listener
from autotune.figures import rounded_up, shown_usd
from autotune.records import StudyRecord, StudyState
from autotune.refusals import refusals_text
from autotune.reruns import verdict_text
from autotune.session import Probe, probe, resume_study, run_study
from autotune.settings import Settings
from autotune.stopping import StopSwitch
from autotune.summary import (
    against_baseline,
    data_bound_text,
    data_bound_warning,
    failure_words,
    resting_bytes,
)
from autotune.tuner import StudyResult
from autotune.verdicts import headline, verified_text
from search_spaces import OffloadTarget
from trials.codec import to_plain
from trials.errors import TrialSetupError
from trials.measurement import Failure, Outcome, Place, StepTiming, Where

NOTHING_FITS = REPLIES[NothingFitsError].exit_code
MACHINE_FAULT = REPLIES[TrialSetupError].exit_code
KIND_ROWS = {
    "parameters": "parameters and buffers (always)",
    "gradients": "gradients (end of the backward pass)",
    "optimizer_state": "optimizer state (always, once it has stepped)",
    "activations": "activations (end of the forward pass)",
    "temporary": "everything else at the peak (workspace, fragmentation, ...)",
}
PLACE_NAMES = {
    Place.DEVICE: "device",
    Place.HOST: "host memory",
    Place.PINNED_HOST: "host memory, page-locked",
    Place.DISK: "disk",
}
MEMORY_NOTE = (
    "Not all of it is there at once: the peak is, of what is on the device, parameters + "
    "optimizer state + everything else + the larger of activations and gradients, or both when "
    "accumulating.\n"
)
ON_CPU = "this process"
CPU_OFFLOAD_NOTE = (
    "On a CPU the device's memory is the host's: what offload_target=cpu moves to the host stays "
    "in this process and counts in the peak.\n"
)
NVME_OFFLOAD_NOTE = (
    "Between steps what offload_target=nvme moves lies in files; what a step works on, and the "
    "buffers it passes through, stay in this process and count in the peak.\n"
)
OFFLOAD_NOTES = {OffloadTarget.CPU: CPU_OFFLOAD_NOTE, OffloadTarget.NVME: NVME_OFFLOAD_NOTE}
_Run = Callable[[Listener, StopSwitch], tuple[StudyRecord, StudyResult]]


def run_and_show(
    settings: Settings, pins: Mapping[str, object], *, output: Output, is_quiet: bool
) -> None:
    """Begin a study and show it."""

    def begin(listen: Listener, stop: StopSwitch) -> tuple[StudyRecord, StudyResult]:
        return run_study(settings, pins, listen=listen, stop=stop)

    _show(begin, output=output, is_quiet=is_quiet)


def resume_and_show(settings: Settings, *, output: Output, is_quiet: bool) -> None:
    """Go on with a study and show it."""

    def go_on(listen: Listener, stop: StopSwitch) -> tuple[StudyRecord, StudyResult]:
        return resume_study(settings, listen=listen, stop=stop)

    _show(go_on, output=output, is_quiet=is_quiet)


def probe_and_show(
    settings: Settings,
    pins: Mapping[str, object],
    *,
    profile_to: Path | None,
    replaces: bool,
    output: Output,
) -> None:
    """Measure one config and show where its memory and time go.

    Args:
        settings: Of the probe.
        pins: Knobs of the config.
        profile_to: Folder of a profile; None for no profile.
        replaces: Whether that folder may hold files.
        output: How to print.
    """
    if profile_to is not None:
        prepare_folder(settings, profile_to, replaces=replaces)
    with _interruptible(StopSwitch(), idle="stopped; nothing is written"):
        found = probe(settings, pins, profile_to)
    if output == Output.TABLE:
        _probe_tables(found)
        if found.profiled is not None and found.profiled.profile is not None:
            show_profile(found.profiled.profile, is_cpu=_is_cpu(found))
    else:
        _probe_document(found, output)
    if profile_to is not None:
        tell_why_none(found.profiled, profile_to)
    for measurement in filter(None, (found.measurement, found.profiled)):
        if measurement.outcome != Outcome.COMPLETED:
            is_broken = measurement.outcome == Outcome.CRASHED
            raise typer.Exit(MACHINE_FAULT if is_broken else NOTHING_FITS)


def _show(run: _Run, *, output: Output, is_quiet: bool) -> None:
    started, stop = time.monotonic(), StopSwitch()
    progress = Progress(Console(stderr=True, quiet=is_quiet))
    try:
        with progress.shown() as listen, _interruptible(stop):
            study, result = run(listen, stop)
    except typer.Exit:
        if progress.study is not None:
            sys.stderr.write(f"go on with: autotune resume {progress.study.spec.name}\n")
        raise
    if output == Output.TABLE:
        _result_tables(study, result)
    else:
        documents = [
            trial_document(trial, study, rerun=result.reruns.get(trial.number))
            for trial in result.front
        ]
        write_documents(documents, output)
    if not is_quiet:
        sys.stderr.write(_closing(study, result, time.monotonic() - started))
    if result.state == StudyState.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _interruptible(
    stop: StopSwitch, idle: str = "stopped before a trial could run"
) -> Iterator[None]:
    """Make Ctrl-C a request: once to stop asking, twice to end what runs, thrice to leave.

    SIGTERM, which a scheduler sends shortly before it kills, ends what runs at once.

    Args:
        stop: Pressed.
        idle: Said at the end where no study was under way yet.
    """

    def on_terminate(number: int, frame: FrameType | None) -> None:
        stop.level = max(stop.level, 1)
        on_interrupt(number, frame)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        stop.press()
        if stop.level == 1 and stop.is_watched:
            sys.stderr.write("stopping: trials under way are finished; Ctrl-C again ends them\n")
        elif stop.level == 2 and stop.is_watched:
            sys.stderr.write("ending the trials under way\n")
        else:
            sys.stderr.write(STOPPING)
            raise KeyboardInterrupt

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, on_interrupt),
        signal.SIGTERM: signal.signal(signal.SIGTERM, on_terminate),
    }
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"{'stopped' if stop.was_watched else idle}\n")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _result_tables(study: StudyRecord, result: StudyResult) -> None:
    chosen = result.recommendation
    if chosen is None:
        waiting = f": {_waiting(result.num_unscored)}" if result.num_unscored else ""
        sys.stdout.write(f"no point yet{waiting}\n")
        return
    front_table(study, result.front, chosen.number)
    sys.stdout.write(f"{headline({})}: trial {chosen.number}, {chosen.reason}.\n")
    best = next(trial for trial in result.front if trial.number == chosen.number)
    sys.stdout.write(verdict_text(best, result.reruns))
    sys.stdout.write(verified_text(study.spec.name, {}))
    sys.stdout.write(refusals_text(result.refusals))
    if result.baseline is not None:
        words = against_baseline(best, result.baseline, study.spec.memory_budget_bytes)
        sys.stdout.write(f"{words[0].upper()}{words[1:]}.\n")


def _closing(study: StudyRecord, result: StudyResult, wall_seconds: float) -> str:
    name, spending = study.spec.name, result.spending
    waits = data_bound_warning(result.front)
    lines = [
        *([waits] if waits else []),
        f"study {name} {result.state}: {result.stop_reason}",
        f"its trials so far took {spending.seconds:.0f} s of wall time and "
        f"{spending.device_seconds:.0f} device-seconds, {shown_usd(spending.usd)} at the device "
        f"rate of {study.spec.rates.dated}; this command took {wall_seconds:.0f} s",
    ]
    if result.num_unscored and result.front:
        lines.append(_waiting(result.num_unscored))
    if result.state == StudyState.INTERRUPTED:
        lines.append(f"go on with: autotune resume {name}")
    elif spending.session_device_seconds == 0 and spending.remedy() is not None:
        lines.append(f"nothing was left to run; to go on, {spending.remedy()}")
    elif result.recommendation is not None:
        lines.append(f"take it with you: autotune export {name} --format toml")
    return "\n".join(lines) + "\n"


def _waiting(num_unscored: int) -> str:
    if num_unscored == 1:
        return "1 measured trial waits for its quality"
    return f"{num_unscored} measured trials wait for their quality"


def _probe_tables(found: Probe) -> None:
    measurement = found.measurement
    sys.stdout.write(f"{found.config}: {str(measurement.outcome).replace('_', ' ')}\n")
    if measurement.failure is not None:
        sys.stdout.write(f"{_why(found, measurement.failure)}\n")
    if measurement.memory is not None:
        write_table("Memory", ["kind", "MiB", "where"], _memory_rows(found))
        sys.stdout.write(MEMORY_NOTE if measurement.memory.by_kind else "")
        if _is_cpu(found):
            sys.stdout.write(OFFLOAD_NOTES.get(found.config.offload_target, ""))
    if measurement.timing is not None:
        write_table("Time", ["kind", "value"], _time_rows(found))
        _tell_of_time(measurement.timing)
    if measurement.failure is not None and measurement.failure.log_tail:
        sys.stdout.write(f"last lines of the trial:\n{measurement.failure.log_tail}\n")


def _why(found: Probe, failure: Failure) -> str:
    """Return what went wrong and what helps, with what was raised in brackets."""
    if found.measurement.outcome != Outcome.OUT_OF_MEMORY:
        return failure.reason
    words = failure_words(Outcome.OUT_OF_MEMORY, failure, found.memory_budget_bytes)
    return f"{words}; {_remedy(found, failure)} [{failure.reason.partition(chr(10))[0]}]"


def _remedy(found: Probe, failure: Failure) -> str:
    if failure.where == Where.HOST:
        return "end other programs, or keep less on the host: --set offload_target=none"
    resting = resting_bytes(found.config, found.facts)
    advised = rounded_up(2 * max(failure.attempted_bytes or 0, resting))
    # Where what rests is too much already, fewer activations help nothing.
    less = [] if resting > found.memory_budget_bytes else _fewer_activations(found)
    if found.config.optimizer_bits == 32 and found.config.lora_rank == 0:
        less.append(", --set optimizer_bits=8")
    less.append(" or a smaller model")
    return f"give --memory-budget {advised}{''.join(less)}"


def _fewer_activations(found: Probe) -> list[str]:
    less = [", a smaller --set micro_batch_size"] if found.config.micro_batch_size > 1 else []
    if found.config.checkpoint_interval == 0 and found.facts.num_blocks:
        less.append(", --set checkpoint_interval=1")
    return less


def _memory_rows(found: Probe) -> list[list[str]]:
    memory = found.measurement.memory
    assert memory is not None
    names = {**PLACE_NAMES, **({Place.DEVICE: ON_CPU} if _is_cpu(found) else {})}
    rows = [
        [KIND_ROWS.get(kind, kind), mib(size), names[Place(place)]]
        for kind, places in memory.places.items()
        for place, size in places.items()
        if size or len(places) == 1
    ]
    has_completed = found.measurement.outcome == Outcome.COMPLETED
    peak = "peak on the device" if has_completed else "held when it ended"
    rows.append([peak, mib(memory.peak_device_bytes), ""])
    if memory.peak_reserved_bytes is not None:
        rows.append(["peak reserved by the allocator", mib(memory.peak_reserved_bytes), ""])
    rows.append(["memory budget", mib(found.memory_budget_bytes), ""])
    rows.append(["on the host beside it", mib(memory.peak_host_bytes), ""])
    return rows


def _is_cpu(found: Probe) -> bool:
    return found.environment.device_kind == "cpu"


def _tell_of_time(timing: StepTiming) -> None:
    """Say what makes the rates less than they seem."""
    if not timing.is_precise:
        sys.stdout.write(
            f"the step's time is known to ±{timing.relative_half_width:.0%} only, and the rates "
            "with it: measure on a quieter machine\n"
        )
    waits = data_bound_text(timing)
    if waits:
        sys.stdout.write(f"{waits}; the rates above leave the wait out, so that configs compare\n")


def _time_rows(found: Probe) -> list[list[str]]:
    measurement, timing = found.measurement, found.measurement.timing
    assert timing is not None
    half = (timing.high_seconds - timing.low_seconds) / 2
    unit_rate = f"{timing.units_per_step / timing.mean_seconds:,.4g}"
    is_counted_apart = found.facts.unit != "samples"
    return [
        ["optimizer step", f"{timing.mean_seconds * 1e3:,.1f} ms ±{half * 1e3:,.1f}"],
        ["steps timed", str(len(timing.step_seconds))],
        ["steps skipped by the gradient scaler", str(timing.skipped_steps)],
        ["samples per second", f"{timing.samples_per_second:,.4g}"],
        *([[f"{found.facts.unit} per second", unit_rate]] if is_counted_apart else []),
        ["waiting for data, per step", f"{timing.data_wait_seconds * 1e3:,.1f} ms"],
        ["warm-up", f"{timing.warm_up_seconds:,.2f} s"],
        ["whole trial", f"{measurement.process_seconds:,.2f} s"],
    ]


def _probe_document(found: Probe, output: Output) -> None:
    memory, timing = found.measurement.memory, found.measurement.timing
    document = {
        **to_plain(found),
        "memory_places": {} if memory is None else memory.places,
        "is_data_bound": None if timing is None else timing.is_data_bound,
    }
    if output == Output.JSON:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        write_documents([document], output)
