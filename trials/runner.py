"""One trial inside its own process: build, warm up, time, read the memory, classify."""

import importlib.metadata
import itertools
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from trials.command import run_command
from trials.command_line import is_command
from trials.contract import checked_batches, checked_worst_batch
from trials.description import workload_facts
from trials.environment import Environment
from trials.errors import WorkloadError
from trials.evaluation import evaluate_in_batches
from trials.kinds import KindObserver, memory_use
from trials.machine import free_disk_bytes, host_memory_bytes, processor_name
from trials.measurement import (
    Measurement,
    Outcome,
    QualityReading,
)
from trials.memory import MemoryMeter, meter_for
from trials.nvml import driver_version
from trials.outcomes import (
    DeviceMemoryError,
    DivergedError,
    SkippedStepsError,
    ThrashingError,
)
from trials.profiling import profile_steps
from trials.rehearsal import rehearse_evaluation
from trials.spec import Task, TrialSpec
from trials.techniques import missing_techniques
from trials.timing import (
    MAX_LEADING_SKIPS,
    StepReading,
    is_beaten,
    is_enough,
    skips_too_much,
    timed_steps,
    timing_of,
)
from trials.trace_task import trace_workload
from trials.training import (
    REHEARSED_PARAMETERS,
    TrainingState,
    begin_training,
    rehearse_step,
    train_step,
)
from trials.trial import Trial
from trials.verifying import verify
from trials.workload import Batch, Workload, load_workload


def run_trial(spec: TrialSpec, on_phase: Callable[[str], None] = lambda _: None) -> Measurement:
    """Do a spec's task in this process. Whatever the trial raises becomes its outcome."""
    if spec.cores:
        os.sched_setaffinity(0, spec.cores)
    torch.set_num_threads(spec.num_threads)
    trial = Trial(spec, on_phase)
    try:
        trial.take_device()
        if is_command(spec.workload):
            return _command(trial)
        return TASKS[spec.task](trial)
    except Exception as error:
        if trial.meter is not None:
            trial.meter.lift()
        return trial.failure(error)


def _command(trial: Trial) -> Measurement:
    """Run a user's program, which may use the GPU whatever it is asked."""
    if trial.spec.num_ranks > 1:
        raise WorkloadError("a command: workload takes its devices itself; use --trial-devices 1")
    if trial.guard is None:
        trial.hold_gpu()
    return run_command(trial.spec, trial.enter)


def _measure(trial: Trial) -> Measurement:
    spec = trial.spec
    workload = load_workload(spec.workload)
    meter = trial.start_meter()
    state = _begin(trial, workload)
    trial.enter("warm_up")
    started = time.perf_counter()
    observer, warm_up = _warm_up(trial, state)
    warm_up_seconds = time.perf_counter() - started
    _require_within_budget(spec, meter)
    meter.settle()
    trial.enter("timing")
    readings = _time_steps(trial, state)
    meter.lift()
    _require_within_budget(spec, meter)
    too_few = len(timed_steps(readings)) < spec.timing.min_steps
    if too_few or skips_too_much([*warm_up, *readings]):
        raise SkippedStepsError(
            f"{sum(r.is_skipped for r in readings)} of {len(readings)} steps were skipped by the "
            "gradient scaler: the gradients overflow in fp16; try bf16"
        )
    timing = timing_of(
        warm_up,
        readings,
        samples_per_step=state.config.effective_batch_size(),
        warm_up_seconds=warm_up_seconds,
        has_ended_early=is_beaten(readings, spec.timing, spec.beaten_seconds),
    )
    taken = timing.optimizer_steps
    assert state.optimizer_steps == taken, f"{state.optimizer_steps} steps, {taken} counted"
    return Measurement(
        outcome=Outcome.COMPLETED,
        timing=timing,
        memory=memory_use(meter, observer.by_kind(), observer.elsewhere()),
    )


def _begin(trial: Trial, workload: Workload) -> TrainingState:
    trial.enter("build")
    torch.manual_seed(trial.spec.seed)
    spec = trial.spec
    state = begin_training(workload, spec.config, trial.device, spec.nvme_folder, trial.ranks)
    trial.count_built_model()
    return state


