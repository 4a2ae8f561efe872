"""A program that asks DeepSpeed for pairs that the rules refuse, and prints what comes of them.

In one process, since importing DeepSpeed takes longest. It talks to DeepSpeed itself: a trial
would neither be asked for such a pair nor pass it on.
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn

from search_spaces import Optimizer, TrainingConfig
from search_spaces.deepspeed_document import AIO
from trials import zero
from trials.optimizers import build_optimizer, state_bytes
from trials.ranks import join_ranks

WIDTHS = (256, 256), (256, 16)
OWN = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
NOT_FORCED = {"zero_force_ds_cpu_optimizer": False}


def document(stage, target=None, folder="", **fields):
    zeros = {"stage": stage, "reduce_bucket_size": 10**5, "allgather_bucket_size": 10**5}
    if target is not None:
        zeros["offload_optimizer"] = {"device": target, "nvme_path": folder}
    return {
        "train_micro_batch_size_per_gpu": 2,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zeros,
        "aio": AIO,
        **fields,
    }


def train(config, folder, kind=None, bits=32):
    """Take three steps; ``kind`` is the optimizer of the client, none for DeepSpeed's own."""
    import deepspeed

    model = nn.Sequential(*(nn.Linear(*widths) for widths in WIDTHS))
    client = kind and build_optimizer(
        model.parameters(),
        TrainingConfig(optimizer=Optimizer(kind), optimizer_bits=bits),
        torch.device("cpu"),
        learning_rate=1e-3,
    )
    try:
        engine, optimizer, _, _ = deepspeed.initialize(
            model=model,
            optimizer=client,
            model_parameters=None if client else list(model.parameters()),
            config=config,
            dist_init_required=False,
        )
        for _ in range(3):
            engine.backward(engine(torch.randn(2, 256)).square().mean())
            engine.step()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    stepped = getattr(optimizer, "optimizer", optimizer)
    return {
        "is_zero": engine.zero_optimization(),
        "files": sum(path.is_file() for path in Path(folder).rglob("*")),
        "bytes_per_parameter": state_bytes(stepped) / sum(p.numel() for p in model.parameters()),
    }


def main(folder):
    zero._choose_accelerator("cpu")
    join_ranks(0, 1, torch.device("cpu"), None, 60.0)
    zero._load_operators()
    found = {
        "cpu at stage 0": train(document(0, "cpu", **OWN), folder),
        "nvme at stage 1": train(document(1, "nvme", folder, **OWN), folder),
        "nvme at stage 2": train(document(2, "nvme", folder, **OWN), folder),
        "client adamw": train(document(2, "cpu"), folder, "adamw"),
        "client 8-bit": train(document(2, "cpu"), folder, "adamw", 8),
        "client lion": train(document(2, "cpu"), folder, "lion"),
        "client sgd": train(document(2, "cpu"), folder, "sgd"),
        "8-bit not forced": train(document(2, "cpu", **NOT_FORCED), folder, "adamw", 8),
        "4-bit at stage 1": train(document(1), folder, "adamw", 4),
        "8-bit at stage 1": train(document(1), folder, "adamw", 8),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
