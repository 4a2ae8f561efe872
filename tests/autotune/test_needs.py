import pytest

from autotune.needs import needs_of
from tests.factories import make_config as config
from tests.factories import make_environment, make_scored, make_study_record

STUDY = make_study_record(
    environment=make_environment(
        torch="2.13.0", bitsandbytes="0.49", torchao="0.16", peft="0.21", deepspeed="0.19"
    )
)


@pytest.mark.parametrize(
    ("knobs", "packages"),
    [
        ({}, []),
        ({"optimizer_bits": 8}, ["bitsandbytes==0.49"]),
        ({"optimizer": "lion"}, ["bitsandbytes==0.49"]),
        ({"offload_target": "paged"}, ["bitsandbytes==0.49"]),
        ({"lora_rank": 8, "weight_bits": 4}, ["bitsandbytes==0.49", "peft==0.21"]),
        ({"lora_rank": 8}, ["peft==0.21"]),
        ({"optimizer_bits": 4}, ["torchao==0.16"]),
        ({"offload_target": "cpu"}, ["torchao==0.16"]),
        ({"zero_stage": 2}, ["deepspeed==0.19"]),
        ({"zero_stage": 2, "offload_target": "cpu"}, ["deepspeed==0.19"]),
        ({"zero_stage": 3, "offload_target": "nvme"}, ["deepspeed==0.19"]),
        ({"zero_stage": 2, "sharding": "fsdp"}, []),
    ],
    ids=str,
)
def test_a_config_needs_the_packages_of_its_techniques_as_measured(knobs, packages):
    trial = make_scored(0, config=config(**knobs))
    assert needs_of(trial, STUDY)["packages"] == ["torch==2.13.0", *packages]


def test_a_package_of_unknown_version_is_named_alone():
    trial = make_scored(0, config=config(zero_stage=1))
    assert needs_of(trial, make_study_record())["packages"] == ["torch==2.9.0", "deepspeed"]
