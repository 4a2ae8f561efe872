"""Bytes by kind against closed formulas: ZeRO's shares, LoRA's adapters, accumulation."""

import csv
from pathlib import Path

import pytest

from autotune.predict.predictor import Job, Predictor
from autotune.predict.speed import speed_of
from search_spaces import TrainingConfig
from tests.autotune.predict.traces import traced

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's import
MODELS = Path(__file__).parents[2] / "assets" / "models"
LLAMA = {"hidden": 4096, "key_value": 1024, "inner": 14336, "layers": 32}
GPT = {"hidden": 128, "layers": 4, "bytes": 256, "context": 32}
RANK = 4


def llama_linears():
    """Inputs and outputs of the linear layers of Llama3-8B's blocks."""
    wide, narrow, inner = LLAMA["hidden"], LLAMA["key_value"], LLAMA["inner"]
    attention = [(wide, wide), (wide, narrow), (wide, narrow), (wide, wide)]
    return LLAMA["layers"] * ([*attention, (wide, inner), (wide, inner), (inner, wide)])


def gpt_linears():
    """Of byte-gpt: queries, keys and values in one, their sum, and a layer four times as wide."""
    wide = GPT["hidden"]
    each = [(wide, 3 * wide), (wide, wide), (wide, 4 * wide), (4 * wide, wide)]
    return GPT["layers"] * each


def gpt_parameters():
    """Two embeddings, the first also the head; layers with biases; norms of two vectors."""
    wide = GPT["hidden"]
    layers = sum((inputs + 1) * outputs for inputs, outputs in gpt_linears())
    norms = 2 * wide * (2 * GPT["layers"] + 1)
    return (GPT["bytes"] + GPT["context"]) * wide + layers + norms


def llama_parameters():
    rows = csv.DictReader((MODELS / "COUNTS.csv").read_text().splitlines())
    return next(int(row["params"]) for row in rows if row["model"] == "llama3_8b")


@pytest.fixture(scope="module", params=["byte-gpt", "llama3_8b"])
def model(request):
    """A predictor for a GPU by number of ranks, its parameters, and its linear layers."""
    ways = ({}, {"lora_rank": RANK})
    if request.param == "byte-gpt":
        trace, linears = traced("byte-gpt", *ways), gpt_linears()
        parameters = gpt_parameters()
    else:
        reference = f"huggingface:{MODELS / 'llama3_8b.json'}?sequence=16"
        trace, linears, parameters = traced(reference, *ways), llama_linears(), llama_parameters()

    def predicted(num_ranks=1, **knobs):
        job = Job(
            device_kind="cuda", speed=speed_of("cuda", ""), num_ranks=num_ranks, num_blocks=4
        )
        return Predictor(trace, job).predict([TrainingConfig.from_mapping(knobs)])[0]

    return predicted, parameters, linears


def states(found):
    kinds = ("parameters", "gradients", "optimizer_state")
    return [found.memory[kind] for kind in kinds]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_zero_shards_state_then_gradients_then_parameters(model, ranks):
    """Weights 4 bytes, gradients 4, AdamW 8, and below stage 3 the fp32 copies that it steps."""
    predicted, count, _ = model
    by_stage = {1: (4, 4, 12 / ranks), 2: (4, 4 / ranks, 12 / ranks), 3: (4, 4, 8)}
    by_stage[3] = tuple(each / ranks for each in by_stage[3])
    for stage, each in by_stage.items():
        found = states(predicted(ranks, zero_stage=stage))
        assert found == pytest.approx([size * count for size in each], rel=1e-4), stage


def test_without_zero_a_parameter_takes_sixteen_bytes(model):
    predicted, count, _ = model
    found = states(predicted(1))
    assert found == pytest.approx([4 * count, 4 * count, 8 * count], rel=1e-4)


@pytest.mark.parametrize("bits", [32, 8, 4])
def test_lora_trains_its_rank_times_inputs_and_outputs(model, bits):
    predicted, count, linears = model
    adapters = RANK * sum(inputs + outputs for inputs, outputs in linears)
    frozen = sum(inputs * outputs for inputs, outputs in linears)
    found = states(predicted(lora_rank=RANK, weight_bits=bits))
    weights = 4 * (count - frozen) + frozen * bits // 8 + 4 * adapters
    counters = 4 * 2 * len(linears)
    assert found[0] == pytest.approx(weights, rel=1e-6)
    assert found[1:] == [4 * adapters, 8 * adapters + counters]


def test_accumulation_keeps_gradients_through_the_forward_pass(model):
    predicted, count, _ = model
    once, often = (predicted(accumulation_steps=steps) for steps in (1, 4))
    assert once.memory["gradients"] == often.memory["gradients"]
    more = often.phases["forward"] - once.phases["forward"]
    assert more == pytest.approx(4 * count, rel=1e-9)
    assert often.phases["step"] == once.phases["step"]
