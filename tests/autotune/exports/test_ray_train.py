"""The arguments for Ray Train: its own classes take them.

In a process of their own, since Ray reads its environment once, when it is imported.
"""

import json
import subprocess
import sys

import pytest
import yaml

from tests.autotune.exports.handovers import exported, handed_over

PARSE = """
import json, sys
from ray.train import RunConfig, ScalingConfig

for document in json.load(sys.stdin):
    scaling = ScalingConfig(**document["scaling_config"])
    run = RunConfig(**document["run_config"])
    resources = scaling.resources_per_worker
    print(json.dumps([scaling.num_workers, scaling.use_gpu, resources, run.name]))
"""
DEVICES = ("cpu", "cuda")


def document(on):
    handover = handed_over(on=on, num_devices=4, accumulation_steps=2, steps=7)
    return yaml.safe_load(exported("ray-train", handover).text)


def test_ray_train_takes_it():
    documents = [document(on) for on in DEVICES]
    parsed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARSE],
        input=json.dumps(documents),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    cpu, cuda = (json.loads(line) for line in parsed.stdout.splitlines())
    assert cpu[:2] == [4, False]
    assert "GPU" not in cpu[2]
    assert cuda[:2] == [4, True]
    assert cuda[2]["GPU"] == 1
    assert cpu[3] == cuda[3] == "study-4"


@pytest.mark.parametrize("on", DEVICES)
def test_what_the_loop_gets_is_the_batch_and_the_steps(on):
    loop = document(on)["train_loop_config"]
    assert loop["global_batch_size"] == loop["micro_batch_size"] * 2 * 4
    assert (loop["learning_rate"], loop["steps"]) == (2e-5, 7)
