"""The door to MLflow: a parent run for a study, and a run under it for each trial."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from autotune.errors import TrackingError
from autotune.tracking.base import Done, Recorded, Standing, TrackedRun, TrackedStudy, Tracker

EXPERIMENT = "autotune"
"""Unless ``MLFLOW_EXPERIMENT_NAME`` names another."""
RUN_ID, STUDY_ID = "autotune_id", "autotune_study_id"
"""Tags by which runs are found again."""
PAGE = 1000
STATUS = {
    Standing.RUNNING: "RUNNING",
    Standing.DONE: "FINISHED",
    Standing.FAILED: "FAILED",
    Standing.STOPPED: "KILLED",
}


def open_tracker(folder: Path | None) -> Tracker:
    """Return a tracker to a database in a folder, or where ``MLFLOW_TRACKING_URI`` says.

    Raises:
        TrackingError: It cannot be opened.
    """
    with _faults():
        if folder is None:
            return _Mlflow(MlflowClient(), artifacts=None)
        home = folder.expanduser().absolute()
        home.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(tracking_uri=f"sqlite:///{home / 'mlflow.db'}")
        return _Mlflow(client, artifacts=(home / "artifacts").as_uri())


class _Mlflow:
    """See Tracker."""

    def __init__(self, client: MlflowClient, artifacts: str | None) -> None:
        self._client = client
        self._artifacts = artifacts

    def record(self, study: TrackedStudy) -> Recorded:
        """See Tracker."""
        with _faults():
            experiment = self._experiment()
            known = self._known(experiment, study.run.id)
            parent, _ = self._put(experiment, study, study.run, known, {})
            below = {MLFLOW_PARENT_RUN_ID: parent}
            done = [self._put(experiment, study, t, known, below)[1] for t in study.trials]
        place = f"{_shown(self._client.tracking_uri)}, experiment {_experiment_name()!r}"
        return Recorded.of(place, done)

    def _experiment(self) -> str:
        name = _experiment_name()
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            identity: str = found.experiment_id
            return identity
        return str(self._client.create_experiment(name, artifact_location=self._artifacts))

    def _known(self, experiment: str, study: str) -> dict[str, Run]:
        """Return the runs of a study by the ids of what they are of."""
        known: dict[str, Run] = {}
        token: str | None = None
        while True:
            page = self._client.search_runs(
                [experiment], f"tags.{STUDY_ID} = '{study}'", max_results=PAGE, page_token=token
            )
            known |= {run.data.tags[RUN_ID]: run for run in page}
            token = page.token
            if not token:
                return known

    def _put(
        self,
        experiment: str,
        study: TrackedStudy,
        wanted: TrackedRun,
        known: dict[str, Run],
        tags: dict[str, str],
    ) -> tuple[str, Done]:
        """Make a run what it should be, and return its id in MLflow and what was done."""
        tags = {**wanted.tags, **tags, RUN_ID: wanted.id, STUDY_ID: study.run.id}
        found = known.get(wanted.id)
        run = found or self._client.create_run(
            experiment, start_time=study.begun_ms, tags=tags, run_name=wanted.name
        )
        is_changed = self._bring_up_to_date(run, wanted, tags)
        if run.info.status != STATUS[wanted.standing]:
            is_changed = True
            self._client.update_run(run.info.run_id, status=STATUS[wanted.standing])
        if is_changed and wanted.standing != Standing.RUNNING:
            self._client.set_terminated(
                run.info.run_id,
                status=STATUS[wanted.standing],
                end_time=study.begun_ms + int(wanted.seconds * 1000),
            )
        done = Done.NEW if found is None else Done.CHANGED if is_changed else Done.SAME
        return run.info.run_id, done

    def _bring_up_to_date(self, run: Run, wanted: TrackedRun, tags: dict[str, str]) -> bool:
        """Write what a run has otherwise or not at all, and return whether there was any."""
        now_ms, has = int(time.time() * 1000), run.data
        metrics = [
            Metric(name, value, now_ms, 0)
            for name, value in wanted.metrics.items()
            if has.metrics.get(name) != value
        ]
        params = [Param(k, str(v)) for k, v in wanted.params.items() if k not in has.params]
        changed = [RunTag(k, v) for k, v in tags.items() if has.tags.get(k) != v]
        if not (metrics or params or changed):
            return False
        self._client.log_batch(run.info.run_id, metrics=metrics, params=params, tags=changed)
        return True


def _shown(text: str) -> str:
    """Return a text without the login of any address in it."""
    return re.sub(r"//[^/@\s]*@", "//***@", text)


def _experiment_name() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT


@contextmanager
def _faults() -> Iterator[None]:
    """Tell MLflow's faults, and a folder that cannot be made, as ours."""
    try:
        yield
    except MlflowException as error:
        raise TrackingError(f"MLflow refuses: {_shown(error.message)}") from error
    except OSError as error:
        raise TrackingError(f"no folder for MLflow: {error}; choose another --folder") from error
