import pytest
import torch
from torch import nn

from trials.checkpointing import checkpoint_blocks
from trials.errors import WorkloadError

VOCABULARY, WIDTH, NUM_BLOCKS = 32, 16, 4


class Block(nn.Sequential):
    """Counts its forwards: one that recomputes has two."""

    def __init__(self):
        super().__init__(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.3), nn.Tanh())
        self.forwards = 0

    def forward(self, hidden):
        self.forwards += 1
        return hidden + super().forward(hidden)


class Model(nn.Module):
    """A frozen embedding under blocks with dropout, and tied weights."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.embedding.requires_grad_(False)
        self.blocks = nn.ModuleList(Block() for _ in range(NUM_BLOCKS))
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        hidden = self.embedding(ids)
        for block in self.blocks:
            hidden = block(hidden)
        return self.out(hidden)


def trained(**knobs):
    """A model after one forward and backward, and how many of its blocks were to recompute."""
    torch.manual_seed(0)
    model = Model()
    count = checkpoint_blocks(list(model.blocks), **knobs)
    torch.manual_seed(1)
    model(torch.arange(VOCABULARY)[None]).square().sum().backward()
    return model, count


def recomputed(model):
    return [index for index, block in enumerate(model.blocks) if block.forwards == 2]


@pytest.mark.parametrize(
    ("knobs", "indices"),
    [
        ({"interval": 0}, []),
        ({"interval": 1}, [0, 1, 2, 3]),
        ({"interval": 2}, [0, 2]),
        ({"interval": 4}, [0]),
        ({"deepest": 1}, [3]),
        ({"deepest": 2}, [2, 3]),
        ({"interval": 2, "deepest": 3}, [1, 3]),
        ({"interval": 0, "deepest": 2}, []),
        ({"deepest": 9}, [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_the_blocks_that_recompute_are_those_chosen(knobs, indices):
    model, count = trained(**knobs)
    assert recomputed(model) == indices and count == len(indices)


@pytest.mark.parametrize("deepest", [0, 1, 2])
@pytest.mark.parametrize("interval", [0, 1, 2, 4])
def test_gradients_are_those_without_checkpointing(interval, deepest):
    plain, _ = trained(interval=0)
    model, _ = trained(interval=interval, deepest=deepest)
    expected = {name: p.grad for name, p in plain.named_parameters() if p.requires_grad}
    found = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    assert all(gradient is not None for gradient in found.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-6, atol=0)


def test_deepest_needs_blocks_too():
    with pytest.raises(WorkloadError, match=r"checkpoint_interval=1 needs blocks"):
        checkpoint_blocks([], deepest=2)
