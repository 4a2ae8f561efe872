import json
import os
import signal
import socket
import stat
import time

import psutil
import pytest

from autotune.errors import WorkersError
from autotune.workers import WorkersRequest, open_workers, ray_bootstrap
from autotune.workers.janitor import CLUSTER_VARIABLE
from autotune.workers.slots import plan_slots, this_machine
from tests.autotune.scripted import RUNNER
from tests.autotune.workers_contract import WorkersContract
from tests.autotune.workers_processes import (
    collect,
    collect_one,
    descendants,
    driver,
    folders_of,
    in_terminal,
    lives,
    read_pids,
    run_driver,
    spec,
    wait_for,
)
from trials.processes import tagged

pytestmark = pytest.mark.ray


def open_impatient(plans, runner=RUNNER):
    """Open Ray workers that soon lose patience with a slot."""
    cluster = ray_bootstrap.OwnCluster(plans)
    from autotune.workers.ray_slots import Patience, RayWorkers

    try:
        patience = Patience(silence_seconds=3, end_seconds=5)
        return RayWorkers(cluster, plans, WorkersRequest(runner=runner), patience)
    except WorkersError:
        cluster.close()
        raise


@pytest.fixture(scope="module")
def workers():
    workers = open_impatient(plan_slots("cpu", None, this_machine()))
    yield workers
    workers.close()


