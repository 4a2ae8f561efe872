"""What is traced without memory is what passes really take, at any micro-batch."""

import resource

import pytest
import torch
from torch import nn

from search_spaces import TrainingConfig
from trials import tracing
from trials.errors import WorkloadError
from trials.measurement import Outcome
from trials.spec import Task
from trials.trace_facts import Line, Peak
from trials.tracing import trace_graph
from trials.workload import Workload, load_workload

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's import
CPU = torch.device("cpu")
RECOMPUTING = TrainingConfig(checkpoint_interval=1)


def held(graph, size, way="kept"):
    return sum((getattr(part, way) or part.kept).held.at(size) for part in graph.stretches)


@pytest.fixture(scope="module")
def graph():
    return trace_graph(load_workload("byte-gpt"), RECOMPUTING, CPU)


def test_every_parameter_gets_its_gradient_and_is_counted(graph):
    assert graph.num_trained == 830_208 and graph.parameter_bytes == 4 * 830_208
    assert sum(part.gradient_bytes for part in graph.stretches) == 4 * 830_208
    assert [part.block for part in graph.stretches] == [None, 0, None, 1, None, 2, None, 3, None]


def test_two_sizes_foretell_every_other(graph, monkeypatch):
    monkeypatch.setattr(tracing, "MICRO_BATCHES", (8, 16))
    larger = trace_graph(load_workload("byte-gpt"), RECOMPUTING, CPU)
    for ours, theirs in zip(graph.stretches, larger.stretches, strict=True):
        assert ours.kept.held.at(16) == theirs.kept.held.at(16)
        assert ours.kept.forward_peak.at(16) == theirs.kept.forward_peak.at(16)
        assert ours.kept.backward_peak.at(16) == theirs.kept.backward_peak.at(16)
        assert ours.forward.flops.at(16) == theirs.forward.flops.at(16)


def test_recomputing_keeps_the_inputs_of_blocks_alone(graph):
    hidden = 4 * 32 * 128  # fp32, context, width
    for part in graph.stretches[1::2]:
        assert part.recomputed.held == Line(fixed=0.0, per_sample=hidden)
    assert held(graph, 8, "recomputed") < held(graph, 8) / 4


def test_flops_are_those_of_the_matrix_products(graph):
    width, context, tokens = 128, 32, 32
    products = 2 * tokens * 12 * width * width
    attention = 2 * 2 * context * context * width
    block = graph.stretches[1]
    assert block.forward.flops.at(1) == products + attention
    assert block.backward.flops.at(1) == pytest.approx(2 * products + 2.5 * attention)


def test_blocks_left_out_are_taken_to_be_like_those_run(monkeypatch):
    workload = load_workload("byte-gpt:5m")
    some = trace_graph(workload, RECOMPUTING, CPU)
    monkeypatch.setattr(tracing, "SHOWN", 6)
    everything = trace_graph(workload, RECOMPUTING, CPU)
    assert len(some.stretches) == len(everything.stretches) == 13
    for ours, theirs in zip(some.stretches, everything.stretches, strict=True):
        assert ours.kept == theirs.kept and ours.gradient_bytes == theirs.gradient_bytes
        assert (ours.forward, ours.backward) == (theirs.forward, theirs.backward)


def test_no_weight_has_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    graph = trace_graph(load_workload("byte-gpt:350m"), TrainingConfig(), CPU)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert graph.parameter_bytes > 1.4e9 and grown < 0.2e9


def test_adapters_leave_frozen_weights_without_gradients():
    graph = trace_graph(load_workload("byte-gpt"), TrainingConfig(lora_rank=4), CPU)
    per_block = 4 * ((128 + 384) + (128 + 128) + (128 + 512) + (512 + 128))
    assert graph.num_trained == 4 * per_block
    assert sum(size * count for size, count in graph.adapted) == 4 * 12 * 128 * 128
    assert [part.gradient_bytes for part in graph.stretches[1::2]] == 4 * [4 * per_block]


class LooksAtValues(Workload):
    def build(self):
        return nn.Linear(4, 2)

    def batches(self, micro_batch_size, seed):
        while True:
            yield torch.ones(micro_batch_size, 4)

    def loss(self, model, batch):
        return model(batch).sum() * batch.sum().item()

    def evaluate(self, model, device):
        return 0.0


def test_what_needs_values_is_refused_with_its_place_and_a_way_out():
    with pytest.raises(WorkloadError) as caught:
        trace_graph(LooksAtValues(), TrainingConfig(), CPU)
    text = str(caught.value)
    assert "needs real values" in text and "test_tracing.py" in text and ".item()" in text
    assert "autotune probe" in text


@pytest.mark.parametrize("amp_dtype", ["fp32", "bf16"])
def test_a_real_trial_keeps_what_was_traced(run, amp_dtype):
    config = TrainingConfig.from_mapping({"micro_batch_size": 16, "amp_dtype": amp_dtype})
    real = run("byte-gpt", config=config).memory.by_kind
    traced = run("byte-gpt", task=Task.TRACE, traced=(config,))
    assert traced.outcome == Outcome.COMPLETED, traced.reason
    (found,) = traced.trace.graphs
    assert real["activations"] == pytest.approx(held(found, 16), rel=0.03)
    assert real["parameters"] == found.parameter_bytes


def test_a_peak_is_the_highest_line_at_each_size():
    steep, flat = Line(fixed=0.0, per_sample=3.0), Line(fixed=10.0, per_sample=0.0)
    peak = Peak.over([flat, steep, Line(fixed=0.0, per_sample=1.0)])
    assert peak.at(1) == 10.0 and peak.at(8) == 24.0
    assert set(peak.lines) == {steep, flat}
