"""What the driver tells of a program on a GPU. CPU is tested with real programs."""

import os
import types

import pynvml
import pytest

from trials.program_memory import GpuMemory, ResidentMemory, program_memory


@pytest.fixture
def driver(monkeypatch):
    """A driver that sees 100 bytes in use, and whichever processes a test sets."""
    seen = types.SimpleNamespace(used=100, processes=[])
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: seen)
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda handle: seen.processes
    )
    return seen


def user(pid, held):
    return types.SimpleNamespace(pid=pid, usedGpuMemory=held)


def test_a_program_holds_what_the_driver_says_of_its_processes(driver):
    memory = program_memory(os.getpid(), "cuda:0")
    assert isinstance(memory, GpuMemory)
    for held in (70, 50):
        driver.processes = [user(os.getpid(), held), user(1, 900)]
        memory.look()
    assert memory.peak_bytes == 70


@pytest.mark.parametrize("processes", [[], [user(os.getpid(), None)], [user(1, 900)]], ids=str)
def test_where_processes_are_hidden_what_came_on_top_counts(driver, processes):
    memory = GpuMemory(0)
    driver.used, driver.processes = 130, processes
    memory.look()
    assert memory.peak_bytes == 30


def test_a_program_that_is_gone_is_no_error():
    memory = program_memory(2**22 + 1, "cpu")
    assert isinstance(memory, ResidentMemory)
    memory.begin(None, is_ready=True)
    memory.look()
