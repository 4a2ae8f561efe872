"""``autotune route``, and ``sensitivity`` to spot prices, on a store of made-up GPU trials."""

import json
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal

import pytest
import yaml

from autotune.cli import run_command
from autotune.records import Scores
from autotune.store.sql import SqlStore
from tests.autotune.prices.books import A100
from tests.autotune.test_cli_pricing import (  # noqa: F401
    TRIALS,
    bare_environment,
    digest,
    documents,
    filled,
    store,
)
from tests.factories import MIB, make_key, make_oom, make_study_record, make_trial

BOOK = """
name = "mine"
dated = 2026-11-20

[[offers]]
provider = "aws"
instance = "a100"
region = "us-east-1"
zone = "us-east-1b"
gpu = "A100-80GB"
gpu_count = 1
dram_gib = 200
on_demand_usd_h = 2.50
spot_usd_h = 1.00
spot_mtbf_h = 12

[[offers]]
provider = "aws"
instance = "a10-night"
region = "us-west-2"
gpu = "A10"
gpu_count = 1
dram_gib = 64
hours_utc = "22-6"
on_demand_usd_h = 0.20
"""


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(BOOK)
    return str(path)


@pytest.fixture
def route(filled, book):  # noqa: F811
    return ["route", "study", "--samples", "8000", "--prices", book]


def test_each_class_has_its_machine_hours_and_finish(route, capsys):
    assert run_command(route) == 0
    out = capsys.readouterr().out
    assert "A run of 8000 samples of study, in USD" in out
    assert "Prices: 2026-11-20 (mine)." in out
    assert "memory-frugal when its measured peak and 5% fit the 24 GiB" in out
    assert "22-6" in out and "spot" in out and "on demand" in out and "UTC" in out


def test_the_plan_as_json(route, capsys):
    """Trial 0 does 8,000 samples in 75 minutes, on the spot at 1 $ an hour."""
    found = documents(capsys, *route)
    by_class = {document["job_class"]: document for document in found}
    chosen = by_class["memory-intensive"]["chosen"]
    assert (chosen["trial"], chosen["instance"], chosen["is_spot"]) == (0, "a100", True)
    assert chosen["zone"] == "us-east-1b" and chosen["mtbf_seconds"] == 12 * 3600
    assert Decimal("1.25") < Decimal(chosen["expected_usd"]) < Decimal("1.35")
    assert 0 < chosen["checkpoint_interval_seconds"] < 600
    night = by_class["memory-frugal"]["on_demand"]
    assert (night["trial"], night["hours_utc"], night["basis"]) == (1, "22-6", "estimated")
    assert found[0]["prices"] == {"book": "mine", "dated": "2026-11-20", "currency": "USD"}
    assert sum(document["is_cheapest"] for document in found) == 1
    assert run_command([*route, "--format", "json"]) == 0
    assert [each["job_class"] for each in json.loads(capsys.readouterr().out)] == list(by_class)


def test_epochs_multiply_the_samples(route, capsys):
    assert {each["samples"] for each in documents(capsys, *route, "--epochs", "3")} == {24_000}


def test_the_task_file_for_skypilot(route, tmp_path, capsys):
    path = tmp_path / "task.yaml"
    line = [*route, "--format", "skypilot", "--run", "python train.py", "--to", str(path)]
    line += ["--class", "memory-intensive"]
    assert run_command(line) == 0
    text = path.read_text()
    task = yaml.safe_load(text)
    assert task["resources"] == {
        "cloud": "aws",
        "instance_type": "a100",
        "zone": "us-east-1b",
        "use_spot": True,
    }
    assert task["run"] == "python train.py" and task["envs"]["TRAIN_AMP_DTYPE"] == "bf16"
    assert int(task["envs"]["TRAIN_CHECKPOINT_SECONDS"]) > 0
    assert "for USD 1.2" in text and "prices of 2026-11-20 (mine)" in text
    assert run_command(line) == 2
    assert "exists; give --force" in capsys.readouterr().err


VALIDATE = """
import json, sys
from ray._private.label_utils import validate_label_key

print([error for key in json.load(sys.stdin) if (error := validate_label_key(key))])
"""


def test_two_queues_for_ray(route, capsys):
    assert run_command([*route, "--format", "ray"]) == 0
    queues = json.loads(capsys.readouterr().out)["queues"]
    assert set(queues) == {"memory-frugal", "memory-intensive"}
    for name, queue in queues.items():
        assert queue["task"]["resources"] == queue["node"]["resources"] == {name: 1}
        assert queue["task"]["label_selector"] == queue["node"]["labels"]
        assert queue["task"]["num_gpus"] == 1
    keys = [key for queue in queues.values() for key in queue["node"]["labels"]]
    checked = subprocess.run(  # Ray reads its environment once, when it is imported
        [sys.executable, "-c", VALIDATE],
        input=json.dumps(keys),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert keys and checked.stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "yaml"], "--format 'yaml'; known: json, ray, skypilot"),
        (["--format", "skypilot"], "needs what to run; give --run"),
        (["--to", "x.json"], "say in which --format"),
        (["--class", "frugal"], "--class 'frugal'"),
    ],
)
def test_a_wrong_word_is_refused(route, arguments, words, capsys):
    assert run_command([*route, *arguments]) == 2
    assert words in capsys.readouterr().err


