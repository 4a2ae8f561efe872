"""What is called 8-bit is 8-bit: state of real optimizers, read back."""

import functools

import pytest
import torch

from search_spaces import Optimizer, TrainingConfig
from search_spaces.update_rules import ADAM_EPSILON, UPDATE_RULES
from trials.optimizers import build_optimizer, state_bytes
from trials.runner import run_trial
from trials.spec import Task, TrialSpec

pytestmark = pytest.mark.filterwarnings("ignore")  # torchao's import

# Of GPT-2 small: 124,439,808 parameters.
EMBEDDINGS = {(50257, 768): 1, (1024, 768): 1}
SHAPES = {
    **EMBEDDINGS,
    (768, 2304): 12,
    (2304,): 12,
    (768, 768): 12,
    (768, 3072): 12,
    (3072,): 12,
    (3072, 768): 12,
    (768,): 74,
}
COMBINATIONS = [(kind, bits) for kind in Optimizer for bits in (32, 8)] + [(Optimizer.ADAMW, 4)]


def built(parameters, kind=Optimizer.ADAMW, bits=32):
    config = TrainingConfig(optimizer=kind, optimizer_bits=bits)
    return build_optimizer(parameters, config, torch.device("cpu"), learning_rate=1e-3)


def stepped(shape, kind=Optimizer.ADAMW, bits=32):
    parameter = torch.nn.Parameter(torch.zeros(shape))
    parameter.grad = torch.ones(shape)
    optimizer = built([parameter], kind, bits)
    optimizer.step()
    return optimizer, parameter


def moments_bytes(shape, bits):
    """Bytes of both moments and their scales; what all tensors share, and counters, left out."""
    optimizer, parameter = stepped(shape, bits=bits)
    kept = {"state1", "state2", "absmax1", "absmax2", "exp_avg", "exp_avg_sq"}
    state = optimizer.state[parameter]
    return sum(state[name].nbytes for name in kept & state.keys())


def test_adam_of_gpt2_takes_what_is_published():
    eight = {shape: moments_bytes(shape, bits=8) * count for shape, count in SHAPES.items()}
    assert sum(eight.values()) == 253_492_632
    full = {shape: moments_bytes(shape, bits=32) * count for shape, count in SHAPES.items()}
    assert sum(full.values()) == 995_518_464
    mixed = {**eight, **{shape: full[shape] for shape in EMBEDDINGS}}
    assert sum(mixed.values()) == 488_564_736


@pytest.mark.parametrize(("size", "is_8bit"), [(4095, False), (4096, True)])
def test_small_tensors_keep_32_bits(size, is_8bit):
    optimizer, parameter = stepped((size,), bits=8)
    dtype = torch.uint8 if is_8bit else torch.float32
    assert optimizer.state[parameter]["state1"].dtype == dtype


@pytest.mark.parametrize(("kind", "bits"), COMBINATIONS)
def test_state_takes_its_bits_of_every_value(kind, bits):
    values = {Optimizer.ADAMW: 2}.get(kind, 1)
    optimizer, parameter = stepped((512, 512), kind=kind, bits=bits)
    expected = values * parameter.numel() * bits / 8
    assert expected <= state_bytes(optimizer) <= 1.15 * expected


@pytest.mark.parametrize(("kind", "bits"), COMBINATIONS)
def test_every_optimizer_learns(kind, bits):
    torch.manual_seed(0)
    model = torch.nn.Linear(128, 64)
    optimizer = built(model.parameters(), kind, bits)
    batch = torch.randn(32, 128)
    target = batch[:, :64]

    def loss():
        return (model(batch) - target).square().mean()

    before = float(loss().detach())
    for _ in range(60):
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert float(loss().detach()) < 0.85 * before


def test_frozen_parameters_have_no_state():
    frozen = torch.nn.Parameter(torch.zeros(8), requires_grad=False)
    trained = torch.nn.Parameter(torch.zeros(8))
    optimizer = built([frozen, trained])
    assert [p for group in optimizer.param_groups for p in group["params"]] == [trained]


def test_learning_rates_are_relative_to_adamws():
    optimizer, _ = stepped((8,), kind=Optimizer.LION)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(
        1e-3 * UPDATE_RULES[Optimizer.LION].relative_rate
    )


@functools.cache
def quality_after_200_steps(bits):
    config = TrainingConfig(micro_batch_size=4, optimizer_bits=bits)
    spec = TrialSpec(workload="byte-gpt", config=config, task=Task.QUALITY, quality_samples=800)
    return run_trial(spec).quality.value


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 4])
def test_fewer_bits_end_near_the_full_loss_after_200_steps(bits):
    found, full = quality_after_200_steps(bits), quality_after_200_steps(32)
    assert found == pytest.approx(full, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "bits"), [("adamw", 32), ("adamw", 8), ("sgd", 32), ("sgd", 8), ("lion", 8)]
)
def test_an_optimizer_is_set_as_an_export_says(kind, bits):
    rule = UPDATE_RULES[Optimizer(kind)]
    parameters = [torch.nn.Parameter(torch.zeros(4096))]
    said = built(parameters, Optimizer(kind), bits).defaults
    assert said["weight_decay"] == rule.weight_decay
    assert rule.betas is None or tuple(said["betas"]) == rule.betas
    # bitsandbytes keeps SGD's momentum as the first of its betas.
    assert rule.momentum in (None, said.get("momentum"), said.get("betas", (None,))[0])
    assert kind != "adamw" or said["eps"] == ADAM_EPSILON