class TestRayWorkers(WorkersContract):
    def test_a_slot_killed_with_its_trial_is_lost_and_replaced(self, workers, tmp_path, capfd):
        trial = spec(f"stray-and-hang={tmp_path / 'pids'}")
        slot = workers.submit(trial)
        pids = read_pids(tmp_path / "pids")
        os.kill(actor_of(pids[0]), signal.SIGKILL)
        finished = collect_one(workers)
        assert (finished.trial_id, finished.slot) == (trial.trial_id, slot)
        assert finished.measurement is None and "ActorDiedError" in finished.lost_reason
        assert "\n" not in finished.lost_reason
        assert wait_for(lambda: not any(map(lives, pids)), seconds=5)
        await_free(workers, 2)
        printed = capfd.readouterr()
        assert printed.out + printed.err == ""

    def test_a_slot_killed_while_idle_is_lost_with_the_next_trial(self, workers, tmp_path):
        workers.submit(spec(f"stray={tmp_path / 'pids'}"))
        collect_one(workers)
        actors = [p for p in cluster_processes(workers) if "SlotActor" in " ".join(p.cmdline())]
        for actor in actors:
            actor.kill()
        for _ in actors:
            workers.submit(spec("done"))
        assert [one.measurement for one in collect(workers, 2)] == [None, None]
        await_free(workers, 2)

    def test_a_slot_that_gives_no_sign_is_killed_and_replaced(self, workers, tmp_path):
        workers.submit(spec(f"stray-and-hang={tmp_path / 'pids'}", deadline_seconds=0.2))
        actor = actor_of(read_pids(tmp_path / "pids")[0])
        os.kill(actor, signal.SIGSTOP)
        assert "no sign of slot cpu-0" in collect_one(workers).lost_reason
        assert not lives(actor)
        await_free(workers, 2)

    def test_each_slot_keeps_its_devices_in_a_placement_group(self, workers):
        from ray.util import placement_group_table

        groups = [g for g in placement_group_table().values() if g["state"] == "CREATED"]
        assert [group["strategy"] for group in groups] == ["STRICT_PACK"] * workers.num_slots
        assert all(len(group["bundles"]) == 1 for group in groups)

    def test_the_token_is_for_this_user_alone(self, workers):
        token = workers._cluster.folder / ray_bootstrap.TOKEN_FILE
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700

    def test_nothing_listens_beyond_this_machine(self, workers):
        processes = [psutil.Process(), *cluster_processes(workers)]
        listening = {
            connection.laddr.ip.removeprefix("::ffff:")
            for process in processes
            for connection in process.net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        assert len(processes) > 5 and listening == {"127.0.0.1"}

    def test_a_second_cluster_at_once_is_refused(self, workers):
        with pytest.raises(WorkersError, match="connected to a Ray cluster already"):
            open_workers(WorkersRequest(runner=RUNNER), is_local=False)


def cluster_processes(workers):
    folder = str(workers._cluster.folder)
    return tagged(CLUSTER_VARIABLE, folder)


def actor_of(child):
    """The process of the slot that runs a trial."""
    return psutil.Process(child).parent().ppid()


def await_free(workers, count):
    assert wait_for(lambda: workers.collect(0.1) == [] and workers.num_free == count)


def test_nothing_is_left_after_closing(tmp_path):
    left, is_environment_kept, folders = json.loads(
        run_driver("closed", "ray", str(tmp_path / "pids"))
    )
    assert left == [] and folders == []
    assert is_environment_kept


def test_all_ends_with_a_killed_driver(tmp_path):
    with driver("hold", "ray", str(tmp_path / "pids")) as process:
        pids = read_pids(tmp_path / "pids")
        started = [*descendants(process.pid), *pids]
        process.kill()
        assert wait_for(lambda: not any(map(lives, started)), seconds=10)
        assert folders_of(process.pid) == []


def test_an_interrupt_reaches_the_driver_alone():
    num_interrupts, outcomes = in_terminal("interrupted", "ray")
    # A process that is busy takes several presses for one.
    assert num_interrupts >= 1 and outcomes == ["completed", "completed"]


def test_ray_imported_before_its_variables_are_set_is_refused():
    assert "cannot be again for a cluster of this program's own" in run_driver(
        "imported_before", "ray"
    )


def test_a_slot_sees_its_own_gpus_alone():
    seen = json.loads(run_driver("gpu_slots", "ray", CUDA_VISIBLE_DEVICES="3"))
    assert seen == {"cpu-0": "''", "cuda-3": "'3'"}


def test_a_slot_that_does_not_start_is_refused_with_what_the_cluster_has():
    error = run_driver("refused", "ray")
    assert error.startswith("slot cpu-0 does not start: slot cpu-0 cannot run trials: scripted")
    assert "the cluster has 1 CPUs, 0 of them free and 0 GPUs" in error


@pytest.mark.slow
def test_workers_whose_last_slot_cannot_be_replaced_say_so(tmp_path):
    printed = run_driver(
        "irreplaceable",
        "ray",
        str(tmp_path / "pids"),
        SCRIPTED_DEVICE_FILE=str(tmp_path / "device"),
    )
    lost, *errors = printed.splitlines()
    assert "ActorDiedError" in lost
    assert len(errors) == 3 and len(set(errors)) == 1
    assert errors[0].startswith("no slot is left: ") and "device_name: Scripted / Oth" in errors[0]


@pytest.mark.slow
def test_workers_whose_cluster_has_died_say_so(tmp_path):
    lost, error = run_driver("beheaded", "ray").splitlines()
    assert "ActorDiedError" in lost and error.startswith("no slot is left: ")


def test_a_running_cluster_is_joined_with_its_login_and_left_as_it_was():
    with driver("cluster", "ray") as process:
        address, token = json.loads(process.stdout.readline())
        login = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": token,
            # Of a cluster that listens on loopback alone, which no other machine could join.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }
        refusal, reason, slots, folders = json.loads(run_driver("joined", "ray", address, **login))
        assert "asked for 99 slots, but there are 2 CPUs in the cluster" in refusal
        assert reason.split() == ["cpu", "1"]
        assert slots == ["127.0.0.1/cpu-0", "127.0.0.1/cpu-1"]
        assert folders == []
        assert process.poll() is None


def test_a_cluster_that_does_not_answer_is_refused_soon():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(WorkersError, match=f"nothing answers at Ray address 127.0.0.1:{port}"):
        open_workers(WorkersRequest(ray_address=f"127.0.0.1:{port}"), is_local=False)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("address", ["auto", "localhost", "ray://localhost:10001", "host:port"])
def test_an_address_without_a_port_is_refused(address):
    with pytest.raises(WorkersError, match=r"give HOST:PORT"):
        open_workers(WorkersRequest(ray_address=address), is_local=False)
