import json
import os
import tempfile

import pytest

from autotune.errors import WorkersError
from autotune.workers import WorkersRequest, open_workers
from autotune.workers.local import LocalWorkers
from autotune.workers.slots import SlotPlan
from tests.autotune.scripted import RUNNER
from tests.autotune.workers_contract import WorkersContract
from tests.autotune.workers_processes import (
    descendants,
    driver,
    in_terminal,
    lives,
    read_pids,
    run_driver,
    spec,
    wait_for,
)


@pytest.fixture(scope="module")
def workers():
    workers = open_workers(WorkersRequest(runner=RUNNER), is_local=True)
    yield workers
    workers.close()


class TestLocalWorkers(WorkersContract):
    pass


def test_slots_that_differ_are_refused_with_how():
    plans = [SlotPlan(name=f"cpu-{n}", device="cpu", num_threads=n) for n in (1, 2)]
    workers = LocalWorkers(plans, WorkersRequest(runner=RUNNER))
    with pytest.raises(WorkersError, match=r"cpu-1 and cpu-2 .* num_threads: 1 / 2"):
        workers.environment()
    workers.close()


def test_a_slot_that_cannot_run_trials_is_refused_with_why():
    plan = SlotPlan(name="cpu-0", device="cpu", num_threads=1)
    workers = LocalWorkers([plan], WorkersRequest(runner="tests.autotune.scripted:run_nowhere"))
    with pytest.raises(WorkersError, match="slot cpu-0 cannot run trials: scripted fault"):
        workers.environment()
    workers.close()


def test_closed_workers_take_no_trial():
    workers = open_workers(WorkersRequest(runner=RUNNER), is_local=True)
    workers.close()
    with pytest.raises(WorkersError):
        workers.submit(spec("done"))


def test_nothing_is_left_after_closing(tmp_path):
    left, _, folders = json.loads(run_driver("closed", "local", str(tmp_path / "pids")))
    assert left == [] and folders == []


def test_all_ends_with_a_killed_driver(tmp_path):
    # A place for what Python leaves when it is killed, near enough to the root for sockets.
    with (
        tempfile.TemporaryDirectory() as place,
        driver(
            *("hold", "local", str(tmp_path / "pids")), env={**os.environ, "TMPDIR": place}
        ) as process,
    ):
        pids = read_pids(tmp_path / "pids")
        started = [*descendants(process.pid), *pids]
        process.kill()
        assert wait_for(lambda: not any(map(lives, started)), seconds=10)


def test_an_interrupt_reaches_the_driver_alone():
    num_interrupts, outcomes = in_terminal("interrupted", "local")
    # A process that is busy takes several presses for one.
    assert num_interrupts >= 1 and outcomes == ["completed", "completed"]


@pytest.mark.parametrize("error", ["ImportError", "RuntimeError"])
def test_a_helper_that_cannot_preload_is_told(tmp_path, error):
    (tmp_path / "torch.py").write_text(f"raise {error}('scripted')")
    found = run_driver("first_trial", "local", PYTHONPATH=str(tmp_path))
    environment_error, trial = found.splitlines()
    assert "import trials.preload" in environment_error
    assert "import trials.preload" in trial
