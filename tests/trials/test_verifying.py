import json

import pytest

from search_spaces import TrainingConfig
from trials.errors import SpecError
from trials.measurement import Outcome
from trials.spec import Task, Through, TrialSpec

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


def files(config=CONFIG, **arguments):
    return {
        "config.json": json.dumps({"config": config.as_dict()}),
        "transformers.json": json.dumps({**ARGUMENTS, **arguments}),
        "accelerate.yaml": LAUNCH,
    }


@pytest.fixture
def through(run):
    def train(target, handed=None, **fields):
        return run(
            config=CONFIG,
            task=Task.VERIFY,
            through=target,
            handed=handed or files(),
            handed_steps=STEPS,
            **fields,
        )

    return train


def test_every_target_takes_the_losses_of_the_trials_loop(through):
    reference, *others = (through(target) for target in Through)
    assert reference.outcome == Outcome.COMPLETED, reference.reason
    for found in others:
        assert found.outcome == Outcome.COMPLETED, found.reason
        seen = found.verification
        assert seen.losses == pytest.approx(reference.verification.losses, rel=1e-4)
        assert seen.quality == pytest.approx(reference.verification.quality)
        assert seen.checkpoint_bytes > 0
        assert len(found.timing.step_seconds) == STEPS - 2
        assert found.memory.peak_device_bytes > 0


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
