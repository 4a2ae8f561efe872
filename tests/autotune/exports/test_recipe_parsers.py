"""torchtune, axolotl and LLaMA-Factory read our files by their own parsers, where they are there.

They install too much, or pin too much, to be had beside the rest. Tried in environments of their
own, without their other dependencies: torchtune 0.6.1 with torchao 0.9, axolotl 0.19.0, and
LLaMA-Factory 0.9.5 with its check of versions off (it wants transformers 5.6 at most, and 5.25
was there).
"""

import pytest
import yaml

from tests.autotune.exports.handovers import handed_over, written

pytestmark = pytest.mark.filterwarnings("ignore")  # imports of the targets
ALIKE = [
    {},
    {"amp_dtype": "bf16", "checkpoint_interval": 1},
    {"optimizer_bits": 8},
    {"optimizer": "sgd"},
    {"optimizer": "lion", "optimizer_bits": 8},
    {"lora_rank": 8, "weight_bits": 4, "amp_dtype": "bf16"},
]
OF_TRAINER = [*ALIKE, {"optimizer_bits": 4}, {"offload_target": "paged", "optimizer_bits": 8}]
SHARDED = [{"sharding": "fsdp", "zero_stage": 2, "amp_dtype": "bf16"}]


def path_of(form, tmp_path, knobs):
    handover = handed_over(on="cuda", num_devices=1, steps=7, **knobs)
    return written(form, handover, tmp_path / "today.yaml")


@pytest.mark.parametrize("knobs", [*ALIKE, *SHARDED], ids=str)
def test_torchtune_parses_it_and_builds_its_optimizer(knobs, tmp_path):
    pytest.importorskip("torchtune", reason="torchtune is not installed")
    import torch
    from torchtune.config import instantiate
    from torchtune.config._parse import TuneRecipeArgumentParser

    path = path_of("torchtune", tmp_path, knobs)
    found, _ = TuneRecipeArgumentParser().parse_known_args(["--config", str(path), "seed=1"])
    assert (found.batch_size, found.gradient_accumulation_steps) == (4, 2)
    from omegaconf import OmegaConf

    settings = OmegaConf.create(found.optimizer)
    model = torch.nn.Linear(2, 2)
    optimizer = instantiate(settings, model.parameters())
    assert optimizer.param_groups[0]["lr"] == settings.lr > 0


@pytest.mark.parametrize("knobs", OF_TRAINER, ids=str)
def test_axolotls_schema_takes_it(knobs, tmp_path):
    pytest.importorskip("axolotl", reason="axolotl is not installed")
    from axolotl.utils.schemas.config import AxolotlInputConfig

    document = yaml.safe_load(path_of("axolotl", tmp_path, knobs).read_text())
    users = {"base_model": "mine", "datasets": [{"path": "mine", "type": "alpaca"}]}
    found = AxolotlInputConfig(**users, **document)
    assert (found.micro_batch_size, found.gradient_accumulation_steps) == (4, 2)
    assert found.max_steps == 7
    said = found.model_dump(exclude_none=True)
    lost = {key for key in document if document[key] is not None and key not in said}
    assert not lost


@pytest.mark.parametrize("knobs", OF_TRAINER, ids=str)
def test_llama_factorys_arguments_take_it(knobs, tmp_path, monkeypatch):
    monkeypatch.setenv("DISABLE_VERSION_CHECK", "1")
    pytest.importorskip("llamafactory", reason="LLaMA-Factory is not installed")
    from llamafactory.hparams.parser import _TRAIN_ARGS
    from transformers import HfArgumentParser

    document = yaml.safe_load(path_of("llama-factory", tmp_path, knobs).read_text())
    users = {"model_name_or_path": "mine", "stage": "sft", "output_dir": str(tmp_path)}
    document.pop("tf32")  # asks the machine for a GPU
    if document["bf16"]:
        document["use_cpu"] = True
    model, _, training, tuning, _ = HfArgumentParser(_TRAIN_ARGS).parse_dict({**users, **document})
    assert (training.per_device_train_batch_size, training.max_steps) == (4, 7)
    assert tuning.lora_rank == (knobs.get("lora_rank") or tuning.lora_rank)
    assert model.disable_gradient_checkpointing is ("checkpoint_interval" not in knobs)
