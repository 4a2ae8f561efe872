"""The commands that look at a store, and those that change it, on stores of made-up trials."""

import csv
import io
import json
import os
import tomllib
from dataclasses import replace

import pytest

from autotune.cli import run_command
from autotune.records import Scores, Source, StudyState, TrialState
from autotune.store.leases import this_process
from autotune.store.sql import SqlStore
from tests.factories import (
    MIB,
    make_config,
    make_facts,
    make_key,
    make_measurement,
    make_oom,
    make_study_record,
    make_trial,
)
from trials.measurement import Measurement, Outcome

GONE = replace(this_process(), started_at=this_process().started_at - 3600)
FACTS = make_facts(quality_name="held_out_loss")
SCORES = Scores(
    cost_usd_per_million_samples=0.0355312,
    cost_half_width=0.0018,
    throughput_samples_per_second=13052.2,
    throughput_half_width=60.2,
    quality=4.3383,
    quality_half_width=0.16,
)
READING = [
    ["studies"],
    ["trials", "study"],
    ["front", "study"],
    ["best", "study"],
    ["export", "study"],
    ["dashboard", "--port", "0"],
    ["delete", "study", "--yes"],
]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AUTOTUNE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def path(tmp_path, monkeypatch):
    path = tmp_path / "studies.db"
    monkeypatch.setenv("AUTOTUNE_STORE", str(path))
    return path


@pytest.fixture
def store(path):
    store = SqlStore.open(str(path))
    yield store
    store.close()


@pytest.fixture
def filled(store):
    """A study with a trial of each kind; its driver is gone."""
    store.create_study(make_study_record(facts=FACTS))
    store.claim("study", GONE, 60)
    finish(store, 0, make_measurement(), SCORES, slot="slot-1")
    finish(store, 1, make_oom(), Scores(), config=make_config(micro_batch_size=64))
    predicted = {"source": Source.PREDICTED, "outcome": Outcome.OUT_OF_MEMORY}
    reason = "not run: trial 1 (fp32) ran out of memory, and this is at least as large"
    store.open_trial(make_trial(2, state=TrialState.TOLD, reason=reason, **predicted))
    store.open_trial(make_trial(3, slot="slot-2"))
    store.set_front("study", [0], 0)
    return store


def finish(store: SqlStore, number: int, measurement: Measurement, scores: Scores, **override):
    trial = make_trial(number, **override)
    store.open_trial(trial)
    store.record_measurement(trial, make_key(trial), 600 * MIB, measurement)
    violation = -0.5 if measurement.outcome == Outcome.COMPLETED else 0.5
    store.tell_trial(trial, scores, violation)


