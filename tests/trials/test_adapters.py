"""Adapters beside frozen weights, of 32, 8 and 4 bits: what is trained, kept and measured."""

import copy
import uuid

import pytest
import torch
from torch import nn

from search_spaces import TrainingConfig
from trials.adapters import add_adapters
from trials.errors import WorkloadError
from trials.host import TrialHost
from trials.measurement import Outcome
from trials.optimizers import tensor_bytes
from trials.spec import TimingPolicy, TrialSpec
from trials.training import begin_training, train_step
from trials.workload import load_workload

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's and torchao's imports
CPU = torch.device("cpu")
RANK = 4


def config(bits=32, **knobs):
    return TrainingConfig.from_mapping({"lora_rank": RANK, "weight_bits": bits, **knobs})


def adapted(bits=32):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Sequential(nn.Linear(128, 256), nn.GELU()), nn.Linear(256, 10))
    whole = copy.deepcopy(model)
    add_adapters(model, [model[0]], config(bits))
    return model.to(CPU), whole  # 4-bit weights are quantized as they are moved


@pytest.mark.parametrize(("bits", "distance"), [(32, 0.0), (8, 0.01), (4, 0.15)])
def test_a_fresh_adapter_changes_nothing_but_the_rounding(bits, distance):
    model, whole = adapted(bits)
    batch = torch.randn(16, 128)
    expected = whole(batch)
    assert float((model(batch) - expected).norm() / expected.norm()) <= distance + 1e-6


@pytest.mark.parametrize("bits", [32, 8, 4])
def test_the_adapters_of_the_blocks_are_trained_and_nothing_else(bits):
    model, _ = adapted(bits)
    trained = {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
    assert {shape for shape in trained.values()} == {(RANK, 128), (256, RANK)}
    assert all(name.startswith("0.0.") for name in trained)
    model(torch.randn(4, 128)).sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(("bits", "bytes_per_weight"), [(32, 4), (8, 1), (4, 0.5)])
def test_frozen_weights_take_their_bits(bits, bytes_per_weight):
    model, _ = adapted(bits)
    frozen = model[0][0].base_layer.weight
    expected = 128 * 256 * bytes_per_weight
    assert expected <= tensor_bytes([frozen]) <= 1.2 * expected


def test_transposed_layers_are_quantized_as_they_compute():
    class Conv1D(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = (
                nn.Parameter(torch.randn(64, 128)),
                nn.Parameter(torch.ones(128)),
            )

        def forward(self, inputs):
            return inputs @ self.weight + self.bias

    model = nn.Sequential(Conv1D())
    batch = torch.randn(8, 64)
    expected = model(batch)
    add_adapters(model, [], config(8))
    assert float((model(batch) - expected).norm() / expected.norm()) < 0.02


def test_a_model_without_linear_layers_is_told_so():
    with pytest.raises(WorkloadError, match="lora_rank=4 needs linear layers"):
        add_adapters(nn.Sequential(nn.Embedding(8, 8)), [], config())


@pytest.mark.parametrize("bits", [32, 8, 4])
def test_adapters_learn(bits):
    torch.manual_seed(0)
    workload = load_workload("byte-gpt")
    knobs = {"micro_batch_size": 4, "checkpoint_interval": 1}
    state = begin_training(workload, config(bits, **knobs), CPU)
    batches = workload.batches(4, seed=0)
    losses = [train_step(state, batches).loss for _ in range(12)]
    assert losses[-1] < losses[0] - 0.5


@pytest.fixture(scope="module")
def host():
    host = TrialHost()
    yield host
    host.close()


@pytest.mark.slow
def test_fewer_bits_take_less_memory_than_whole_weights(host):
    def measured(**knobs):
        found = host.run(
            TrialSpec(
                workload="byte-gpt:5m",
                config=TrainingConfig.from_mapping({"micro_batch_size": 1, **knobs}),
                trial_id=uuid.uuid4().hex,
                memory_budget_bytes=256 * 2**20,
                timing=TimingPolicy(max_seconds=0.1),
            )
        )
        assert found.outcome == Outcome.COMPLETED, found.reason
        return found.memory

    whole = measured()
    frozen, eight, four = (measured(lora_rank=RANK, weight_bits=bits) for bits in (32, 8, 4))
    assert whole.peak_device_bytes > frozen.peak_device_bytes
    assert frozen.peak_device_bytes > eight.peak_device_bytes > four.peak_device_bytes
    saved = frozen.by_kind["parameters"] - four.by_kind["parameters"]
    assert frozen.peak_device_bytes - four.peak_device_bytes == pytest.approx(saved, rel=0.25)
    assert frozen.by_kind["optimizer_state"] < 0.1 * whole.by_kind["optimizer_state"]
