"""Trials ready to be handed over, and configs that may be."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import strategies as st

from autotune.exports import PAIRED, Handover, export_bundle
from search_spaces import KNOBS, DeviceFacts, TrainingConfig, refusal
from tests.factories import (
    make_config,
    make_environment,
    make_facts,
    make_scored,
    make_study_record,
)

NOW = datetime(2026, 9, 1, 12, 30, 5, tzinfo=UTC)
GPU = DeviceFacts(kind="cuda", compute_capability=(9, 0))
VALUES = {
    "amp_dtype": ["fp32", "tf32", "bf16", "fp16"],
    "checkpoint_interval": [0, 1, 2, 4],
    "micro_batch_size": [1, 2, 3, 8],
    "accumulation_steps": [1, 2, 7],
    "optimizer": ["adamw", "lion", "sgd"],
    "optimizer_bits": [32, 8, 4],
    "zero_stage": [0, 1, 2, 3],
    "offload_target": ["none", "none", "cpu", "nvme", "paged"],
    "activation_offload": ["none", "cpu"],
    "checkpoint_deepest": [0, 2],
    "compile": ["off", "on"],
    "sharding": ["deepspeed", "deepspeed", "deepspeed", "fsdp"],
    "optimizer_in_backward": ["off", "off", "off", "on"],
    "lora_rank": [0, 0, 8],
    "weight_bits": [32, 32, 32, 8, 4],
}
assert VALUES.keys() == KNOBS.keys()


def _sound_configs(count):
    draw = random.Random(0)
    while count:
        knobs = {knob: draw.choice(values) for knob, values in VALUES.items()}
        config = TrainingConfig.from_mapping(knobs)
        if refusal(config, GPU) is None:
            count -= 1
            yield config


SOUND = st.sampled_from(list(_sound_configs(600)))
"""Configs that a study on a GPU may try."""


def handed_over(config=None, *, num_devices=1, on="cpu", rate=2e-5, steps=None, **knobs):
    config = make_config(**knobs) if config is None else config
    study = make_study_record(
        facts=make_facts(learning_rate=rate, largest_parameter=400),
        environment=make_environment(device_kind=on, deepspeed="0.19.8"),
    )
    space = replace(study.spec.space, num_devices=num_devices)
    spec = replace(study.spec, space=space, nvme_path="/local_nvme")
    study = replace(study, spec=spec)
    trial = make_scored(4, config=config)
    return Handover(trial=trial, study=study, now=NOW, steps=steps)


def exported(form, handover, to=None):
    """Return an export, paired with a DeepSpeed file where a path is given and it may be."""
    is_paired = (
        to is not None
        and handover.config.zero_stage > 0
        and handover.config.sharding == "deepspeed"
    )
    pair = "deepspeed" if is_paired and form in PAIRED else None
    return export_bundle(handover, form=form, pair=pair, to=to)


def deepspeed_json(**options):
    return json.loads(exported("deepspeed", handed_over(**options)).text)


def written(form, handover, path):
    """Write an export with all that goes with it, and return its path."""
    bundle = exported(form, handover, path)
    for place, text in ((path, bundle.text), *bundle.beside):
        place.write_text(text)
    return path
