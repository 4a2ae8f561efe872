"""The ``TrainingArguments`` JSON, held to transformers' own parser and trainer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.errors import UnsupportedExportError
from autotune.exports.transformers import OPTIMIZERS
from autotune.exports.transformers_reading import REMOVED_KEYS, SHARED, UNDERSTOOD
from search_spaces import OffloadTarget
from tests.autotune.exports.handovers import exported, handed_over, written
from trials.zero import missing_offload, missing_zero

pytestmark = pytest.mark.filterwarnings("ignore")  # imports of the targets
ROOT = Path(__file__).parents[3]


def arguments_json(**options):
    return json.loads(exported("transformers", handed_over(**options)).text)


def parsed(path):
    from transformers import HfArgumentParser, TrainingArguments

    (arguments,) = HfArgumentParser(TrainingArguments).parse_json_file(path)
    return arguments


ALONE = [
    {},
    {"amp_dtype": "bf16", "checkpoint_interval": 1},
    {"amp_dtype": "fp16", "checkpoint_interval": 4, "optimizer_bits": 8},
    {"optimizer": "lion", "optimizer_bits": 8},
    {"optimizer": "sgd", "compile": "on"},
    {"optimizer_bits": 4},
]
SHARDED = [
    {"zero_stage": 1, "amp_dtype": "bf16", "optimizer_bits": 8},
    {"zero_stage": 2, "offload_target": "cpu", "amp_dtype": "bf16"},
    {"zero_stage": 3, "checkpoint_interval": 1},
    {"zero_stage": 3, "offload_target": "nvme"},
]


@pytest.mark.parametrize("knobs", ALONE, ids=str)
def test_transformers_parses_it(knobs, tmp_path):
    handover = handed_over(steps=50, **knobs)
    found = parsed(written("transformers", handover, tmp_path / "args.json"))
    assert (found.per_device_train_batch_size, found.gradient_accumulation_steps) == (4, 2)
    assert (found.max_steps, found.auto_find_batch_size) == (50, False)
    assert found.bf16 is (knobs.get("amp_dtype") == "bf16")
    assert found.fp16 is (knobs.get("amp_dtype") == "fp16")
    config = handover.config
    assert found.optim == OPTIMIZERS[config.optimizer, config.optimizer_bits]
    assert found.learning_rate == handover.learning_rate and found.max_grad_norm == 0.0
    assert found.activation_checkpointing is (config.checkpoint_interval > 0)
    assert "study trial 4 2026-09-01" in found.run_name


@pytest.mark.parametrize("interval", [1, 3])
def test_recomputing_is_not_reentrant_and_covers_every_nth_layer(interval, tmp_path):
    handover = handed_over(checkpoint_interval=interval)
    options = parsed(
        written("transformers", handover, tmp_path / "args.json")
    ).activation_checkpointing_kwargs
    assert options["use_reentrant"] is False and options.get("every_n_layers", 1) == interval


def test_the_same_layers_recompute_as_in_the_trial(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    handover = handed_over(checkpoint_interval=2)
    options = dict(
        parsed(
            written("transformers", handover, tmp_path / "args.json")
        ).activation_checkpointing_kwargs
    )
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=5,
            num_attention_heads=1,
        )
    )
    every = options.pop("every_n_layers")
    model.activation_checkpointing_enable(options, every_n_layers=every)
    assert [layer.gradient_checkpointing for layer in model.model.layers] == [
        index in range(5)[:: handover.config.checkpoint_interval] for index in range(5)
    ]


@pytest.mark.parametrize("knobs", SHARDED, ids=str)
def test_a_pair_agrees_in_every_key_that_both_have(knobs, tmp_path):
    path = written("transformers", handed_over(**knobs), tmp_path / "args.json")
    arguments = json.loads(path.read_text())
    part = json.loads(Path(arguments["deepspeed"]).read_text())
    for key, name in SHARED.items():
        value = part
        for step in key.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        assert value in (None, arguments[name]), key
    if "optimizer" in part:
        betas = [arguments["adam_beta1"], arguments["adam_beta2"]]
        assert part["optimizer"]["params"]["betas"] == betas


@pytest.mark.parametrize("knobs", SHARDED, ids=str)
def test_transformers_finds_no_mismatch_in_a_pair(knobs, tmp_path):
    found = parsed(written("transformers", handed_over(**knobs), tmp_path / "args.json"))
    config = found.hf_deepspeed_config
    assert config.mismatches == [] and config.config["train_batch_size"] == 8
    assert config.config["zero_optimization"]["stage"] == knobs["zero_stage"]
    assert not found.bf16  # DeepSpeed's autocast does the casting
    assert ("torch_autocast" in config.config) is (knobs.get("amp_dtype") == "bf16")


def test_a_mismatch_would_be_found(tmp_path):
    path = written("transformers", handed_over(zero_stage=1), tmp_path / "args.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "per_device_train_batch_size": 2}))
    assert parsed(path).hf_deepspeed_config.mismatches


def test_tf32_is_said_on_gpus():
    assert arguments_json(on="cuda", amp_dtype="tf32")["tf32"] is True
    assert arguments_json(on="cuda")["tf32"] is False
    assert "tf32" not in arguments_json()


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"zero_stage": 2}, "--pair deepspeed --to FILE"),
        ({"activation_offload": "cpu"}, "save_on_cpu"),
        ({"optimizer": "sgd", "optimizer_bits": 8}, "have no name for it"),
    ],
    ids=str,
)
def test_what_cannot_be_said_is_refused_with_a_way_out(knobs, words):
    with pytest.raises(UnsupportedExportError, match=words):
        exported("transformers", handed_over(**knobs))


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"checkpoint_interval": 2, "checkpoint_deepest": 2}, "every block recomputes"),
        ({"optimizer_bits": 8}, "keeps embeddings' state in 32 bits"),
        ({"checkpoint_interval": 2}, "knows every_n_layers"),
        ({}, "--steps N pins it"),
    ],
    ids=str,
)
def test_what_is_said_otherwise_is_noted(knobs, words):
    assert words in "\n".join(exported("transformers", handed_over(**knobs)).notes)


def test_the_keys_are_those_of_the_installed_transformers():
    from transformers import TrainingArguments

    known = set(TrainingArguments.__dataclass_fields__)
    assert known >= UNDERSTOOD
    assert not known & REMOVED_KEYS.keys()


TRAIN = """
import json, sys
import torch
from trials import zero
zero._choose_accelerator("cpu")
zero._load_operators()
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM
from transformers import Trainer, TrainingArguments
(arguments,) = HfArgumentParser(TrainingArguments).parse_json_file(sys.argv[1])
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64,
    num_hidden_layers=2, num_attention_heads=2))
