import pytest
import torch
from torch import nn

from search_spaces import TrainingConfig
from tests.trials.conftest import SMALL
from trials.errors import WorkloadError
from trials.outcomes import DivergedError
from trials.training import begin_training, train_step
from trials.workload import Workload, load_workload

CPU = torch.device("cpu")


def config(**knobs):
    return TrainingConfig().with_knobs(knobs)


class Sequences(Workload):
    """Two sequences: 10 tokens at a loss of 2 each, and 100 tokens at a loss of 1 each."""

    def build(self):
        return nn.Linear(1, 1)

    def batches(self, micro_batch_size, seed):
        both = [(10, 2.0), (100, 1.0)]
        for first in range(0, len(both), micro_batch_size):
            yield torch.tensor(both[first : first + micro_batch_size])

    def loss(self, model, batch):
        return (batch[:, 0] * batch[:, 1]).sum() + 0 * model(torch.ones(1, 1)).sum()

    def count(self, batch):
        return int(batch[:, 0].sum())

    def evaluate(self, model, device):
        return 0.0


@pytest.mark.parametrize(("micro", "steps"), [(1, 2), (2, 1)])
def test_the_loss_is_the_mean_over_all_tokens_of_the_window(micro, steps):
    workload = Sequences()
    state = begin_training(workload, config(micro_batch_size=micro, accumulation_steps=steps), CPU)
    reading = train_step(state, workload.batches(micro, 0))
    assert reading.loss == pytest.approx(120 / 110)
    assert reading.units == 110


def step(**methods):
    """Take a step of a sound workload with some of its methods replaced."""
    workload = type("Changed", (Sequences,), methods)()
    state = begin_training(workload, config(), CPU)
    return train_step(state, workload.batches(1, 0))


def returns(value):
    return lambda *_: value


SUMMED = "loss() must return one floating-point number as a tensor with a gradient"


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (2.5, "got a Python float; return the tensor itself, without .item()"),
        (3, "got a Python int"),
        (None, "got None"),
        ({"loss": torch.ones(())}, "got a value of type dict; return the tensor of the loss"),
        (torch.ones(8, 10, requires_grad=True), "got a tensor of shape (8, 10) and type float32"),
        (torch.ones(1, requires_grad=True), "sum it, with reduction='sum' or .sum()"),
        (torch.tensor(3), "got a tensor of shape () and type int64; compute it from"),
        (torch.tensor(3.0), "got a tensor without one; compute it from what the model returns"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_loss_that_cannot_be_trained_by_says_what_it_is_and_what_to_do(loss, words):
    with pytest.raises(WorkloadError) as caught:
        step(loss=returns(loss))
    assert str(caught.value).startswith(SUMMED) and words in str(caught.value)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "got 0 for every batch of an optimizer step"),
        (-3, r"got -3 \(int\)"),
        (2.0, r"got 2.0 \(float\)"),
        (torch.tensor(5), r"got a tensor of shape \(\) and type int64"),
        (True, "got True"),
        (None, "got None"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_count_that_is_no_number_of_units_says_what_it_is(count, words):
    with pytest.raises(WorkloadError, match=rf"count\(\) must return how many units .*{words}"):
        step(count=returns(count))


def test_a_batch_without_trained_units_beside_one_with_some_is_sound():
    workload = Sequences()
    workload.count = lambda batch: int(batch[0, 0]) - 10
    state = begin_training(workload, config(accumulation_steps=2), CPU)
    assert train_step(state, workload.batches(1, 0)).units == 90


def gradients(workload, knobs):
    torch.manual_seed(0)
    state = begin_training(workload, knobs, CPU)
    kept = {}
    torch.manual_seed(1)

    def observe(moment):
        if moment == "backward":
            named = state.model.named_parameters()
            kept.update({n: p.grad.clone() for n, p in named if p.grad is not None})

    train_step(state, workload.batches(knobs.micro_batch_size, 0), observe)
    return kept


def assert_equal(found, expected):
    """Equal to 1e-6 of each gradient's norm: sums in another order round differently."""
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.linalg.norm(found[name] - gradient) <= 1e-6 * torch.linalg.norm(gradient)


@pytest.mark.parametrize("interval", [1, 2, 4])
def test_checkpointing_leaves_gradients_unchanged_with_dropout_on(interval):
    workload = load_workload(f"{SMALL}:Small")
    plain = gradients(workload, config(micro_batch_size=4))
    assert_equal(
        gradients(workload, config(micro_batch_size=4, checkpoint_interval=interval)), plain
    )


@pytest.mark.parametrize(("micro", "steps"), [(1, 4), (2, 2)])
def test_the_split_into_micro_batches_leaves_gradients_unchanged(micro, steps):
    workload = load_workload("byte-gpt")
    whole = gradients(workload, config(micro_batch_size=4))
    split = config(micro_batch_size=micro, accumulation_steps=steps)
    assert_equal(gradients(workload, split), whole)


def test_frozen_layers_get_no_gradient_and_all_others_do():
    workload = load_workload(f"{SMALL}:Small")
    names = set(gradients(workload, config(checkpoint_interval=1)))
    trained = {n for n, p in workload.build().named_parameters() if p.requires_grad}
    assert names == trained and not any("frozen" in name for name in names)


def test_checkpointing_without_blocks_says_what_to_do():
    workload = load_workload(f"{SMALL}:NoBlocks")
    with pytest.raises(WorkloadError, match="return them from blocks"):
        begin_training(workload, config(checkpoint_interval=2), CPU)


def test_a_loss_that_is_not_finite_ends_the_trial():
    workload = load_workload(f"{SMALL}:LossIsNan")
    state = begin_training(workload, config(), CPU)
    with pytest.raises(DivergedError, match="the loss is nan"):
        train_step(state, workload.batches(1, 0))


def test_fp16_counts_a_skipped_step_and_the_optimizer_does_not_step():
    workload = load_workload(f"{SMALL}:Small")
    state = begin_training(workload, config(amp_dtype="fp16"), CPU)
    state.engine._scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60)
    reading = train_step(state, workload.batches(1, 0))
    assert reading.is_skipped and state.optimizer_steps == 0


@pytest.mark.parametrize("knobs", [{}, {"optimizer_bits": 8}, {"checkpoint_interval": 1}], ids=str)
def test_stepping_in_the_backward_pass_trains_as_stepping_after_it(knobs):
    workload = load_workload("byte-gpt")

    def losses(**more):
        torch.manual_seed(0)
        state = begin_training(workload, config(micro_batch_size=2, **knobs, **more), CPU)
        batches = workload.batches(2, seed=0)
        found = [train_step(state, batches).loss for _ in range(4)]
        assert state.optimizer_steps == 4 and state.engine.state_bytes() > 0
        return found, state.engine.gradient_tensors()

    after, _ = losses()
    within, gradients = losses(optimizer_in_backward="on")
    assert within == pytest.approx(after, rel=1e-6) and gradients == []
