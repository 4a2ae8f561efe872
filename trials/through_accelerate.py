"""Accelerate under an exported launch file, as a target."""

import os
from typing import Any

from accelerate import Accelerator
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_simple_launcher_cmd_env

from trials.handed import Handed, LossModel
from trials.optimizers import build_optimizer
from trials.workload import to_device

FILE = "accelerate.yaml"


def train(handed: Handed) -> None:
    """See Target."""
    os.environ.update(_launch_environment(handed))
    config = handed.config
    accelerator: Any = Accelerator(gradient_accumulation_steps=config.accumulation_steps)
    model = LossModel(handed.workload).to(handed.device)
    model.follow(config, handed.device)
    rate = handed.workload.learning_rate
    optimizer = build_optimizer(model.parameters(), config, handed.device, rate)
    model, optimizer = accelerator.prepare(model, optimizer)
    model.train()
    for batch in handed.batches():
        with accelerator.accumulate(model):
            loss = model(to_device(batch, handed.device))
            handed.lost(float(loss.detach()), batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            handed.stepped(is_skipped=accelerator.optimizer_step_was_skipped)
    with accelerator.autocast():
        handed.evaluate(accelerator.unwrap_model(model).trained)
    folder = handed.path("state")
    accelerator.save_state(str(folder), safe_serialization=False)
    handed.saved(folder)


def _launch_environment(handed: Handed) -> dict[str, str]:
    """Return the variables by which ``accelerate launch`` tells a script what its file says."""
    words = ["--config_file", str(handed.path(FILE)), "script.py"]
    arguments, _, _ = _validate_launch_command(launch_command_parser().parse_args(words))
    _, variables = prepare_simple_launcher_cmd_env(arguments)
    found: dict[str, str] = variables
    return found
