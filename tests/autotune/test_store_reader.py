import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import StoreSchemaError, StoreUnreachableError
from autotune.records import StudyState
from autotune.store.leases import this_process
from autotune.store.reader import StoreReader
from autotune.store.sql import SqlStore
from tests.factories import make_study_record, make_trial

NOBODY = 65534
GONE = replace(this_process(), started_at=this_process().started_at - 3600)
WRITER = """
import sys
from autotune.store.sql import SqlStore
from tests.factories import make_study_record
store = SqlStore.open(sys.argv[1])
store.create_study(make_study_record("later"))
print(flush=True)
input()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("postgres_schema")
    return f"sqlite:///{tmp_path}/studies.db"


@pytest.fixture
def store(url):
    """A store with one study, which nobody runs."""
    store = SqlStore.open(url)
    store.create_study(make_study_record())
    yield store
    store.close()


@pytest.fixture
def kept():
    """A SQLite store in a folder of its own, which this process, root or not, may not write."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "studies.db"
        store = SqlStore.open(str(path))
        store.create_study(make_study_record())
        store.close()
        path.chmod(0o444)
        Path(name).chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(NOBODY)
        yield path
        os.seteuid(user)


def names(url):
    with closing(StoreReader.open(str(url))) as reader:
        return [study.name for study in reader.studies()]


def test_what_is_not_there_is_not_made(tmp_path):
    with pytest.raises(StoreUnreachableError, match=r"no store at .*/new/a\.db; autotune run"):
        StoreReader.open(f"{tmp_path}/new/a.db")
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_a_store_gets_no_tables(url, tmp_path):
    (tmp_path / "studies.db").touch()
    for _ in range(2):
        with pytest.raises(StoreUnreachableError, match=r"no store at .*; autotune run makes"):
            StoreReader.open(url)
    assert (tmp_path / "studies.db").read_bytes() == b""


def test_a_store_is_read_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "studies.db"
    store = SqlStore.open(str(path))
    store.create_study(make_study_record())
    store.close()
    assert names(path) == ["study"]
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_can_be_written_through_a_reader(url, store):
    with closing(StoreReader.open(url)) as reader, pytest.raises(StoreUnreachableError):
        reader.open_trial(make_trial(0))
    assert store.trials("study") == []


def test_a_store_in_a_folder_that_cannot_be_written_is_read(kept):
    assert names(kept) == ["study"]
    assert list(kept.parent.iterdir()) == [kept]


def test_a_folder_that_may_not_be_entered_has_no_store(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o000)
    user = os.geteuid()
    os.seteuid(NOBODY if user == 0 else user)
    try:
        with pytest.raises(StoreUnreachableError, match="no store at"):
            StoreReader.open(f"{tmp_path}/closed/studies.db")
    finally:
        os.seteuid(user)


def test_what_a_driver_wrote_last_is_read_while_it_runs(tmp_path):
    path = tmp_path / "studies.db"
    command = [sys.executable, "-c", WRITER, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], **pipes) as writer:
        writer.stdout.readline()
        assert names(path) == ["later"]
        writer.communicate(b"\n")


def test_a_store_of_a_newer_program_is_refused(tmp_path):
    path = tmp_path / "studies.db"
    SqlStore.open(str(path)).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE autotune_alembic_version SET version_num = 'v9999'")
    with pytest.raises(StoreSchemaError, match="update autotune"):
        StoreReader.open(str(path))


def test_a_damaged_store_is_told(tmp_path):
    path = tmp_path / "studies.db"
    SqlStore.open(str(path)).close()
    shutil.copy(path, tmp_path / "half.db")
    (tmp_path / "half.db").write_bytes(path.read_bytes()[:8192])
    with pytest.raises(StoreUnreachableError, match=r"half\.db.*the file is damaged"):
        StoreReader.open(f"{tmp_path}/half.db")


def test_a_snapshot_is_of_one_moment(url, store):
    with closing(StoreReader.open(url)) as reader:
        with reader.snapshot() as still:
            assert [study.name for study in still.studies()] == ["study"]
            store.create_study(make_study_record("later"))
            store.claim("study", this_process(), 60)
            assert [study.name for study in still.studies()] == ["study"]
            assert still.driven() == frozenset()
        assert len(reader.studies()) == 2 and reader.driven() == {"study"}


def test_a_study_is_driven_while_its_driver_lives_and_its_lease_lasts(url, store):
    with closing(StoreReader.open(url)) as reader:
        assert reader.driven() == frozenset()
        epoch = store.claim("study", this_process(), 60)
        assert reader.driven() == {"study"}
        store.release("study", epoch, StudyState.FINISHED, "spent")
        assert reader.driven() == frozenset()
        store.claim("study", this_process(), -1)
        assert reader.driven() == frozenset()


def test_a_study_whose_driver_was_killed_is_not_driven(url, store):
    store.claim("study", GONE, 60)
    with closing(StoreReader.open(url)) as reader:
        assert reader.driven() == frozenset()
