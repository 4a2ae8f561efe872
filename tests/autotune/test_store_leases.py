import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from autotune.records import Owner
from autotune.store.leases import is_dead, this_process


@pytest.fixture
def child():
    """A process that ends when its standard input does, and its owner."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started_at = psutil.Process(process.pid).create_time()
    yield process, replace(this_process(), pid=process.pid, started_at=started_at)
    process.communicate()


def test_this_process_is_alive():
    assert not is_dead(this_process())


def test_a_running_process_is_alive(child):
    assert not is_dead(child[1])


def test_a_killed_process_is_dead_before_its_parent_has_noticed(child):
    process, owner = child
    process.kill()
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert is_dead(owner)


def test_a_process_that_is_gone_is_dead(child):
    process, owner = child
    process.kill()
    process.wait()
    assert is_dead(owner)


def test_a_later_process_of_the_same_number_is_another():
    owner = this_process()
    assert is_dead(replace(owner, started_at=owner.started_at - 60))


def test_a_clock_set_meanwhile_kills_nobody():
    owner = this_process()
    assert not is_dead(replace(owner, started_at=owner.started_at + 1))


def test_of_another_machine_nothing_is_known():
    assert not is_dead(Owner(host="elsewhere", pid=2**22, started_at=0.0))
