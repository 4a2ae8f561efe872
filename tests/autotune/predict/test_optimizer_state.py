"""Bytes of state by arithmetic against real optimizers; tests/benchmarks has published ones."""

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


def config(kind="adamw", bits=32, **knobs):
    return TrainingConfig.from_mapping({"optimizer": kind, "optimizer_bits": bits, **knobs})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_state_is_that_of_the_real_optimizer_to_the_byte(kind, bits, dtype):
    sizes = [size for size, count in SIZES for _ in range(count)]
    parameters = [torch.nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    device = torch.device("cpu")
    optimizer = build_optimizer(parameters, config(kind, bits), device, learning_rate=1e-3)
    optimizer.step()
    found = state_bytes(config(kind, bits), SIZES, dtype.itemsize)
    assert found == real_state_bytes(optimizer)


def test_a_gpu_steps_within_a_kernel_except_for_torchs_roots():
    assert step_bytes(config(bits=8), SIZES, "cuda") == 0
    assert step_bytes(config(), SIZES, "cuda") == 4 * sum(n * count for n, count in SIZES)
    assert step_bytes(config(), SIZES, "cpu") == 2 * 4 * 65536
    half = step_bytes(config(), SIZES, "cuda", 2)
    assert half == step_bytes(config(), SIZES, "cuda") / 2
