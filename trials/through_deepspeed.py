"""DeepSpeed under an exported JSON file, as a target."""

from typing import Any

from search_spaces import Switch
from trials.errors import TrialSetupError
from trials.handed import Handed, LossModel
from trials.workload import to_device
from trials.zero import autocast_of, start_deepspeed

FILE = "deepspeed.json"


def train(handed: Handed) -> None:
    """See Target."""
    engine = _engine(handed)
    for batch in handed.batches():
        loss = engine(to_device(batch, handed.device))
        handed.lost(float(loss.detach()), batch)
        engine.backward(loss)
        is_last = engine.is_gradient_accumulation_boundary()
        engine.step()
        if is_last:
            handed.stepped(is_skipped=engine.was_step_applied() is False)
    with autocast_of(engine):
        handed.evaluate(engine.module.trained)
    folder = handed.path("checkpoint")
    engine.save_checkpoint(str(folder))
    handed.saved(folder)


def _engine(handed: Handed) -> Any:
    """Return DeepSpeed's engine, as a script makes it from the file.

    Raises:
        TrialSetupError: The script would feed it another micro-batch than the trial's.
    """
    config = handed.config
    model = LossModel(handed.workload).to(handed.device)
    model.follow(config, handed.device)
    if config.compile == Switch.ON:
        model.trained.compile()
    model.train()
    engine, _ = start_deepspeed(
        model,
        config,
        handed.device,
        handed.workload.learning_rate,
        document=handed.path(FILE),
        nvme_folder=handed.nvme_folder,
    )
    said = engine.train_micro_batch_size_per_gpu()
    if said != config.micro_batch_size:
        raise TrialSetupError(
            f"deepspeed reads a micro-batch of {said} from the file, and the trial's is "
            f"{config.micro_batch_size}"
        )
    return engine
