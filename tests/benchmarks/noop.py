"""A runner that does nothing but say when it began; imports only what a trial host has."""

import time
from collections.abc import Callable

from trials.environment import Environment
from trials.measurement import Measurement, Outcome, QualityReading
from trials.spec import TrialSpec

BEGAN = time.monotonic()


def run(spec: TrialSpec, on_phase: Callable[[str], None]) -> Measurement:
    return Measurement(
        outcome=Outcome.COMPLETED,
        quality=QualityReading(value=BEGAN, samples=1, seed=0, train_seconds=0.0),
        environment=Environment(
            device_kind="cpu",
            device_name="none",
            device_memory_bytes=0,
            num_threads=1,
            python="",
            torch="",
        ),
    )
