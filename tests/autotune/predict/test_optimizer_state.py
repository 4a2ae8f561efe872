"""Bytes of state by arithmetic against real optimizers, and against what torchao publishes."""

import pytest
import torch

from autotune.predict.optimizer_state import state_bytes, step_bytes
from search_spaces import TrainingConfig
from trials.optimizers import build_optimizer
from trials.optimizers import state_bytes as real_state_bytes

pytestmark = pytest.mark.filterwarnings("ignore")  # torchao's import
SIZES = ((3, 1), (1000, 2), (4095, 1), (4096, 1), (4097, 1), (65536, 2), (12800, 1))
KINDS = [
    *(("adamw", bits) for bits in (32, 8, 4)),
    *((kind, bits) for kind in ("lion", "sgd") for bits in (32, 8)),
]
VIT_H = ((5120, 32), (1280 * 3840, 32), (1280 * 1280, 32), (1280 * 5120, 64), (1280, 300))
VIT_H_PARAMETERS = 632_000_000
LLAMA_2_7B = 6_738_415_616


def config(kind="adamw", bits=32, **knobs):
    return TrainingConfig.from_mapping({"optimizer": kind, "optimizer_bits": bits, **knobs})


@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_state_is_that_of_the_real_optimizer_to_the_byte(kind, bits):
    parameters = [torch.nn.Parameter(torch.zeros(n)) for n, count in SIZES for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    device = torch.device("cpu")
    optimizer = build_optimizer(parameters, config(kind, bits), device, learning_rate=1e-3)
    optimizer.step()
    assert state_bytes(config(kind, bits), SIZES) == real_state_bytes(optimizer)


@pytest.mark.parametrize(("bits", "published"), [(8, 12.23 - 8.33), (4, 12.23 - 7.72)])
def test_a_vit_h_saves_what_torchao_publishes(bits, published):
    """Its published Llama2-7B rows part from this, by 8 and 10 %: see below."""
    sizes = (*VIT_H, (VIT_H_PARAMETERS - sum(size * count for size, count in VIT_H), 1))
    saved = state_bytes(config(), sizes) - state_bytes(config(bits=bits), sizes)
    assert saved / 1e9 == pytest.approx(published, rel=0.05)


@pytest.mark.parametrize(("bits", "published"), [(8, 12.3), (4, 18.4)])
def test_a_llama_of_bf16_saves_less_at_its_peak_than_its_state_shrinks(bits, published):
    """There state is bf16, half of what is counted here, and the peak moves to another phase.

    With 32-bit state the peak is the optimizer step: weights, gradients and state. With state of
    few bits it is the backward pass, whose activations the saving does not touch.
    """
    sizes = ((LLAMA_2_7B, 1),)
    of_bf16 = state_bytes(config(), sizes) / 2
    saved = (of_bf16 - state_bytes(config(bits=bits), sizes)) / 1e9
    assert 1.05 < saved / published < 1.12


def test_a_gpu_steps_within_a_kernel_except_for_torchs_roots():
    assert step_bytes(config(bits=8), SIZES, "cuda") == 0
    assert step_bytes(config(), SIZES, "cuda") == 4 * sum(n * count for n, count in SIZES)
    assert step_bytes(config(), SIZES, "cpu") == 2 * 4 * 65536
