"""The arguments for Ray Train: its own classes take them."""

import pytest
import yaml
from ray.train import RunConfig, ScalingConfig

from tests.autotune.exports.handovers import exported, handed_over


@pytest.mark.parametrize(("on", "gpus"), [("cpu", 0), ("cuda", 1)])
def test_ray_train_takes_it(on, gpus):
    handover = handed_over(on=on, num_devices=4, accumulation_steps=2, steps=7)
    document = yaml.safe_load(exported("ray-train", handover).text)
    scaling = ScalingConfig(**document["scaling_config"])
    assert (scaling.num_workers, scaling.use_gpu) == (4, on == "cuda")
    assert scaling.resources_per_worker.get("GPU", 0) == gpus
    assert RunConfig(**document["run_config"]).name == "study-4"
    loop = document["train_loop_config"]
    assert loop["global_batch_size"] == loop["micro_batch_size"] * 2 * 4
    assert (loop["learning_rate"], loop["steps"]) == (2e-5, 7)
