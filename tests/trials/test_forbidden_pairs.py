"""Pairs that the rules refuse, asked of DeepSpeed itself: they fail, or are not what they say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from search_spaces import DeviceFacts, OffloadTarget, TrainingConfig, refusal
from trials.zero import missing_offload

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    missing = missing_offload(OffloadTarget.NVME)
    if missing is not None:
        (pytest.fail if "CI" in os.environ else pytest.skip)(missing)
    folder = tmp_path_factory.mktemp("swap")
    command = [sys.executable, "-W", "ignore", "-m", "tests.trials.deepspeed_pairs", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def is_refused(**knobs):
    return refusal(TrainingConfig.from_mapping(knobs), DeviceFacts()) is not None


def test_at_stage_0_nothing_is_offloaded(found):
    assert is_refused(offload_target="cpu")
    assert found["cpu at stage 0"]["is_zero"] is False


@pytest.mark.parametrize("stage", [1, 2])
def test_below_stage_3_nothing_reaches_the_disk(found, stage):
    assert is_refused(offload_target="nvme", zero_stage=stage)
    pair = found[f"nvme at stage {stage}"]
    assert pair["is_zero"] and pair["files"] == 0
    assert pair["bytes_per_parameter"] == pytest.approx(8)


@pytest.mark.parametrize(
    ("optimizer", "knobs"),
    [
        ("lion", {"optimizer": "lion"}),
        ("sgd", {"optimizer": "sgd"}),
    ],
)
def test_an_optimizer_that_is_not_deepspeeds_is_refused_with_offload(found, optimizer, knobs):
    assert is_refused(offload_target="cpu", zero_stage=2, **knobs)
    assert found[f"client {optimizer}"]["error"].startswith("ZeRORuntimeException")


def test_even_torchs_adamw_is_refused_so_that_deepspeed_builds_its_own(found):
    assert not is_refused(offload_target="cpu", zero_stage=2)
    assert "client provided optimizer" in found["client adamw"]["error"]


def test_8_bit_state_on_a_cpu_is_there_once_deepspeed_is_told_not_to_insist(found):
    """Which trials and exports do; bitsandbytes has kernels for CPUs by now."""
    assert not is_refused(offload_target="cpu", zero_stage=2, optimizer_bits=8)
    assert found["client 8-bit"]["error"].startswith("ZeRORuntimeException")
    pair = found["8-bit not forced"]
    assert pair["is_zero"] and pair["bytes_per_parameter"] == pytest.approx(2, rel=0.05)


def test_4_bit_state_under_zero_is_none_and_8_bit_is(found):
    assert is_refused(optimizer_bits=4, zero_stage=1)
    assert found["4-bit at stage 1"]["bytes_per_parameter"] == pytest.approx(8, rel=0.01)
    assert not is_refused(optimizer_bits=8, zero_stage=1)
    assert found["8-bit at stage 1"]["bytes_per_parameter"] == pytest.approx(2, rel=0.05)
