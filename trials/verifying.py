"""Train as an exported file says, through the program that it is for, and measure that."""

import importlib
import importlib.util
import math
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from trials.errors import TrialSetupError
from trials.handed import WARM_UP_STEPS, Handed, Target
from trials.kinds import memory_use
from trials.measurement import Measurement, Outcome, Verification
from trials.outcomes import DeviceMemoryError, DivergedError
from trials.spec import Through, TrialSpec
from trials.timing import timing_of
from trials.trial import Trial
from trials.warm_up import TinyWorkload
from trials.workload import Workload, load_workload
from trials.zero import missing_zero

PACKAGES = {
    Through.TRANSFORMERS: "transformers",
    Through.ACCELERATE: "accelerate",
    Through.LIGHTNING: "lightning",
}


def missing_target(through: Through, device_kind: str = "cpu") -> str | None:
    """Return why a program cannot be trained through here; None if it can."""
    if through == Through.DEEPSPEED:
        return missing_zero(device_kind, f"--through {through}")
    package = PACKAGES.get(through)
    if package is None or importlib.util.find_spec(package) is not None:
        return None
    return f"--through {through} needs {package}, which is not installed; pip install {package}"


def verify(trial: Trial) -> Measurement:
    """Take a few steps through a target, evaluate once and save once; see ``Task.VERIFY``."""
    spec = trial.spec
    assert spec.through is not None
    missing = missing_target(spec.through, spec.device_kind)
    if missing is not None:
        raise TrialSetupError(missing)
    target: Target = importlib.import_module(f"trials.through_{spec.through}").train
    workload = load_workload(spec.workload)
    meter = trial.start_meter()
    with TemporaryDirectory(prefix="autotune-verify-") as folder:
        tiny = _handed(trial, TinyWorkload(), Path(folder) / "tiny")
        target(tiny)
        meter.lift()
        meter = trial.take_baseline(meter)
        trial.enter("build")
        handed = _handed(trial, workload, Path(folder) / "own")
        started = time.perf_counter()
        trial.enter("timing")
        target(handed)
        seconds = time.perf_counter() - started
    meter.lift()
    memory = memory_use(meter, {})
    budget = spec.memory_budget_bytes
    if budget is not None and meter.peak_bytes() > budget:
        raise DeviceMemoryError(
            f"the peak of {meter.peak_bytes()} bytes is over the budget of {budget} bytes"
        )
    verification = _verification(handed, spec)
    return Measurement(
        outcome=Outcome.COMPLETED,
        memory=memory,
        timing=timing_of(
            handed.readings[:WARM_UP_STEPS],
            handed.readings[WARM_UP_STEPS:],
            samples_per_step=spec.config.effective_batch_size(),
            warm_up_seconds=max(0.0, seconds - sum(r.seconds for r in handed.readings)),
        ),
        verification=verification,
    )


def _handed(trial: Trial, workload: Workload, folder: Path) -> Handed:
    spec = trial.spec
    folder.mkdir()
    torch.manual_seed(spec.seed)
    handed = Handed(
        workload=workload,
        config=spec.config,
        device=trial.device,
        folder=folder,
        steps=spec.handed_steps,
        seed=spec.seed,
        nvme_folder=spec.nvme_folder,
    )
    handed.place(spec.handed)
    return handed


def _verification(handed: Handed, spec: TrialSpec) -> Verification:
    losses = tuple(reading.loss for reading in handed.readings)
    expected = spec.handed_steps * spec.config.accumulation_steps
    if (len(losses), handed.num_micro_batches) != (spec.handed_steps, expected):
        raise TrialSetupError(
            f"{spec.through} took {len(losses)} optimizer steps of {spec.handed_steps} and "
            f"{handed.num_micro_batches} micro-batches of {expected}: it reads another "
            "accumulation or batch from the file"
        )
    if not all(map(math.isfinite, losses)):
        raise DivergedError(f"the losses are {losses}")
    assert spec.through is not None and handed.quality is not None
    return Verification(
        through=str(spec.through),
        losses=losses,
        quality=handed.quality,
        checkpoint_bytes=handed.checkpoint_bytes,
    )
