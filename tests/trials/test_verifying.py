import importlib.util
import json
import os

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from search_spaces import TrainingConfig
from search_spaces.deepspeed_document import deepspeed_document
from trials import verifying
from trials.errors import SpecError
from trials.handed import LossModel
from trials.measurement import Outcome
from trials.spec import SWAP_FOLDER, Task, Through, TrialSpec
from trials.warm_up import TinyWorkload
from trials.zero import missing_offload

CONFIG = TrainingConfig().with_knobs(
    {"amp_dtype": "bf16", "micro_batch_size": 2, "accumulation_steps": 2, "checkpoint_interval": 2}
)
STEPS = 4
ARGUMENTS = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "max_steps": STEPS,
    "bf16": True,
    "activation_checkpointing": True,
    "activation_checkpointing_kwargs": {"use_reentrant": False, "every_n_layers": 2},
    "optim": "adamw_torch",
    "learning_rate": 1e-3,
    "weight_decay": 0.01,
    "max_grad_norm": 0.0,
    "use_cpu": True,
}
LAUNCH = "\n".join(
    (
        *("compute_environment: LOCAL_MACHINE", 'distributed_type: "NO"', "machine_rank: 0"),
        *("num_machines: 1", "num_processes: 1", "use_cpu: true", "mixed_precision: bf16", ""),
    )
)


TRAINER = """\
trainer:
  accelerator: cpu
  devices: 1
  strategy: auto
  precision: bf16-mixed
  accumulate_grad_batches: 2
  max_steps: 4
"""
BYTE_GPT_PARAMETERS, BYTE_GPT_RATE = 830_208, 1e-3


def deepspeed_file(config=CONFIG, nvme_path=None, **keys):
    document = deepspeed_document(
        config,
        largest_parameter=BYTE_GPT_PARAMETERS,
        num_parameters=BYTE_GPT_PARAMETERS,
        learning_rate=BYTE_GPT_RATE,
        nvme_path=nvme_path,
    )
    return json.dumps({**document, **keys})


def files(config=CONFIG, **arguments):
    return {
        "config.json": json.dumps({"config": config.as_dict()}),
        "transformers.json": json.dumps({**ARGUMENTS, **arguments}),
        "accelerate.yaml": LAUNCH,
        "deepspeed.json": deepspeed_file(config),
        "lightning.yaml": TRAINER,
    }


def require(target):
    """Skip what cannot be trained through here; CI must have every program."""
    missing = verifying.missing_target(target)
    if missing is not None:
        (pytest.fail if "CI" in os.environ else pytest.skip)(missing)


@pytest.fixture
def through(run):
    def train(target, handed=None, config=CONFIG, **fields):
        require(target)
        return run(
            config=config,
            task=Task.VERIFY,
            through=target,
            handed=handed or files(config),
            handed_steps=STEPS,
            **fields,
        )

    return train


def completed(found):
    assert found.outcome == Outcome.COMPLETED, found.reason
    return found


@pytest.mark.parametrize("target", [each for each in Through if each != Through.TRIAL])
def test_every_target_takes_the_losses_of_the_trials_loop(through, target):
    found = completed(through(target))
    reference = completed(through(Through.TRIAL)).verification
    seen = found.verification
    assert seen.losses == pytest.approx(reference.losses, rel=1e-4)
    assert seen.quality == pytest.approx(reference.quality)
    assert seen.checkpoint_bytes > 0
    assert len(found.timing.step_seconds) == STEPS - 2
    assert found.memory.peak_device_bytes > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "knobs",
    [
        {"zero_stage": 2, "accumulation_steps": 2, "optimizer_bits": 8},
        {"zero_stage": 3, "amp_dtype": "bf16", "checkpoint_interval": 1},
        {"zero_stage": 3, "offload_target": "cpu"},
        {"zero_stage": 3, "offload_target": "nvme"},
    ],
    ids=str,
)
def test_deepspeed_trains_byte_gpt_by_its_file_as_the_trials_loop_does(through, tmp_path, knobs):
    config = TrainingConfig.from_mapping({"micro_batch_size": 2, **knobs})
    missing = missing_offload(config.offload_target)
    if missing is not None:
        pytest.skip(missing)
    handed = files(config)
    handed["deepspeed.json"] = deepspeed_file(config, nvme_path=SWAP_FOLDER)
    fields = {"config": config, "workload": "byte-gpt", "nvme_path": str(tmp_path)}
    found = completed(through(Through.DEEPSPEED, handed, **fields))
    reference = completed(through(Through.TRIAL, handed, **fields))
    assert found.verification.losses == pytest.approx(reference.verification.losses, rel=1e-4)
    assert found.verification.quality == pytest.approx(reference.verification.quality, rel=1e-3)
    assert found.verification.checkpoint_bytes > BYTE_GPT_PARAMETERS
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.slow
@pytest.mark.parametrize("knobs", [{}, {"optimizer": "sgd", "checkpoint_interval": 1}], ids=str)
@pytest.mark.parametrize("target", [Through.DEEPSPEED, Through.LIGHTNING])
def test_what_a_file_has_no_key_for_is_done_by_the_script(through, target, knobs):
    config = CONFIG.with_knobs({"activation_offload": "cpu", "amp_dtype": "bf16", **knobs})
    fields = {"config": config, "workload": "byte-gpt"}
    found, reference = (completed(through(each, **fields)) for each in (target, Through.TRIAL))
    assert found.verification.losses == pytest.approx(reference.verification.losses, rel=1e-4)


