import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import closing, contextmanager
from dataclasses import replace
from wsgiref.simple_server import demo_app

import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import TrialState
from optuna_dashboard import wsgi
from sqlalchemy import event
from sqlalchemy.pool import Pool

from autotune.cli.serving import open_server
from autotune.errors import SettingsError, StoreUnreachableError, StudyNotFoundError
from autotune.objective import Quality, judge
from autotune.optimizer.dashboard import (
    READING_METHODS,
    REFUSAL,
    ReadOnlyView,
    open_for_reading,
    read_only_app,
)
from autotune.optimizer.storage import delete_optuna_study, open_storage
from autotune.optimizer.study import OptunaStudy
from autotune.records import Objective
from autotune.store.sql import SqlStore
from tests.factories import (
    MIB,
    make_environment,
    make_measurement,
    make_oom,
    make_rates,
    make_study_record,
    make_timing,
)
from trials.measurement import Direction

WRITE_ROUTES = [
    (route.method, re.sub("<[^>]*>", "1", route.rule))
    for route in wsgi(InMemoryStorage()).routes
    if route.method not in READING_METHODS
]
WRITES = sorted(n for n in BaseStorage.__abstractmethods__ if not n.startswith("get_"))
FAST, SLOW = (make_measurement(timing=make_timing(seconds)) for seconds in (0.2, 0.4))


def tell_trials(url, *measurements, name="study", objectives=tuple(Objective)):
    """Make a study of these trials. Told before any other, an infeasible one has values of 0."""
    spec = replace(make_study_record(name).spec, objectives=objectives)
    configs = spec.space.configs(make_environment().device_facts())
    study = OptunaStudy(open_storage(url), spec, configs, Direction.MINIMIZE)
    for measurement in measurements:
        number, config, _ = study.ask()
        verdict = judge(
            measurement,
            budget_bytes=600 * MIB,
            rates=make_rates(),
            quality=Quality(value=2.5, half_width=0.1),
        )
        notes = {"outcome": str(measurement.outcome), "config": str(config)}
        study.tell(number, verdict, [], notes | {"reason": measurement.reason})