sample = {"input_ids": torch.arange(16), "labels": torch.arange(16)}
trainer = Trainer(model=model, args=arguments, train_dataset=[sample] * 64)
loss = trainer.train().training_loss
engine = trainer.model_wrapped
print(json.dumps({"loss": loss, "steps": trainer.state.global_step,
    "engine": type(engine).__name__, "is_cast": getattr(engine, "torch_autocast_enabled", bool)(),
    "dtype": str(next(model.parameters()).dtype)}))
"""


@pytest.fixture
def train(tmp_path):
    missing = missing_offload(OffloadTarget.CPU) or missing_zero()
    if missing is not None:
        (pytest.fail if "CI" in os.environ else pytest.skip)(missing)

    def train(**knobs):
        path = written("transformers", handed_over(steps=3, **knobs), tmp_path / "args.json")
        rest = {"output_dir": str(tmp_path), "report_to": "none", "save_strategy": "no"}
        path.write_text(json.dumps({**json.loads(path.read_text()), **rest}))
        group = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-c", TRAIN, str(path)],
            env={**os.environ, **group, "MASTER_PORT": "29577", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return train


@pytest.mark.slow
def test_the_trainer_trains_with_a_pair_as_without(train):
    plain = train(amp_dtype="bf16")
    found = train(amp_dtype="bf16", zero_stage=3, offload_target="cpu")
    assert (found["steps"], found["engine"]) == (3, "DeepSpeedEngine")
    assert found["is_cast"] and found["dtype"] == "torch.float32"
    assert found["loss"] == pytest.approx(plain["loss"], rel=2e-3)
