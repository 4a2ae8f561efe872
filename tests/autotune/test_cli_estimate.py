"""``autotune estimate`` as a person or a script calls it."""

import csv
import io
import json

import pytest

from search_spaces import TrainingConfig
from tests.autotune.commands import ROOT, call_here, kept_helper

WORKLOADS = ROOT / "tests" / "assets" / "workloads"
SPACE = """
global_batch_size = 8

[knobs]
amp_dtype = ["fp32", "bf16"]
micro_batch_size = [1, 8]
offload_target = ["none", "nvme"]
"""
KINDS = {"parameters", "gradients", "optimizer_state", "activations", "temporary"}
CONFIG_KEYS = {
    *("config", "fits", "probability_fits", "peak_device_bytes", "peak_host_bytes"),
    *("memory", "step_seconds", "reason"),
}


@pytest.fixture(scope="module", autouse=True)
def _kept_helper():
    with kept_helper():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a space of eight configs, four of which cannot be, and no store."""
    folder = tmp_path_factory.mktemp("estimate")
    (folder / "space.toml").write_text(SPACE)
    return folder


def called(folder, *arguments, workload="byte-gpt"):
    words = ["estimate", "--workload", workload, "--space", "space.toml", *arguments]
    words += ["--device", "cpu"]
    return call_here(*words, folder=folder, XDG_DATA_HOME=str(folder))


@pytest.fixture(scope="module")
def found(folder):
    done = called(folder, "--memory-budget", "18MiB", "--output", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_document_says_what_the_workload_is_and_how_long_it_took(found):
    assert found["parameters"] == 830_208 and found["largest_parameter"] == 65_536
    assert 0 < found["traces_seconds"] < 60
    assert len(found["configs"]) == 8


def test_every_config_has_the_same_keys(found):
    assert all(set(one) == CONFIG_KEYS for one in found["configs"])
    assert all(
        one["config"].keys() == TrainingConfig().as_dict().keys() for one in found["configs"]
    )


def test_a_config_that_may_run_has_its_memory_by_kind_and_its_intervals(found):
    predicted = [one for one in found["configs"] if one["memory"]]
    assert len(predicted) == 4
    for one in predicted:
        assert set(one["memory"]) == KINDS
        assert all(isinstance(size, int) and size >= 0 for size in one["memory"].values())
        assert isinstance(one["peak_host_bytes"], int) and 0 <= one["probability_fits"] <= 1
        for key in ("peak_device_bytes", "step_seconds"):
            interval = one[key]
            assert set(interval) == {"low", "mean", "high"}
            assert 0 < interval["low"] < interval["mean"] < interval["high"]


def test_the_reason_says_why_a_config_does_not_fit(found):
    fits = {one["config"]["micro_batch_size"]: one for one in found["configs"] if one["memory"]}
    assert fits[1]["fits"] and fits[1]["reason"] == "" and fits[1]["probability_fits"] > 0.5
    assert not fits[8]["fits"] and fits[8]["probability_fits"] < 0.5
    assert fits[8]["reason"].startswith("needs about ") and "budget is 18" in fits[8]["reason"]


def test_a_config_that_cannot_be_says_so_and_predicts_nothing(found):
    refused = [one for one in found["configs"] if one["config"]["offload_target"] == "nvme"]
    assert len(refused) == 4
    for one in refused:
        assert not one["fits"] and one["peak_device_bytes"] is None and one["memory"] == {}
        assert one["step_seconds"] is None and "nvme" in one["reason"]


def test_csv_has_a_row_for_each_config_and_a_column_for_each_number(folder):
    done = called(folder, "--set", "offload_target=none", "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert done.returncode == 0 and len(rows) == 4
    columns = {"fits", "config.micro_batch_size", "memory.activations", "peak_device_bytes.mean"}
    assert columns <= rows[0].keys()
    assert all(float(row["peak_device_bytes.mean"]) > 2**20 for row in rows)


def test_a_table_shows_what_fits_and_counts_the_rest(folder):
    done = called(folder, "--memory-budget", "18MiB")
    assert done.returncode == 0 and "predicted, nothing was trained" in done.stdout
    assert "2 of 4 configs fit, 2 do not" in done.stdout and "4 refused: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "micro_batch=8"], "unknown knob 'micro_batch'"),
        (["--set", "amp_dtype=fp64"], "fp64"),
        (["--memory-budget", "30"], "unit"),
        (["--space", "nowhere.toml"], "nowhere.toml"),
        (["--store", "sqlite:///nowhere.db"], "nowhere.db"),
    ],
)
def test_bad_input_is_told_in_a_line(folder, arguments, message):
    done = called(folder, *arguments)
    assert done.returncode in (2, 3, 4) and done.stdout == ""
    assert message in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_program_of_its_own_is_sent_to_probe(folder):
    done = called(folder, workload=f"command:python {WORKLOADS / 'train.py'}")
    assert done.returncode == 2 and "measure it with autotune probe" in done.stderr