def _warm_up(trial: Trial, state: TrainingState) -> tuple[KindObserver, list[StepReading]]:
    """Step on the worst-case batch until the optimizer has truly stepped often enough."""
    needed = trial.spec.timing.warm_up_steps
    micro = trial.spec.config.micro_batch_size
    worst = checked_worst_batch(state.workload, micro)
    assert trial.meter is not None
    observer = KindObserver(trial.meter, state.engine)
    readings: list[StepReading] = []
    while state.optimizer_steps < needed and len(readings) < needed + MAX_LEADING_SKIPS:
        is_last = state.optimizer_steps == needed - 1
        observe = observer if is_last else None
        readings.append(train_step(state, itertools.repeat(worst), observe))
    if state.optimizer_steps < needed:
        raise SkippedStepsError(
            f"the gradient scaler skipped {len(readings)} steps of {len(readings)}: the "
            "gradients overflow in fp16; try bf16"
        )
    return observer, readings


def _profile(trial: Trial) -> Measurement:
    """Profile the first rank's steps; the others take as many beside it."""
    workload = load_workload(trial.spec.workload)
    meter = trial.start_meter()
    state = _begin(trial, workload)
    trial.enter("warm_up")
    _warm_up(trial, state)
    trial.enter("profile")
    found = profile_steps(state, _batches(trial, state), meter, trial.spec)
    return Measurement(outcome=Outcome.COMPLETED, profile=found)


def _batches(trial: Trial, state: TrainingState) -> Iterator[Batch]:
    """Return this rank's share of the workload's micro-batches."""
    stream = checked_batches(state.workload, trial.spec.config.micro_batch_size, trial.spec.seed)
    return itertools.islice(stream, state.ranks.rank, None, state.ranks.count)


def _time_steps(trial: Trial, state: TrainingState) -> list[StepReading]:
    policy, beaten_seconds = trial.spec.timing, trial.spec.beaten_seconds
    ranks = state.ranks
    batches = _batches(trial, state)
    readings: list[StepReading] = []
    thrash = _ThrashWatch(trial)
    look = _looks_after_forward(trial)
    started = time.perf_counter()
    while not ranks.agree(is_enough(readings, time.perf_counter() - started, policy)):
        readings.append(train_step(state, batches, look))
        thrash.look()
        if ranks.agree(is_beaten(readings, policy, beaten_seconds)):
            break
        if len(readings) >= policy.min_steps + MAX_LEADING_SKIPS and skips_too_much(readings):
            break
    return readings


def _looks_after_forward(trial: Trial) -> Callable[[str], None]:
    meter = trial.meter
    assert meter is not None

    def look(moment: str) -> None:
        if moment == "forward":
            meter.look()

    return look


def _quality(trial: Trial) -> Measurement:
    # One device stands for all of the job: it takes their micro-batches one after the other.
    steps_of_all = trial.spec.config.accumulation_steps * trial.spec.num_devices
    config = trial.spec.config.with_knobs({"accumulation_steps": steps_of_all})
    trial.spec = spec = replace(trial.spec, config=config)
    workload = load_workload(spec.workload)
    trial.join_ranks()
    meter = trial.take_baseline(meter_for(trial.device))
    meter.hurry()
    state = _begin(trial, workload)
    trial.enter("quality")
    steps = max(1, round(spec.quality_samples / config.effective_batch_size()))
    started = time.perf_counter()
    batches = checked_batches(workload, config.micro_batch_size, spec.seed)
    _train(state, batches, steps)
    train_seconds = time.perf_counter() - started
    trial.enter("evaluate")
    value, batch_size = evaluate_in_batches(state, trial.is_out_of_memory)
    meter.lift()
    if not math.isfinite(value):
        raise DivergedError(f"{workload.quality_name} is {value} after {steps} steps")
    reading = QualityReading(
        value=value,
        samples=steps * config.effective_batch_size(),
        seed=spec.seed,
        train_seconds=train_seconds,
        evaluation_batch_size=batch_size,
    )
    return Measurement(outcome=Outcome.COMPLETED, quality=reading)


