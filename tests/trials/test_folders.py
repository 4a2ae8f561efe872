import fcntl
import os
import stat
import subprocess

import pytest

from trials.folders import PrivateFolder, short_temporary_folder


@pytest.fixture
def dead_pid():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_folder_is_for_its_user_alone_and_goes_when_told(tmp_path):
    folder = PrivateFolder("kind-", tmp_path)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert folder.path.name.startswith(f"kind-{os.getpid()}-")
    folder.remove()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_folders_of_dead_owners_are_removed(tmp_path, dead_pid):
    (tmp_path / f"kind-{dead_pid}-x" / "inside").mkdir(parents=True)
    folder = PrivateFolder("kind-", tmp_path)
    assert list(tmp_path.iterdir()) == [folder.path]
    folder.remove()


def test_folders_that_may_be_in_use_are_left(tmp_path, dead_pid):
    names = [f"kind-{os.getpid()}-x", "kind-x", f"other-{dead_pid}-x"]
    for name in names:
        (tmp_path / name).mkdir()
    PrivateFolder("kind-", tmp_path).remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_locked_folder_is_left_though_its_owner_is_out_of_sight(tmp_path, dead_pid):
    path = tmp_path / f"kind-{dead_pid}-x"
    path.mkdir()
    lock = os.open(path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    PrivateFolder("kind-", tmp_path).remove()
    assert path.exists()
    os.close(lock)


def test_a_folder_for_sockets_is_close_to_the_root():
    assert len(str(short_temporary_folder())) <= 10
