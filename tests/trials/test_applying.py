import json
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

import autotune
from search_spaces import InvalidConfigError, TrainingConfig
from tests.trials.conftest import SMALL
from trials.applying import apply, read_source
from trials.errors import WorkloadError
from trials.training import begin_training, train_step
from trials.workload import load_workload

CPU = torch.device("cpu")
STEPS = 3
BATCH = {"micro_batch_size": 2}


def config(**knobs):
    return TrainingConfig().with_knobs(knobs)


def seeded_workload():
    torch.manual_seed(0)
    return load_workload(f"{SMALL}:Small")


def trial_losses(knobs):
    workload = seeded_workload()
    state = begin_training(workload, config(**knobs), CPU)
    batches = workload.batches(2, seed=0)
    return [train_step(state, batches).loss for _ in range(STEPS)]


def own_losses(knobs):
    """A loop as a user writes it: micro-batch after micro-batch, of a mean loss."""
    workload = seeded_workload()
    model = workload.build()
    applied = apply(knobs, model, learning_rate=workload.learning_rate)
    losses, window = [], []
    for batch in workload.batches(2, seed=0):
        with applied.forward():
            loss = workload.loss(model, batch) / workload.count(batch)
        window.append(loss.item())
        if applied.backward(loss):
            assert applied.step()
            losses.append(sum(window) / len(window))
            window = []
        if len(losses) == STEPS:
            return losses


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"amp_dtype": "bf16", "accumulation_steps": 2},
        {"checkpoint_interval": 1, "activation_offload": "cpu"},
        {"optimizer_bits": 8, "accumulation_steps": 2, "checkpoint_interval": 2},
        {"optimizer": "sgd", "optimizer_in_backward": "on"},
    ],
    ids=lambda knobs: "-".join(f"{value}" for value in knobs.values()) or "fp32",
)
def test_a_loop_of_ones_own_takes_the_trials_steps(knobs):
    assert own_losses({**BATCH, **knobs}) == pytest.approx(trial_losses({**BATCH, **knobs}))


def test_a_share_makes_the_loss_the_mean_over_the_windows_tokens():
    model = nn.Linear(1, 1)
    applied = apply({"accumulation_steps": 2}, model, learning_rate=0.1)
    dues = []
    for tokens in (10, 100):
        with applied.forward():
            summed = model(torch.ones(tokens, 1)).sum()
        dues.append(applied.backward(summed, share=1 / 110))
    assert dues == [False, True]
    assert model.bias.grad.item() == pytest.approx(1)


def test_gradients_are_clipped_at_their_own_size_under_a_scaler():
    model = nn.Linear(1, 1)
    applied = apply({"amp_dtype": "fp16"}, model, learning_rate=0.1)
    applied.backward(3 * model.bias.sum())
    assert applied.clip(1.0).item() == pytest.approx(3)
    assert model.bias.grad.item() == pytest.approx(1, rel=1e-4)
    assert applied.step()


def test_a_scheduler_moves_the_rate_of_the_applied_optimizer():
    model = nn.Linear(1, 1)
    applied = apply({}, model, learning_rate=0.1)
    scheduler = StepLR(applied.optimizer, step_size=1, gamma=0.5)
    applied.backward(model.bias.sum())
    applied.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.05]
    assert applied.optimizer_steps == 1


def test_frozen_weights_stay_and_blocks_of_ones_own_recompute():
    blocks = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    blocks[0].requires_grad_(False)
    before = blocks[0].weight.clone()
    applied = apply({"checkpoint_interval": 2}, blocks, learning_rate=0.1, blocks=list(blocks))
    applied.backward(blocks(torch.ones(1, 2)).sum())
    applied.step()
    assert applied.num_checkpointed == 2
    assert torch.equal(blocks[0].weight, before)


@pytest.mark.parametrize(
    ("knobs", "remedy"),
    [
        ({"zero_stage": 2}, "zero_stage=2 is DeepSpeed's; use `autotune export --format deepsp"),
        ({"zero_stage": 3, "sharding": "fsdp"}, "call torch.distributed.fsdp.fully_shard"),
        ({"offload_target": "nvme"}, "offload_target=nvme is DeepSpeed's"),
        ({"lora_rank": 4}, "use peft's LoraConfig"),
        ({"optimizer_in_backward": "on", "accumulation_steps": 2}, "accumulation_steps=2 adds"),
        ({"amp": "bf16"}, "unknown knob 'amp'"),
        ({"config": 3}, "config=3: must be knobs"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_what_to_do(knobs, remedy):
    with pytest.raises(InvalidConfigError, match=remedy.replace("(", r"\(")):
        apply(knobs, nn.Linear(1, 1), learning_rate=0.1)


def test_checkpointing_without_blocks_is_refused():
    with pytest.raises(WorkloadError, match="needs blocks"):
        apply({"checkpoint_interval": 1}, nn.Linear(1, 1), learning_rate=0.1)


def test_what_is_stepped_in_backward_has_no_optimizer_to_show():
    applied = apply({"optimizer_in_backward": "on"}, nn.Linear(1, 1), learning_rate=0.1)
    with pytest.raises(InvalidConfigError, match="there is not one optimizer to show"):
        _ = applied.optimizer


def test_a_config_is_read_from_all_that_holds_one(tmp_path):
    wanted = config(optimizer_bits=8)
    document = {"study": "a", "trial": 3, "config": wanted.as_dict()}
    path = tmp_path / "best.json"
    path.write_text(json.dumps(document))
    sources = (wanted, wanted.as_dict(), document, path, str(path))
    assert {read_source(source) for source in sources} == {wanted}


@pytest.mark.parametrize(
    ("text", "fault"), [("{", "is no JSON"), ("[]", "has no 'config'"), (None, "cannot be read")]
)
def test_a_file_without_a_config_is_named(tmp_path, text, fault):
    path = tmp_path / "best.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidConfigError, match=f"best.json' {fault}"):
        read_source(path)


def test_the_public_name_is_the_function_and_costs_nothing_until_asked_for():
    assert autotune.apply is apply
    code = "import autotune, sys; print('torch' in sys.modules, 'apply' in autotune.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"
