"""A runner that answers at once, from formulas, as a model would: for tests of studies.

The workload names what it does: ``simulated:ok``, or a fault. Memory grows with the micro-batch
and shrinks with checkpointing and bits; time does the opposite.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.factories import make_environment
from trials.measurement import (
    Direction,
    Failure,
    Measurement,
    MemoryUse,
    Outcome,
    QualityReading,
    StepTiming,
    Where,
    WorkloadFacts,
)
from trials.spec import Task, TrialSpec

RUNNER = "tests.autotune.simulated:run"
MIB = 2**20
FAILURES = {
    "broken-gpu": (Outcome.CRASHED, "RuntimeError: CUBLAS_STATUS_ALLOC_FAILED, 60 GiB free"),
    "invalid": (Outcome.INVALID, "ValueError: shapes differ (mine.py:3)"),
    "nan": (Outcome.DIVERGED, "the loss is nan after 1 steps"),
}


def run(spec: TrialSpec, on_phase: Callable[[str], None]) -> Measurement:
    on_phase("load")
    if spec.task == Task.ENVIRONMENT:
        return Measurement(outcome=Outcome.COMPLETED, environment=make_environment())
    fault, _, argument = spec.workload.removeprefix("simulated:").partition("=")
    FAULTS.get(fault, lambda spec, argument: None)(spec, argument)
    if spec.task == Task.QUALITY:
        return _quality_under(fault, argument, spec)
    if fault in FAILURES:
        return _failed(*FAILURES[fault])
    if fault == "grows":
        return _measure(spec, more=_growth(spec, argument))
    measurement = _measure(spec)
    if fault == "invalid-if-it-fits" and measurement.outcome == Outcome.COMPLETED:
        return _failed(*FAILURES["invalid"])
    return measurement


def device_bytes(config) -> int:
    kept = 1.0 if config.checkpoint_interval == 0 else 0.4 + 0.05 * config.checkpoint_interval
    per_sample = {"fp32": 10, "bf16": 6, "fp16": 6}[config.amp_dtype]
    state = 40 if config.optimizer_bits == 32 else 10
    held = 20 if config.accumulation_steps > 1 else 0
    return int((40 + state + held + config.micro_batch_size * per_sample * kept) * MIB)


def step_seconds(config) -> float:
    recompute = 1.0 if config.checkpoint_interval == 0 else 1.3
    speed = {"fp32": 1.0, "bf16": 0.6, "fp16": 0.65}[config.amp_dtype]
    return 0.01 * config.accumulation_steps + 0.1 * recompute * speed


def facts(**override) -> WorkloadFacts:
    values = {
        "fingerprint": "simulated",
        "num_parameters": 10**6,
        "num_trainable": 10**6,
        "num_blocks": 4,
        "unit": "tokens",
        "quality_name": "held_out_loss",
        "quality_direction": Direction.MINIMIZE,
        "global_batch_size": 32,
        "quality_samples": 64,
    }
    return WorkloadFacts(**{**values, **override})


def _growth(spec: TrialSpec, argument: str) -> float:
    """Return the factor by which a config's second run needs more memory than its first.

    ``FACTOR,FOLDER``: the folder remembers which ran.
    """
    factor, _, folder = argument.partition(",")
    mark = Path(folder) / spec.config.hash
    if not mark.exists():
        mark.touch()
        return 1.0
    return float(factor)


def _measure(spec: TrialSpec, more: float = 1.0) -> Measurement:
    config, needed = spec.config, int(device_bytes(spec.config) * more)
    budget = spec.memory_budget_bytes
    memory = MemoryUse(peak_device_bytes=needed, peak_host_bytes=100 * MIB)
    if budget is not None and needed > budget:
        failure = Failure(
            reason="CUDA out of memory.",
            phase="warm_up",
            where=Where.DEVICE,
            attempted_bytes=needed,
        )
        return Measurement(outcome=Outcome.OUT_OF_MEMORY, failure=failure)
    mean = step_seconds(config)
    timing = StepTiming(
        step_seconds=(mean * 0.99, mean, mean * 1.01),
        low_seconds=mean * 0.98,
        high_seconds=mean * 1.02,
        samples_per_step=config.effective_batch_size(),
        units_per_step=64.0,
        warm_up_seconds=0.1,
        data_wait_seconds=0.0,
        optimizer_steps=5,
        is_beaten=spec.beaten_seconds is not None and mean * 0.98 > spec.beaten_seconds,
    )
    return Measurement(outcome=Outcome.COMPLETED, timing=timing, memory=memory)


def _quality(spec: TrialSpec) -> Measurement:
    value = (
        2.5 + 0.001 * spec.seed + {"fp32": 0.0, "bf16": 1e-4, "fp16": 1e-4}[spec.config.amp_dtype]
    )
    reading = QualityReading(value=value, samples=64, seed=spec.seed, train_seconds=0.1)
    return Measurement(outcome=Outcome.COMPLETED, quality=reading)


def _quality_under(fault: str, amp_dtype: str, spec: TrialSpec) -> Measurement:
    """Fail in the evaluation, in one AMP dtype or in every one, if the fault says so."""
    if fault == "no-room-to-evaluate":
        return _failed(Outcome.OUT_OF_MEMORY, "CUDA out of memory.", phase="evaluate")
    if fault == "no-evaluation" and amp_dtype in ("", spec.config.amp_dtype):
        failure = Failure(reason="KeyError: held out", phase="evaluate", is_users_fault=True)
        return Measurement(outcome=Outcome.INVALID, failure=failure)
    return _quality(spec)


def _failed(outcome: Outcome, reason: str, phase: str = "warm_up") -> Measurement:
    failure = Failure(reason=reason, phase=phase)
    return Measurement(outcome=outcome, failure=failure)


def _sleep(spec: TrialSpec, seconds: str) -> None:
    time.sleep(float(seconds))


def _kill_once(spec: TrialSpec, folder: str) -> None:
    """Die by SIGKILL in the first run of every config."""
    mark = Path(folder) / f"{spec.task}-{spec.config.hash}-{spec.seed}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _kill_always(spec: TrialSpec, _: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _log_and_sleep(spec: TrialSpec, folder: str) -> None:
    """Leave a mark per run, so that a test can count how often each ran under which lease."""
    with open(Path(folder) / "runs", "a") as log:
        log.write(f"{spec.task} {spec.trial_id} {spec.config.hash}\n")
    time.sleep(0.05)


FAULTS: dict[str, Callable[[TrialSpec, str], None]] = {
    "sleep": _sleep,
    "kill-once": _kill_once,
    "kill-always": _kill_always,
    "log": _log_and_sleep,
}
