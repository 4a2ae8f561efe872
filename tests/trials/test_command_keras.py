"""A TensorFlow program as a workload. Needs the extra ``tensorflow-test``."""

import importlib.util
import shlex
import sys
from pathlib import Path

import pytest

from search_spaces import TrainingConfig
from trials.measurement import Outcome
from trials.spec import Task

SCRIPT = Path(__file__).parents[1] / "assets" / "workloads" / "keras_mnist_like.py"
KERAS = f"command:{shlex.quote(sys.executable)} {shlex.quote(str(SCRIPT))}"
IS_MISSING = any(importlib.util.find_spec(name) is None for name in ("tensorflow", "sklearn"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        IS_MISSING,
        reason="no tensorflow and scikit-learn: pip install 'autotune[tensorflow-test]'",
    ),
]
MIB = 2**20


def config(**knobs):
    return TrainingConfig().with_knobs(knobs)


def test_it_says_what_it_is(run):
    found = run(KERAS, task=Task.DESCRIBE)
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert (found.facts.num_parameters, found.facts.quality_name) == (85_066, "accuracy")


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_it_is_timed_in_every_dtype(run, dtype):
    knobs = config(amp_dtype=dtype, micro_batch_size=16, accumulation_steps=2)
    found = run(KERAS, config=knobs)
    assert found.outcome == Outcome.COMPLETED, (found.reason, found.failure)
    assert found.timing.samples_per_step == 32
    assert found.memory.peak_device_bytes > MIB
    assert found.memory.peak_host_bytes > 100 * MIB


def test_it_learns_the_same_however_its_batch_is_split(run):
    one, other = (
        run(KERAS, task=Task.QUALITY, quality_samples=4096, config=config(**knobs))
        for knobs in (
            {"micro_batch_size": 32},
            {"micro_batch_size": 8, "accumulation_steps": 4},
        )
    )
    assert one.outcome == Outcome.COMPLETED, (one.reason, one.failure)
    assert one.quality.value > 0.8
    assert other.quality.value == pytest.approx(one.quality.value, abs=0.02)


def test_its_running_out_of_memory_is_an_outcome(run):
    found = run(KERAS, config=config(micro_batch_size=4096), memory_budget_bytes=64 * MIB)
    assert found.outcome == Outcome.OUT_OF_MEMORY, (found.reason, found.failure)


def test_a_knob_that_it_has_not_is_refused(run):
    found = run(KERAS, config=config(optimizer_bits=8))
    assert found.outcome == Outcome.INVALID and "optimizer_bits=8" in found.reason
