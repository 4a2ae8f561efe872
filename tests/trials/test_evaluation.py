"""Evaluating in batches that fit, for real."""

import weakref

import pytest
import torch

from search_spaces import TrainingConfig
from tests.trials.conftest import SMALL
from trials.evaluation import evaluate_in_batches
from trials.measurement import Outcome
from trials.spec import Task
from trials.training import begin_training
from trials.workload import load_workload

MIB = 2**20
CPU = torch.device("cpu")


def test_an_evaluation_without_room_takes_fewer_samples_at_once(run):
    found = run(
        "EvaluatesInBatches",
        task=Task.QUALITY,
        quality_samples=32,
        memory_budget_bytes=256 * MIB,
    )
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert found.quality.evaluation_batch_size in (4, 8)
    whole = run("Small", task=Task.QUALITY, quality_samples=32).quality
    assert (found.quality.value, whole.evaluation_batch_size) == (whole.value, None)


def test_an_evaluation_that_never_fits_says_so_with_its_phase(run):
    found = run("EvaluatesInTooMuch", task=Task.QUALITY, quality_samples=8)
    assert (found.outcome, found.failure.phase) == (Outcome.OUT_OF_MEMORY, "evaluate")


def test_evaluation_takes_nothing_from_what_training_measured(run):
    found = run("EvaluatesInTooMuch")
    assert found.outcome == Outcome.COMPLETED and found.timing is not None


class Tensors:
    """Stands for what an evaluation holds."""


def state_of(sizes, needed_size):
    """A trained state whose evaluation raises above a batch size; each try is noted."""
    held = []

    def evaluate(workload, model, device):
        assert all(tensors() is None for tensors in held), "what failed is still held"
        sizes.append(workload.evaluation_batch_size)
        tensors = Tensors()
        held.append(weakref.ref(tensors))
        if workload.evaluation_batch_size > needed_size:
            raise MemoryError
        return 0.5

    kind = type(load_workload(f"{SMALL}:Small"))
    fields = {"evaluate": evaluate, "evaluation_batch_size": 12}
    workload = type("Evaluates", (kind,), fields)()
    return begin_training(workload, TrainingConfig(), CPU)


def is_memory_error(error):
    return isinstance(error, MemoryError)


def test_a_batch_is_halved_until_it_fits_and_nothing_of_a_failed_one_stays():
    sizes = []
    assert evaluate_in_batches(state_of(sizes, 3), is_memory_error) == (0.5, 3)
    assert sizes == [12, 6, 3]


def test_what_fits_at_once_is_not_split():
    assert evaluate_in_batches(state_of([], 12), is_memory_error) == (0.5, None)


def test_one_sample_without_room_and_any_other_error_are_raised():
    sizes = []
    with pytest.raises(MemoryError):
        evaluate_in_batches(state_of(sizes, 0), is_memory_error)
    assert sizes == [12, 6, 3, 1]
    with pytest.raises(MemoryError):
        evaluate_in_batches(state_of([], 0), lambda error: False)


@pytest.mark.parametrize(("reference", "size"), [("byte-gpt", 3), ("vision", 100)])
def test_the_metric_does_not_depend_on_the_batch(reference, size):
    workload = load_workload(reference)
    model = workload.build().eval()
    with torch.no_grad():
        whole = workload.evaluate(model, CPU)
        workload.evaluation_batch_size = size
        assert workload.evaluate(model, CPU) == pytest.approx(whole, rel=1e-6)