def _train(state: TrainingState, batches: Iterator[Batch], steps: int) -> None:
    """Take so many real optimizer steps; those that the scaler skips do not count."""
    for _ in range(steps + MAX_LEADING_SKIPS):
        if state.optimizer_steps == steps:
            return
        train_step(state, batches)
    if state.optimizer_steps < steps:
        raise SkippedStepsError(
            f"only {state.optimizer_steps} of {steps} steps were taken, the gradient scaler "
            "skipped the others: the gradients overflow in fp16; try bf16"
        )


def _describe(trial: Trial) -> Measurement:
    """Build the workload, and take a small model through a loss and its backward."""
    workload = load_workload(trial.spec.workload)
    trial.enter("build")
    torch.manual_seed(trial.spec.seed)
    model = workload.build()
    sample = next(checked_batches(workload, 1, seed=0))
    facts = workload_facts(trial.spec.workload, workload, model)
    if facts.num_parameters <= REHEARSED_PARAMETERS:
        trial.hold_gpu()
        trial.enter("train")
        _rehearse(trial, workload, model, sample)
    return Measurement(outcome=Outcome.COMPLETED, facts=facts)


def _rehearse(trial: Trial, workload: Workload, model: nn.Module, sample: Batch) -> None:
    """Take a step that may show a fault; one that has no room says nothing of smaller configs."""
    try:
        rehearse_step(workload, model, sample, trial.device)
        trial.enter("evaluate")
        rehearse_evaluation(workload, model, trial.device)
    except Exception as error:
        if not trial.is_out_of_memory(error):
            raise


def _trace(trial: Trial) -> Measurement:
    trial.enter("trace")
    return trace_workload(trial.spec)


def _environment(trial: Trial) -> Measurement:
    meter_for(trial.device)
    is_cuda = trial.device.type == "cuda"
    properties = torch.cuda.get_device_properties(trial.device) if is_cuda else None
    environment = Environment(
        device_kind=trial.device.type,
        device_name=processor_name() if properties is None else properties.name,
        device_memory_bytes=(
            host_memory_bytes() if properties is None else properties.total_memory
        ),
        num_threads=0 if is_cuda else trial.spec.num_threads,
        compute_capability=(
            None if properties is None else f"{properties.major}.{properties.minor}"
        ),
        driver=driver_version() if is_cuda else None,
        cuda=torch.version.cuda,
        python=platform.python_version(),
        torch=torch.__version__,
        bitsandbytes=_version("bitsandbytes"),
        deepspeed=_version("deepspeed"),
        torchao=_version("torchao"),
        peft=_version("peft"),
        missing=missing_techniques(trial.device, trial.spec.nvme_path),
        host_memory_bytes=host_memory_bytes(),
        nvme_free_bytes=_nvme_free_bytes(trial.spec),
    )
    return Measurement(outcome=Outcome.COMPLETED, environment=environment)


def _nvme_free_bytes(spec: TrialSpec) -> int | None:
    folder = None if spec.nvme_path is None else Path(spec.nvme_path)
    return free_disk_bytes(folder) if folder is not None and folder.is_dir() else None


TASKS: dict[Task, Callable[[Trial], Measurement]] = {
    Task.MEASURE: _measure,
    Task.QUALITY: _quality,
    Task.PROFILE: _profile,
    Task.DESCRIBE: _describe,
    Task.TRACE: _trace,
    Task.ENVIRONMENT: _environment,
    Task.VERIFY: verify,
}


def _require_within_budget(spec: TrialSpec, meter: MemoryMeter) -> None:
    """Refuse what the kernel let pass: memory that was mapped before the limit was set."""
    budget, peak = spec.memory_budget_bytes, meter.peak_bytes()
    if budget is not None and peak > budget:
        raise DeviceMemoryError(f"the peak of {peak} bytes is over the budget of {budget} bytes")


class _ThrashWatch:
    """Raises once the allocator had to empty its cache on two steps running."""

    def __init__(self, trial: Trial) -> None:
        assert trial.meter is not None
        self._meter = trial.meter
        self._seen = self._meter.allocator_retries()
        self._in_a_row = 0

    def look(self) -> None:
        retries = self._meter.allocator_retries()
        self._in_a_row = self._in_a_row + 1 if retries > self._seen else 0
        self._seen = retries
        if self._in_a_row >= 2:
            raise ThrashingError(
                "the allocator empties its cache on every step: it fits only by thrashing"
            )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
