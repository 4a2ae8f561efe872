from collections import OrderedDict

import pytest
import torch
from torch import nn

from trials.blocks import find_blocks


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)


class Stage(nn.Module):
    """A stage as timm's Swin has: narrower on the outside, and a run of blocks within."""

    def __init__(self, depth, width):
        super().__init__()
        self.downsample = nn.Linear(width // 2, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))


class Bottleneck(nn.Module):
    """A residual block as torchvision's; the first of a stage has a projection."""

    def __init__(self, width, has_projection):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = nn.Conv2d(width // 2, width, 1) if has_projection else None


class ResNet(nn.Module):
    def __init__(self, depths):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7)
        self.bn1 = nn.BatchNorm2d(8)
        for stage, depth in enumerate(depths):
            blocks = (Bottleneck(8 * 2**stage, stage > 0 and not i) for i in range(depth))
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, 10)


class Layer(nn.Module):
    """A layer with experts, each of which is larger than its attention."""

    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(8, 8)
        self.experts = nn.ModuleList(Block() for _ in range(4))


class Kernel(nn.Module):
    """A block that holds its matrices itself."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.zeros(8, 32))
        self.down = nn.Parameter(torch.zeros(32, 8))


class Scale(nn.Module):
    """A norm of the user's own: one vector, no matrix."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))


def test_a_run_in_a_sequential_is_found_among_other_layers():
    blocks = [Block() for _ in range(3)]
    assert find_blocks(nn.Sequential(nn.Embedding(9, 8), *blocks, nn.Linear(8, 9))) == blocks


def test_named_children_of_a_sequential_are_a_run():
    blocks = {"stem": Block(), "body": Block()}
    assert find_blocks(nn.Sequential(OrderedDict(blocks))) == list(blocks.values())


def test_small_sequentials_of_the_same_layers_are_blocks():
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4)]
    assert find_blocks(nn.Sequential(*blocks, nn.Linear(8, 2))) == blocks


def test_numbered_children_are_a_run():
    model = nn.Module()
    model.block_1, model.block_2, model.head = Block(), Block(), Block()
    assert find_blocks(model) == [model.block_1, model.block_2]


def test_stages_of_different_widths_give_their_blocks():
    stages = [Stage(depth, 8 * 2**index) for index, depth in enumerate((2, 2, 6, 1))]
    model = nn.Sequential(nn.Conv2d(3, 8, 4), nn.Sequential(*stages), nn.Linear(64, 10))
    assert find_blocks(model) == [block for stage in stages for block in stage.blocks]


@pytest.mark.parametrize("depths", [(2, 2, 2, 2), (3, 4, 6, 3)])
def test_a_residual_network_gives_every_residual_block(depths):
    model = ResNet(depths)
    found = [module for module in model.modules() if isinstance(module, Bottleneck)]
    assert find_blocks(model) == found and len(found) == sum(depths)


def test_layers_win_over_the_experts_within_them():
    layers = nn.ModuleList(Layer() for _ in range(2))
    assert find_blocks(layers) == list(layers)


def test_a_block_that_holds_its_matrices_itself_is_one():
    assert len(find_blocks(nn.ModuleList([Kernel(), Kernel()]))) == 2


def test_of_two_classes_the_one_with_most_parameters_is_taken():
    heads = nn.ModuleList(nn.Sequential(nn.Linear(8, 2), nn.Tanh()) for _ in range(9))
    blocks = nn.ModuleList(Block() for _ in range(2))
    assert find_blocks(nn.ModuleDict({"heads": heads, "blocks": blocks})) == list(blocks)


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(8, 8),
        nn.Sequential(Block(), nn.Linear(8, 8)),
        nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()),
        nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)),
        nn.ModuleList(nn.Embedding(9, 8) for _ in range(4)),
        nn.ModuleList(nn.LayerNorm(8) for _ in range(4)),
        nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Dropout(0.1)) for _ in range(4)),
        nn.ModuleList(Scale() for _ in range(4)),
        nn.ModuleList(nn.ModuleList([nn.Linear(8, 8)]) for _ in range(4)),
    ],
    ids=["leaf", "single", "mlp", "linears", "embeddings", "norms", "vectors", "scales", "lists"],
)
def test_what_repeats_no_block_has_none(model):
    assert find_blocks(model) == []


def test_a_module_that_is_used_several_times_counts_once():
    shared, own = Block(), Block()
    assert find_blocks(nn.ModuleList([shared, shared, own, shared])) == [shared, own]
    assert find_blocks(nn.ModuleList([shared] * 6)) == []
    twice = nn.ModuleDict({"a": nn.ModuleList([shared, own]), "b": nn.ModuleList([shared, own])})
    assert find_blocks(twice) == [shared, own]


def test_parameters_that_blocks_share_count_once():
    tied = [Block() for _ in range(4)]
    for block in tied[1:]:
        block.up, block.down = tied[0].up, tied[0].down
    own = [nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 16)) for _ in range(2)]
    model = nn.ModuleDict({"tied": nn.ModuleList(tied), "own": nn.ModuleList(own)})
    assert find_blocks(model) == own


SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 64}
GPT2 = {"n_embd": 16, "n_layer": 3, "n_head": 2, "vocab_size": 64}
T5 = {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_heads": 2, "vocab_size": 64}


@pytest.mark.parametrize(
    ("kind", "fields", "names"),
    [
        ("llama", {**SMALL, "num_hidden_layers": 3}, ["LlamaDecoderLayer"] * 3),
        ("gpt2", GPT2, ["GPT2Block"] * 3),
        ("bert", {**SMALL, "num_hidden_layers": 3}, ["BertLayer"] * 3),
        ("t5", {**T5, "num_layers": 2}, ["T5Block"] * 4),
        ("t5", {**T5, "num_layers": 3, "num_decoder_layers": 4}, ["T5Block"] * 7),
        (
            "mixtral",
            {**SMALL, "num_key_value_heads": 2, "num_hidden_layers": 2},
            ["MixtralDecoderLayer"] * 2,
        ),
    ],
    ids=["llama", "gpt2", "bert", "t5-2", "t5-3-4", "mixtral"],
)
def test_the_blocks_of_hugging_face_models_are_found(kind, fields, names):
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(kind, **fields)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    assert [type(block).__name__ for block in find_blocks(model)] == names
