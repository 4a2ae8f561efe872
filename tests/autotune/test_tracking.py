"""Studies in MLflow and Weights & Biases: what their own clients wrote is read back."""

import json
import struct
import sys

import pytest

from autotune.cli import run_command
from autotune.records import Scores, Source, StudyState
from autotune.store.leases import this_process
from autotune.store.sql import SqlStore
from tests.factories import (
    MIB,
    make_config,
    make_key,
    make_measurement,
    make_oom,
    make_study_record,
    make_trial,
)
from trials.measurement import Outcome

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients
KNOBS = make_config().as_dict()
METRICS = {
    "throughput_samples_per_second": 16.0,
    "step_seconds": 0.5,
    "peak_device_bytes": 400.0 * MIB,
    "peak_host_bytes": 200.0 * MIB,
    "cost_usd_per_million_samples": 10.0,
    "quality": 2.5,
}
PARTS = 32 * 1024
"""Bytes of a block of a ``.wandb`` file, which is a log of LevelDB's after seven bytes."""


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A study of a trial that fitted, one that did not, and one that was never run."""
    for variable in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "WANDB_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AUTOTUNE_STORE", str(tmp_path / "studies.db"))
    store = SqlStore.open(str(tmp_path / "studies.db"))
    store.create_study(make_study_record())
    for number, measurement in enumerate((make_measurement(), make_oom())):
        config = make_config(micro_batch_size=4 * (1 + number))
        trial = make_trial(number, config=config)
        store.open_trial(trial)
        store.record_measurement(trial, make_key(trial), 600 * MIB, measurement)
    tell(store, 0, cost=10.0)
    store.tell_trial(make_trial(1), Scores(), 0.5)
    predicted = {"source": Source.PREDICTED, "outcome": Outcome.OUT_OF_MEMORY}
    store.open_trial(make_trial(2, config=make_config(micro_batch_size=64), **predicted))
    store.set_front("study", [0], 0)
    epoch = store.claim("study", this_process(), lease_seconds=60.0)
    store.release("study", epoch, StudyState.FINISHED, "budget of 2 trials spent")
    yield store
    store.close()


def tell(store, number, cost):
    scores = Scores(
        cost_usd_per_million_samples=cost, throughput_samples_per_second=16.0, quality=2.5
    )
    store.tell_trial(make_trial(number), scores, -0.5)


def track(to, folder):
    return run_command(["track", "study", "--to", to, "--folder", str(folder)])


def runs_of_mlflow(folder):
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("autotune")
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


def records_of(path):
    """Return the records of a ``.wandb`` file, in order."""
    from wandb.proto import wandb_internal_pb2

    data, place, body = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = PARTS - place % PARTS
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        body += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(body)
            body = b""
            yield record


def runs_of_wandb(folder):
    """Return id, name, group, tags, config and summary of each run folder, the oldest first."""
    found = []
    paths = (folder / "wandb").glob("offline-run-*/*.wandb")
    for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns):
        records = list(records_of(path))
        run = next(record.run for record in records if record.HasField("run"))
        summary = {
            item.key or ".".join(item.nested_key): json.loads(item.value_json)
            for record in records
            for item in record.summary.update
        }
        config = {item.key: json.loads(item.value_json) for item in run.config.update}
        found.append((run, config, summary))
    return found


def test_mlflow_has_a_run_for_each_measured_trial_under_the_studys(store, tmp_path, capsys):
    pytest.importorskip("mlflow")
    assert track("mlflow", tmp_path / "new" / "kept") == 0
    assert "2 new, 0 changed, 0 as they were" in capsys.readouterr().err
    runs = runs_of_mlflow(tmp_path / "new" / "kept")
    assert runs.keys() == {"study", "study trial 0", "study trial 1"}
    good, oom = runs["study trial 0"], runs["study trial 1"]
    assert good.data.params == {name: str(value) for name, value in KNOBS.items()}
    assert good.data.metrics == METRICS
    said = {"study": "study", "trial": "0", "outcome": "completed", "on_front": "yes"}
    said |= {"recommended": "yes", "device": "Test CPU", "date": "2026-09-01"}
    assert said.items() <= good.data.tags.items()
    assert oom.data.metrics == {} and oom.data.tags["outcome"] == "out_of_memory"
    assert oom.data.tags["on_front"] == "no" and "900 MiB" in oom.data.tags["reason"]
    assert (good.info.status, oom.info.status) == ("FINISHED", "FAILED")
    assert good.info.end_time - good.info.start_time == 3000
    parents = {run.data.tags["mlflow.parentRunId"] for run in (good, oom)}
    assert parents == {runs["study"].info.run_id}
    assert runs["study"].data.tags["recommended_trial"] == "0"


def test_mlflow_is_told_twice_without_a_trace_and_brought_up_to_date(store, tmp_path, capsys):
    pytest.importorskip("mlflow")
    assert track("mlflow", tmp_path) == track("mlflow", tmp_path) == 0
    assert "0 new, 0 changed, 2 as they were" in capsys.readouterr().err
    before = runs_of_mlflow(tmp_path)
    tell(store, 0, cost=7.0)
    store.set_front("study", [], None)
    assert track("mlflow", tmp_path) == 0
    assert "0 new, 1 changed, 1 as they were" in capsys.readouterr().err
    after = runs_of_mlflow(tmp_path)
    assert after.keys() == before.keys()
    now = after["study trial 0"]
    assert now.info.run_id == before["study trial 0"].info.run_id
    assert now.data.metrics == {**METRICS, "cost_usd_per_million_samples": 7.0}
    assert now.data.tags["on_front"] == "no"


def test_mlflow_goes_where_its_own_variable_says(store, tmp_path, monkeypatch, capsys):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert run_command(["track", "study", "--to", "mlflow"]) == 0
    assert len(runs_of_mlflow(tmp_path)) == 3
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "mlruns"))
    assert run_command(["track", "study", "--to", "mlflow"]) == 4
    assert "error: MLflow refuses: The filesystem tracking backend" in capsys.readouterr().err


def test_a_login_is_not_shown():
    pytest.importorskip("mlflow")
    from autotune.tracking.mlflow import _shown

    assert _shown("at postgresql://me:secret@host/db, so") == "at postgresql://***@host/db, so"


def test_wandb_has_a_run_for_each_measured_trial_in_the_studys_group(store, tmp_path, capsys):
    pytest.importorskip("wandb")
    assert track("wandb", tmp_path / "kept") == 0
    assert "2 new, 0 changed, 0 as they were" in capsys.readouterr().err
    found = {run.display_name: (run, *rest) for run, *rest in runs_of_wandb(tmp_path / "kept")}
    assert found.keys() == {"study trial 0", "study trial 1"}
    run, config, summary = found["study trial 0"]
    assert (run.run_group, run.project) == ("study", "autotune")
    assert KNOBS.items() <= config.items() and config["autotune"]["device"] == "Test CPU"
    assert METRICS.items() <= summary.items()
    assert set(run.tags) == {"completed", "on_front", "recommended"}
    run, config, summary = found["study trial 1"]
    assert list(run.tags) == ["out_of_memory"] and not METRICS.keys() & summary.keys()


def test_wandb_leaves_a_run_that_is_there_and_writes_a_changed_one_anew(store, tmp_path, capsys):
    pytest.importorskip("wandb")
    assert track("wandb", tmp_path) == track("wandb", tmp_path) == 0
    assert "0 new, 0 changed, 2 as they were" in capsys.readouterr().err
    before = [run.run_id for run, *_ in runs_of_wandb(tmp_path)]
    assert len(set(before)) == 2
    tell(store, 0, cost=7.0)
    assert track("wandb", tmp_path) == 0
    assert "0 new, 1 changed, 1 as they were" in capsys.readouterr().err
    *_, (run, _, summary) = runs_of_wandb(tmp_path)
    assert run.run_id in before and summary["cost_usd_per_million_samples"] == 7.0


def test_wandb_keeps_runs_where_its_own_variable_says(store, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_DIR", "~/kept")
    monkeypatch.chdir(tmp_path)
    assert run_command(["track", "study", "--to", "wandb"]) == 0
    assert len(runs_of_wandb(tmp_path / "kept")) == 2
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize(
    ("to", "package"), [("mlflow", "mlflow-skinny"), ("wandb", "wandb")], ids=str
)
def test_a_client_that_is_missing_is_said_with_what_to_install(
    store, tmp_path, monkeypatch, capsys, to, package
):
    monkeypatch.setitem(sys.modules, to, None)
    monkeypatch.delitem(sys.modules, f"autotune.tracking.{to}", raising=False)
    assert track(to, tmp_path) == 4
    words = f"--to {to} needs {package}: run pip install 'autotune[{to}]'"
    assert words in capsys.readouterr().err


def test_what_cannot_be_tracked_is_said(store, tmp_path, monkeypatch, capsys):
    assert track("comet", tmp_path) == 2
    assert "no tracker 'comet'; known: mlflow, wandb" in capsys.readouterr().err
    store.create_study(make_study_record("empty"))
    assert run_command(["track", "empty", "--to", "mlflow"]) == 3
    assert "study 'empty' has no measured trial" in capsys.readouterr().err
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert track("wandb", tmp_path) == 2
    assert "WANDB_MODE=disabled writes nothing" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["mlflow", "wandb"])
def test_a_folder_that_cannot_be_made_is_said(store, tmp_path, capsys, to):
    pytest.importorskip(to)
    (tmp_path / "file").write_text("")
    assert track(to, tmp_path / "file" / "in") == 4
    assert "choose another --folder" in capsys.readouterr().err
