import numpy
import pytest
import torch

from tests.trials.conftest import SMALL
from trials.contract import checked_batches, checked_quality, checked_worst_batch
from trials.errors import WorkloadError
from trials.workload import load_workload


def workload_with(**methods):
    small = load_workload(f"{SMALL}:Small")
    return type("Changed", (type(small),), methods)()


@pytest.mark.parametrize("num_batches", [0, 2])
def test_batches_that_end_are_told_to_go_on(num_batches):
    changed = workload_with(
        batches=lambda self, size, seed: iter([torch.ones(size)] * num_batches)
    )
    with pytest.raises(WorkloadError, match="batches\\(\\) ended; it must yield without end"):
        list(checked_batches(changed, 4, seed=0))


def test_no_worst_batch_is_told_to_go_on():
    changed = workload_with(batches=lambda self, size, seed: iter(()))
    with pytest.raises(WorkloadError, match="batches\\(\\) ended; it must yield without end"):
        checked_worst_batch(changed, 4)


def test_a_worst_batch_may_come_from_a_collection():
    changed = workload_with(batches=lambda self, size, seed: [torch.ones(size)])
    assert checked_worst_batch(changed, 4).shape == (4,)


def test_batches_that_are_none_say_what_they_are():
    changed = workload_with(batches=lambda self, size, seed: None)
    with pytest.raises(WorkloadError, match="must yield batches without end, got None"):
        next(checked_batches(changed, 4, seed=0))


@pytest.mark.parametrize("batch", [torch.ones(3, 2), torch.ones(())], ids=["other", "none"])
def test_a_batch_of_another_size_is_refused(batch):
    changed = workload_with(batches=lambda self, size, seed: iter([batch]))
    with pytest.raises(WorkloadError, match=r"micro-batch size 4 has [03] samples"):
        next(checked_batches(changed, 4, seed=0))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "got None"),
        ({"accuracy": 1.0}, "got a value of type dict"),
        ("good", r"got 'good' \(str\)"),
        (torch.ones(3), r"got a tensor of shape \(3,\) and type float32"),
        (torch.tensor(1j), "type complex64"),
        (numpy.ones(2), "got a value of type ndarray"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_quality_that_is_no_number_says_what_it_is(value, words):
    with pytest.raises(WorkloadError, match=rf"evaluate\(\) must return one number, .*{words}"):
        checked_quality(value)


@pytest.mark.parametrize("value", [0.5, torch.tensor([0.5]), numpy.float32(0.5)], ids=repr)
def test_a_quality_may_be_any_single_number(value):
    assert checked_quality(value) == 0.5