@pytest.mark.parametrize("place", ["none", "cpu"])
def test_activations_go_where_the_config_has_them(place):
    model = LossModel(TinyWorkload())
    model.follow(CONFIG.with_knobs({"activation_offload": place}), torch.device("cpu"))
    kept = []  # by these hooks, which the model's own are before
    with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda kept: kept):
        model(torch.ones(2, 64))
    assert bool(kept) == (place == "none")


@pytest.mark.parametrize(
    ("target", "name", "text", "words"),
    [
        (
            Through.DEEPSPEED,
            "deepspeed.json",
            deepspeed_file(train_micro_batch_size_per_gpu=4),
            "reads a micro-batch of 4 from the file, and the trial's is 2",
        ),
        (
            Through.DEEPSPEED,
            "deepspeed.json",
            deepspeed_file(gradient_accumulation_steps=4),
            "deepspeed took 2 optimizer steps of 4",
        ),
        (
            Through.LIGHTNING,
            "lightning.yaml",
            TRAINER.replace("batches: 2", "batches: 4"),
            "lightning took 2 optimizer steps of 4 and 8 micro-batches of 8",
        ),
        (
            Through.LIGHTNING,
            "lightning.yaml",
            TRAINER.replace("batches: 2", "batches: 1"),
            "lightning took 4 optimizer steps of 4 and 4 micro-batches of 8",
        ),
        (
            Through.LIGHTNING,
            "lightning.yaml",
            TRAINER.replace("devices", "device"),
            "unexpected keyword argument 'device'",
        ),
    ],
)
def test_a_file_that_says_otherwise_is_told(through, target, name, text, words):
    found = through(target, {**files(), name: text})
    assert found.outcome != Outcome.COMPLETED
    assert words in found.reason


def test_a_file_without_the_measured_precision_shows_in_the_losses(through):
    text = TRAINER.replace("bf16-mixed", "32-true")
    seen = through(Through.LIGHTNING, {**files(), "lightning.yaml": text}).verification
    reference = through(Through.TRIAL).verification
    assert seen.losses != pytest.approx(reference.losses, rel=1e-4)


def test_a_program_that_is_not_there_is_told_with_its_remedy(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert verifying.missing_target(Through.LIGHTNING) == (
        "--through lightning needs lightning, which is not installed; pip install lightning"
    )
    assert verifying.missing_target(Through.DEEPSPEED).startswith("--through deepspeed needs")


def test_a_file_that_says_another_rate_shows_in_the_losses(through):
    seen = through(Through.TRANSFORMERS, files(learning_rate=0.1)).verification
    reference = through(Through.TRIAL).verification
    assert seen.losses[0] == pytest.approx(reference.losses[0])
    assert seen.losses[-1] != pytest.approx(reference.losses[-1], rel=1e-2)


def test_what_has_no_room_there_is_out_of_memory(through):
    found = through(Through.TORCH, memory_budget_bytes=2**16)
    assert found.outcome == Outcome.OUT_OF_MEMORY


def test_a_verification_must_say_through_what():
    with pytest.raises(SpecError, match="needs through"):
        TrialSpec(workload="byte-gpt", task=Task.VERIFY)