@contextmanager
def served(url):
    with open_server(read_only_app(url), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def fetch(address, method="GET", body=None):
    request = urllib.request.Request(address, data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def shown_study(address, study_id=1):
    return json.loads(fetch(f"{address}/api/studies/{study_id}")[1])


def rows_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


@pytest.fixture(scope="module", autouse=True)
def closed_connections():
    """Close what Optuna leaves to the garbage collector, which warns."""
    opened = []

    def keep(connection, record):
        opened.append(connection)

    event.listen(Pool, "connect", keep)
    yield
    event.remove(Pool, "connect", keep)
    for connection in opened:
        connection.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "studies.db"


@pytest.fixture
def url(path):
    return f"sqlite:///{path}"


@pytest.fixture(scope="module")
def path_of_served(tmp_path_factory):
    return tmp_path_factory.mktemp("served") / "studies.db"


@pytest.fixture(scope="module")
def url_of_served(path_of_served):
    url = f"sqlite:///{path_of_served}"
    tell_trials(url, make_oom(), SLOW, FAST)
    return url


@pytest.fixture(scope="module")
def address(url_of_served):
    with served(url_of_served) as address:
        yield address


@pytest.fixture
def view(url_of_served):
    return ReadOnlyView(open_for_reading(url_of_served))


def test_the_page_is_served(address):
    status, page = fetch(f"{address}/dashboard")
    assert status == 200
    assert "<html" in page


@pytest.mark.parametrize(("method", "route"), WRITE_ROUTES)
def test_every_write_route_is_refused_and_changes_nothing(address, path_of_served, method, route):
    before = rows_of(path_of_served)
    status, _ = fetch(address + route, method, body=b'{"study_name": "new"}')
    assert status == 403
    assert rows_of(path_of_served) == before


def test_a_refusal_is_one_line_that_says_why(address):
    _, text = fetch(f"{address}/api/studies/1", "DELETE")
    assert text == f"{REFUSAL}\n"


@pytest.mark.parametrize("method", WRITES)
def test_the_view_refuses_every_write_of_a_storage(method):
    with pytest.raises(PermissionError, match="read-only"):
        getattr(ReadOnlyView(InMemoryStorage()), method)()


def test_a_sqlite_file_is_opened_so_that_it_cannot_be_written(url_of_served):
    with pytest.raises(StorageInternalError):
        open_for_reading(url_of_served).set_study_user_attr(1, "key", "value")


def test_a_server_is_connected_to_so_that_it_cannot_be_written(postgres_schema):
    tell_trials(postgres_schema, FAST)
    with pytest.raises(StorageInternalError):
        open_for_reading(postgres_schema).set_study_user_attr(1, "key", "value")


@pytest.mark.parametrize("num_objectives", [1, 2, 3])
def test_an_infeasible_trial_is_never_among_the_best(url, num_objectives):
    tell_trials(url, make_oom(), SLOW, FAST, objectives=tuple(Objective)[:num_objectives])
    with served(url) as address:
        best = shown_study(address)["best_trials"]
    assert [trial["number"] for trial in best] == [2]


def test_an_infeasible_trial_is_shown_as_pruned_and_without_its_stand_in_values(address):
    infeasible = shown_study(address)["trials"][0]
    assert infeasible["state"] == "Pruned"
    assert "values" not in infeasible


def test_the_trial_beneath_stays_as_it_was_told(url_of_served):
    storage = InMemoryStorage()
    study_id = storage.create_new_study([StudyDirection.MINIMIZE])
    told = open_for_reading(url_of_served).get_all_trials(1)[0]
    storage.create_new_trial(study_id, told)
    ReadOnlyView(storage).get_all_trials(study_id, deepcopy=False)
    assert storage.get_all_trials(study_id)[0].state == TrialState.COMPLETE


def test_trials_are_chosen_by_the_state_in_which_they_are_shown(view):
    (pruned,) = view.get_all_trials(1, states=(TrialState.PRUNED,))
    assert pruned.number == 0


def test_a_single_trial_is_shown_like_all_of_them(view):
    assert view.get_trial(1) == view.get_all_trials(1)[0]


def test_constraints_are_shown_in_the_order_of_their_names(address):
    infeasible = shown_study(address)["trials"][0]
    assert infeasible["constraints"] == [0.0, 0.5, 0.0, 0.0]  # host_memory, memory, quality, valid


def test_a_trial_says_what_came_of_it(address):
    attributes = shown_study(address)["trials"][0]["user_attrs"]
    told = {attribute["key"]: attribute["value"] for attribute in attributes}
    assert told["outcome"] == "out_of_memory"
    assert "tried to allocate" in told["reason"]
    assert "batch" in told["config"]


def test_a_study_is_shown_while_its_driver_writes(path_of_served, address):
    with closing(sqlite3.connect(path_of_served, isolation_level=None)) as driver:
        driver.execute("BEGIN IMMEDIATE")
        driver.execute("UPDATE studies SET study_name = 'renamed'")
        shown = shown_study(address)
        driver.execute("ROLLBACK")
    assert shown["name"] == "study"


def test_a_driver_never_waits_for_the_dashboard(path_of_served, address):
    shown_study(address)
    with closing(sqlite3.connect(path_of_served, isolation_level=None, timeout=0)) as driver:
        driver.execute("BEGIN IMMEDIATE")
        driver.execute("UPDATE studies SET study_name = study_name")
        driver.execute("COMMIT")


def test_a_study_under_a_deleted_ones_number_is_shown_with_its_own_trials(url):
    tell_trials(url, FAST, SLOW, name="old")
    view = ReadOnlyView(open_for_reading(url))
    view.get_all_trials(1)
    delete_optuna_study(open_storage(url), "old")
    tell_trials(url, make_oom(), name="new")
    assert view.get_study_name_from_id(1) == "new"
    assert [trial.state for trial in view.get_all_trials(1)] == [TrialState.PRUNED]


def test_a_store_that_is_not_there_is_named_and_not_made(path, url):
    with pytest.raises(StoreUnreachableError, match=f"no store at {path}; .* autotune run"):
        read_only_app(url)
    assert not path.exists()


def test_a_store_without_a_study_says_how_to_begin_one(url):
    SqlStore.open(url).close()
    with pytest.raises(StudyNotFoundError, match="autotune run"):
        read_only_app(url)


def test_a_file_that_is_no_database_is_refused(path, url):
    path.write_text("something else entirely, and long enough to be looked at as a header")
    with pytest.raises(StoreUnreachableError, match="not a database"):
        read_only_app(url)


def test_a_file_with_an_awkward_name_is_found(tmp_path):
    url = f"sqlite:///{tmp_path}/a {{b}} %25 #c.db"
    tell_trials(url, FAST)
    assert len(open_for_reading(url).get_all_trials(1)) == 1


def test_only_this_machine_can_connect():
    with open_server(demo_app, 0) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_named_with_the_remedy():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port} .* give another with --port"):
            open_server(demo_app, port)


def test_a_port_that_cannot_be_is_refused():
    with pytest.raises(SettingsError, match="port 70000 cannot be used"):
        open_server(demo_app, 70000)


def test_ctrl_c_ends_the_dashboard_which_has_said_nothing_but_its_address(url_of_served):
    flags = ["--port", "0", "--store", url_of_served]
    command = [sys.executable, "-m", "autotune.cli", "dashboard", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        told = process.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+", told)[0]
        assert fetch(f"{address}/api/studies")[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
    assert process.returncode == 0