def test_spot_whose_preemption_nobody_knows_is_left_out_and_told(route, book, capsys):
    text = BOOK.replace("spot_mtbf_h = 12\n", "")
    with open(book, "w") as file:
        file.write(text)
    assert run_command([*route, "--output", "json"]) == 0
    captured = capsys.readouterr()
    assert {document["spot"] for document in json.loads(captured.out)} == {None}
    assert "does not say how often they are preempted; give --mtbf HOURS" in captured.err
    assert run_command([*route, "--mtbf", "6"]) == 0
    assert "as often as --mtbf says, 300 s until" in capsys.readouterr().err


def test_nothing_in_the_store_changes(route, filled, tmp_path):  # noqa: F811
    filled.close()
    before = digest(tmp_path)
    assert run_command(route) == 0
    assert digest(tmp_path) == before


def test_a_book_that_holds_no_trial_names_the_limit(route, book, capsys):
    with open(book, "w") as file:
        file.write(BOOK.replace("dram_gib = 200", "dram_gib = 16").replace("= 64", "= 8"))
    assert run_command(route) == 5
    assert "misses host memory (21 GiB needed, 16 GiB there, 5 GiB" in capsys.readouterr().err


def test_mixed_currencies_and_old_books_are_told(route, book, capsys):
    with open(book, "w") as file:
        file.write(BOOK.replace("2026-11-20", "2020-01-31"))
    assert run_command(route) == 0
    assert "days old (2020-01-31)" in capsys.readouterr().err
    with open(book, "w") as file:
        file.write(f'currency = "EUR"\n{BOOK}')
    assert run_command(route) == 2
    assert "is in EUR, and prices are counted in USD alone" in capsys.readouterr().err


def test_a_study_without_measurements_is_told(store, book, capsys):  # noqa: F811
    leased = make_trial(0)
    store.open_trial(leased)
    store.record_measurement(leased, make_key(leased), 600 * MIB, make_oom())
    store.tell_trial(leased, Scores(), 0.5)
    assert run_command(["route", "study", "--samples", "8", "--prices", book]) == 3
    assert "study 'study' has no trial that completed" in capsys.readouterr().err


def test_the_spot_price_has_its_flips(filled, book, capsys):  # noqa: F811
    given = ["sensitivity", "study", "--of", "spot", "--samples", "8000", "--prices", book]
    found = documents(capsys, *given)
    assert [(reign["is_spot"], reign["component"]) for reign in found] == [
        (True, "spot"),
        (False, "spot"),
    ]
    assert run_command(given) == 0
    assert ", on the spot" in capsys.readouterr().out
    assert run_command(given[:4] + given[6:]) == 2
    assert "give its --samples" in capsys.readouterr().err


def test_savings_against_the_baseline(tmp_path, book, capsys):
    store = SqlStore.open(str(tmp_path / "studies.db"))  # noqa: F811
    study = make_study_record(environment=A100)
    spec = replace(study.spec, baseline=TRIALS[1].config)
    store.create_study(replace(study, spec=spec))
    for trial in TRIALS:
        leased = make_trial(trial.number, config=trial.config)
        store.open_trial(leased)
        store.record_measurement(leased, make_key(leased), 600 * MIB, trial.measurement)
        speed = trial.measurement.timing.samples_per_second
        scores = Scores(
            cost_usd_per_million_samples=9.0, throughput_samples_per_second=speed, quality=2.5
        )
        store.tell_trial(leased, scores, -0.5)
    store.set_front("study", [0], 0)
    store.close()
    line = ["reprice", "study", "--prices", book, "--by", "instance", "--measured"]
    saved = documents(capsys, *line)[0]["saved_by_recommended"]
    assert saved["baseline"] == 1
    assert saved["usd"]["saved_share"] == pytest.approx(1 / 3)
    assert saved["usd"]["saved_share_least"] <= 1 / 3 <= saved["usd"]["saved_share_most"]
    assert run_command(line) == 0
    assert "Now, trial 0 against the baseline (trial 1): money 33.3% less" in (
        capsys.readouterr().out
    )
    assert run_command(["best", "study"]) == 0
    assert "How sure, against the baseline (trial 1): money" in capsys.readouterr().out
