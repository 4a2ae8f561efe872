import multiprocessing
import time

import pytest

from trials.devices import GpuGuard, physical_index
from trials.errors import TrialSetupError

GIB = 2**30


def guard(used, patience=0.3):
    return GpuGuard(
        name="test-gpu", used_bytes=used, total_bytes=100 * GIB, patience_seconds=patience
    )


@pytest.fixture(autouse=True)
def own_lock_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_dirty_device_is_waited_for_and_then_refused():
    started = time.monotonic()
    with pytest.raises(TrialSetupError, match="device dirty: 78% of GPU"):
        guard(lambda: 78 * GIB).acquire()
    assert time.monotonic() - started >= 0.3


def test_a_device_that_becomes_idle_in_time_is_taken():
    readings = iter([78 * GIB, 78 * GIB, 0])
    patient = guard(lambda: next(readings), patience=5.0)
    patient.acquire()
    patient.release()
    assert next(readings, None) is None


def hold(folder, ready, release):
    import tempfile

    tempfile.tempdir = folder
    held = guard(lambda: 0)
    held.acquire()
    ready.set()
    release.wait(20)


def test_a_gpu_is_one_trials_until_its_process_ends(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(str(tmp_path), ready, release))
    holder.start()
    assert ready.wait(20)
    with pytest.raises(TrialSetupError, match="taken by another trial"):
        guard(lambda: 0).acquire()
    holder.kill()
    holder.join()
    second = guard(lambda: 0)
    second.acquire()
    second.release()


def test_memory_of_others_is_told_from_ones_own():
    used = [GIB]
    watched = guard(lambda: used[0])
    watched.acquire()
    watched.release()
    used[0] = 11 * GIB
    assert watched.foreign_bytes(own_bytes=10 * GIB) == 0
    assert watched.foreign_bytes(own_bytes=6 * GIB) == 4 * GIB


@pytest.mark.parametrize(("visible", "physical"), [(None, 1), ("", 1), ("3,5", 5)])
def test_torchs_index_is_mapped_to_the_drivers(visible, physical):
    assert physical_index(1, visible) == physical


def test_an_index_that_is_not_visible_is_refused():
    with pytest.raises(TrialSetupError, match="CUDA_VISIBLE_DEVICES='3'"):
        physical_index(1, "3")