def documents(capsys, *arguments):
    assert run_command([*arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def answer(monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.parametrize("arguments", READING, ids=lambda words: words[0])
def test_a_store_that_is_not_there_is_told_and_not_made(arguments, tmp_path, capsys):
    assert run_command([*arguments, "--store", f"{tmp_path}/new/typo.db"]) == 4
    found = capsys.readouterr()
    assert f"no store at {tmp_path}/new/typo.db" in found.err and "autotune run" in found.err
    assert found.out == "" and list(tmp_path.iterdir()) == []


def test_before_the_first_study_there_are_none_and_that_is_no_error(tmp_path, capsys):
    assert run_command(["studies"]) == 0
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "no studies yet; begin one with: autotune run\n")
    assert documents(capsys, "studies") == []
    assert list(tmp_path.iterdir()) == []


def test_an_empty_list_has_its_header(store, capsys):
    assert run_command(["studies", "--output", "csv"]) == 0
    assert capsys.readouterr().out.startswith("name,workload,state,created_at,num_trials,")
    store.create_study(make_study_record())
    assert run_command(["trials", "study", "--output", "csv"]) == 0
    (header,) = csv.reader(io.StringIO(capsys.readouterr().out))
    assert {"trial", "state", "source", "slot", "config.amp_dtype"} <= set(header)
    assert "step_seconds.mean" in header and "step_seconds" not in header


def test_the_rows_of_trials_say_state_source_and_slot(filled, capsys):
    assert run_command(["trials", "study", "--output", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["source"] for row in rows] == ["run", "run", "predicted", "run"]
    assert [row["slot"] for row in rows] == ["slot-1", "", "", "slot-2"]
    assert [row["state"] for row in rows] == ["told", "told", "told", "interrupted"]
    assert rows[0]["memory.parameters"] == str(100 * MIB)


def test_a_study_whose_driver_is_gone_has_stopped(filled, capsys):
    assert run_command(["studies"]) == 0
    assert "stopped (driver gone): autotune resume study" in capsys.readouterr().out
    (study,) = documents(capsys, "studies")
    assert study["state"] == "stopped" and "autotune resume study" in study["stop_reason"]
    assert run_command(["trials", "study"]) == 0
    found = capsys.readouterr()
    assert found.err == "study study: stopped (driver gone): autotune resume study\n"
    assert "interrupted" in found.out


def test_a_study_under_way_runs_and_so_does_its_leased_trial(filled, capsys):
    filled.claim("study", this_process(), 60)
    (study,) = documents(capsys, "studies")
    assert (study["state"], study["stop_reason"]) == ("running", "")
    assert documents(capsys, "trials", "study")[3]["state"] == "running"
    assert run_command(["trials", "study"]) == 0
    found = capsys.readouterr()
    assert "running" in found.out.splitlines()[-1] and found.err == ""


def test_reasons_are_short_in_the_table_and_whole_in_documents(filled, capsys):
    assert run_command(["trials", "study"]) == 0
    found = capsys.readouterr().out
    assert "out of memory in warm-up, needs at least 900 MiB" in found
    assert "predicted: larger than trial 1 that ran out of memory" in found
    assert "tried to allocate" not in found
    assert "tried to allocate 1.00 GiB" in documents(capsys, "trials", "study")[1]["reason"]


def test_best_says_why_in_every_form(filled, capsys):
    why = "the cheapest of the 1 point of the front"
    assert documents(capsys, "best", "study")["recommendation"].startswith(why)
    assert run_command(["best", "study", "--output", "csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["recommendation"].startswith(why)
    assert run_command(["best", "study"]) == 0
    assert f"Best measured: trial 0, {why}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["trials", "front", "best"])
@pytest.mark.parametrize("columns", [40, 80, 200, None])
def test_no_table_cuts_a_number(filled, capsys, monkeypatch, command, columns):
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("FORCE_COLOR", "1")
    assert run_command([command, "study"]) == 0
    found = capsys.readouterr().out
    for number in ("0.03553", "13052", "4.338", "400.0"):
        assert number in found
    assert ("…" in found) is False


@pytest.mark.parametrize("command", ["trials", "front", "studies"])
def test_a_table_keeps_to_the_width_of_a_usual_terminal(filled, capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert run_command([command, *([] if command == "studies" else ["study"])]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_in_a_pipe_a_trial_is_one_line(filled, capsys):
    assert run_command(["trials", "study"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + 4


def test_export_replaces_a_file_only_by_force(filled, tmp_path, capsys):
    target = tmp_path / "best.toml"
    words = ["export", "study", "--format", "toml", "--to", str(target)]
    assert run_command(words) == 0
    assert capsys.readouterr().err == f"wrote trial 0 of study to {target}\n"
    target.write_text("precious")
    assert run_command(words) == 2
    assert "exists; give --force to replace it" in capsys.readouterr().err
    assert target.read_text() == "precious"
    assert run_command([*words, "--force"]) == 0
    assert tomllib.loads(target.read_text())["trial"] == 0


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_export_into_a_folder_that_is_not_there_is_told(filled, tmp_path, capsys, force):
    target = tmp_path / "new" / "best.json"
    assert run_command(["export", "study", "--to", str(target), *force]) == 2
    assert f"there is no folder '{tmp_path}/new'; make it first" in capsys.readouterr().err


def test_files_that_belong_together_come_together_or_not_at_all(filled, tmp_path, capsys):
    target, beside = tmp_path / "run.yaml", tmp_path / "run.deepspeed.json"
    words = ["export", "study", "--format", "accelerate", "--pair", "deepspeed"]
    words += ["--to", str(target)]
    beside.write_text("precious")
    assert run_command(words) == 2
    assert beside.read_text() == "precious" and not target.exists()
    beside.unlink()
    assert run_command(words) == 0
    assert json.loads(beside.read_text())["train_batch_size"] == 8
    found = capsys.readouterr()
    assert found.out == "" and "note: your script sets" in found.err


def test_an_export_on_standard_output_is_the_file_alone(filled, capsys):
    assert run_command(["export", "study", "--format", "transformers", "--steps", "9"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["max_steps"] == 9
    assert "note: load the model with dtype=torch.float32" in found.err


def test_a_config_that_a_format_cannot_express_is_a_users_matter(store, capsys):
    store.create_study(make_study_record(facts=FACTS))
    store.claim("study", GONE, 60)
    config = make_config(zero_stage=2)
    finish(store, 0, make_measurement(), SCORES, config=config)
    words = ["export", "study", "--trial", "0", "--format", "transformers"]
    assert run_command(words) == 2
    assert "error: zero_stage=2 is DeepSpeed's" in capsys.readouterr().err


def test_a_baseline_that_is_broken_is_told_before_anything_starts(path, tmp_path, capsys):
    today = tmp_path / "today.json"
    today.write_text('{"zero_optimization": {"stage": 3, "aio": {}}}')
    assert run_command(["run", "--baseline", str(today)]) == 2
    assert "zero_optimization.aio is misplaced" in capsys.readouterr().err
    assert not path.exists()


def test_deleting_without_an_answer_asks_for_yes(filled, monkeypatch, capsys):
    answer(monkeypatch, "")
    assert run_command(["delete", "study"]) == 2
    assert "give --yes to delete without asking" in capsys.readouterr().err
    assert filled.study("study")


@pytest.mark.parametrize("text", ["n\n", "\n", "no", "what\n"])
def test_deleting_is_left_undone_unless_agreed(filled, monkeypatch, capsys, text):
    answer(monkeypatch, text)
    assert run_command(["delete", "study"]) == 0
    assert capsys.readouterr().err.endswith("nothing deleted\n")
    assert filled.study("study")


@pytest.mark.parametrize("text", ["y\n", "Yes\n"])
def test_deleting_goes_on_when_agreed(filled, monkeypatch, capsys, text):
    answer(monkeypatch, text)
    assert run_command(["delete", "study"]) == 0
    assert capsys.readouterr().err.endswith("deleted study study\n")
    assert filled.studies() == []


def test_ctrl_c_at_the_question_deletes_nothing(filled, monkeypatch, capsys):
    class Interrupted(io.StringIO):
        def readline(self, size=-1):
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    assert run_command(["delete", "study"]) == 130
    assert capsys.readouterr().err.endswith("nothing deleted\n")
    assert filled.study("study")


def test_what_is_not_there_is_told_before_the_question(store, monkeypatch, capsys):
    answer(monkeypatch, "")
    assert run_command(["delete", "gone"]) == 3
    assert "[y/N]" not in capsys.readouterr().err


def test_a_finished_study_keeps_its_state(store, capsys):
    store.create_study(make_study_record(state=StudyState.FINISHED, stop_reason="spent"))
    (study,) = documents(capsys, "studies")
    assert (study["state"], study["stop_reason"]) == ("finished", "spent")
