"""Optuna's dashboard over a store, which it can look at and not change.

As it comes, optuna-dashboard lets anyone who reaches it delete studies and tell trials, and
counts out-of-memory trials among the best.
"""

import copy
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from optuna_dashboard import wsgi

from autotune.errors import StoreUnreachableError, StudyNotFoundError
from autotune.store.engine import engine_options, normalise_url, open_engine, shown_url
from autotune.store.faults import database_faults

FIRST_TABLE = "version_info"
"""The first of Optuna's tables that is looked at, named in the fault when there is none."""
READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
REFUSAL = "this dashboard is read-only; studies change through the autotune command alone"


def read_only_app(store_url: str) -> WSGIApplication:
    """Return the dashboard of a store; raises what ``open_for_reading`` does."""
    return _refusing_writes(wsgi(ReadOnlyView(open_for_reading(store_url))))


class ReadOnlyView(BaseStorage):
    """A storage as the dashboard should show it: unchangeable, and with the infeasible marked.

    The dashboard knows neither Optuna's named constraints nor that a best trial must keep them.
    Trials that violate one are shown as pruned, which it never takes for the best, and without
    the values they were told with: those only stand in for measurements.
    """

    def __init__(self, storage: BaseStorage) -> None:
        """Look at a storage."""
        self._storage = storage

    def get_study_id_from_name(self, study_name: str) -> int:
        """See BaseStorage."""
        return self._storage.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        """See BaseStorage."""
        return self._storage.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """See BaseStorage."""
        return self._storage.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """See BaseStorage."""
        return self._storage.get_study_user_attrs(study_id)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """See BaseStorage."""
        return self._storage.get_study_system_attrs(study_id)

    def get_all_studies(self) -> list[Any]:
        """See BaseStorage."""
        return self._storage.get_all_studies()

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return the trial as it is shown; see BaseStorage."""
        return _shown(self._storage.get_trial(trial_id))

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return the trials as they are shown, chosen by the states shown; see BaseStorage."""
        trials = [_shown(trial) for trial in self._storage.get_all_trials(study_id, deepcopy)]
        return [trial for trial in trials if states is None or trial.state in states]

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise PermissionError(REFUSAL)

    create_new_study = _refuse
    delete_study = _refuse
    set_study_user_attr = _refuse
    set_study_system_attr = _refuse
    create_new_trial = _refuse
    set_trial_param = _refuse
    set_trial_state_values = _refuse
    set_trial_intermediate_value = _refuse
    set_trial_user_attr = _refuse
    set_trial_system_attr = _refuse


def open_for_reading(store_url: str) -> BaseStorage:
    """Return Optuna's storage of a store that exists, on connections that cannot write.

    It caches nothing, because SQLite gives the number of a deleted study to the next.

    Raises:
        SettingsError: The address is none of a store.
        StoreUnreachableError: No such file, or a database that cannot be used.
        StudyNotFoundError: The store has never had a study.
    """
    url = normalise_url(store_url)
    address, options = url, engine_options(url)
    if url.get_backend_name() == "sqlite":
        query = {"mode": "ro", "uri": "true"}
        address = url.set(database=_file_uri(url.database), query=query)
    else:
        open_engine(url).dispose()  # refuses a server that there is no driver for
        options["execution_options"] = {"postgresql_readonly": True}
    with database_faults(url):
        try:
            text = address.render_as_string(hide_password=False)
            return RDBStorage(text, options, skip_table_creation=True)
        except StorageInternalError as error:
            fault = error.__cause__
            assert fault is not None
            if FIRST_TABLE in str(fault.__cause__):
                raise StudyNotFoundError(
                    f"no study in the store {shown_url(url)} yet; begin one with autotune run"
                ) from None
            raise fault from None


def _shown(trial: FrozenTrial) -> FrozenTrial:
    """Return a copy with the constraints as the list that the dashboard looks for."""
    constraints = [value for _, value in sorted(trial.constraints.items())]
    shown = copy.copy(trial)
    shown.system_attrs = {**trial.system_attrs, "constraints": constraints}
    if trial.state == TrialState.COMPLETE and any(value > 0 for value in constraints):
        shown.state, shown.values = TrialState.PRUNED, None
    return shown


def _file_uri(path: str | None) -> str:
    assert path is not None
    if not Path(path).is_file():
        raise StoreUnreachableError(
            f"no store at {path}; name another with --store, or make this one with autotune run"
        )
    return f"file:{quote(path)}"


def _refusing_writes(app: WSGIApplication) -> WSGIApplication:
    def filtered(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in READING_METHODS:
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{REFUSAL}\n".encode()]

    return filtered
