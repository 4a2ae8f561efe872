import logging
import os
import sqlite3
import sys
import tempfile
import traceback
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from autotune.errors import SettingsError, StoreUnreachableError
from autotune.store import engine as engine_module
from autotune.store import files
from autotune.store.engine import normalise_url, open_engine, shown_url, tune_sqlite
from autotune.store.faults import database_faults
from autotune.store.migrate import migrate
from autotune.store.reader import StoreReader
from autotune.store.sql import SqlStore
from tests.factories import make_study_record

NOBODY = 65534
UNREACHABLE = "postgresql://tuner:S3cret%40x@127.0.0.1:1/studies"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/studies.db"


@pytest.fixture
def readonly_folder():
    """A folder in which this process, root or not, may not write meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(NOBODY)
        yield Path(name)
        os.seteuid(user)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_way_to_say_postgresql_means_psycopg(scheme):
    url = normalise_url(f"{scheme}://tuner:S3cret%40x@db.example:5433/studies")
    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.password, url.host) == ("tuner", "S3cret@x", "db.example")
    assert (url.port, url.database) == (5433, "studies")


@pytest.mark.parametrize("address", ["sqlite:///{}/a.db", "{}/a.db", "sqlite+pysqlite:///{}/a.db"])
def test_every_way_to_say_a_file_means_sqlite(address, tmp_path):
    url = normalise_url(address.format(tmp_path))
    assert (url.drivername, url.database) == ("sqlite", f"{tmp_path}/a.db")


@pytest.mark.parametrize("address", ["sqlite:///a.sqlite", "a.sqlite"])
def test_a_relative_file_is_of_the_current_folder(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert normalise_url(address).database == f"{tmp_path}/a.sqlite"


def test_a_file_in_the_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert normalise_url("~/a.db").database == f"{tmp_path}/a.db"


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("studies.txt", "is no URL; give sqlite:///"),
        ("mysql://u:S3cret@h/db", "no store at mysql://"),
        ("postgresql://u:S3cret@h:port/db", "is no URL"),
        ("postgresql://u:S3c@ret@h/db", "%40"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///a.db?mode=ro", "no options, got mode"),
    ],
)
def test_an_address_of_no_store_is_refused_with_a_remedy(address, part):
    with pytest.raises(SettingsError) as refusal:
        normalise_url(address)
    assert part in str(refusal.value)
    assert "S3c" not in "".join(traceback.format_exception(refusal.value))


@pytest.mark.parametrize(
    "address", ["postgresql://u:S3cret@h/db", "postgresql://h/db?user=u&password=S3cret"]
)
def test_a_shown_address_has_no_password(address):
    url = normalise_url(address)
    assert "S3cret" not in shown_url(url) + repr(url) + str(url) + repr(open_engine(url))
    assert url.password == "S3cret"


def test_an_address_survives_being_written_for_optuna(tmp_path):
    for address in (UNREACHABLE, f"{tmp_path}/a b%40?#.db"):
        url = normalise_url(address)
        assert make_url(url.render_as_string(hide_password=False)) == url


def every_text_of(error, caplog):
    texts = [caplog.text]
    while error is not None:
        texts += [str(error), repr(error), *traceback.format_exception(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def test_an_unreachable_server_is_told_without_the_password(caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StoreUnreachableError, match="check that the server runs") as refusal:
        SqlStore.open(UNREACHABLE)
    assert "S3cret" not in every_text_of(refusal.value, caplog)


def test_a_wrong_login_is_told_without_the_password(postgres_url, caplog):
    caplog.set_level(logging.DEBUG)
    wrong = postgres_url.replace("%40", "%2540")
    with pytest.raises(StoreUnreachableError, match="check user and password") as refusal:
        SqlStore.open(wrong)
    assert "S3cret" not in every_text_of(refusal.value, caplog)


def test_a_working_login_is_kept_out_of_logs_and_rows(postgres_schema, caplog):
    caplog.set_level(logging.DEBUG)
    store = SqlStore.open(postgres_schema)
    store.create_study(make_study_record())
    shown = repr(vars(store)) + repr(store.study("study")) + caplog.text
    store.close()
    assert "S3cret" not in shown


def test_a_database_that_is_not_there_is_named(postgres_url):
    with pytest.raises(StoreUnreachableError, match='"nowhere" does not exist; create it first'):
        SqlStore.open(postgres_url.replace("/postgres", "/nowhere"))


def test_a_missing_driver_is_told_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreUnreachableError, match=r"pip install 'autotune\[postgres\]'"):
        SqlStore.open(UNREACHABLE)


def test_missing_folders_are_made(tmp_path):
    SqlStore.open(f"{tmp_path}/new/folder/studies.db").close()
    assert (tmp_path / "new" / "folder" / "studies.db").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    for path in (f"{tmp_path}/file/studies.db", f"{tmp_path}/file/below/studies.db"):
        with pytest.raises(StoreUnreachableError, match="/file is a file, not a folder; choose"):
            SqlStore.open(path)


def test_a_folder_in_place_of_the_file_is_told(tmp_path):
    (tmp_path / "studies.db").mkdir()
    with pytest.raises(StoreUnreachableError, match=r"studies\.db is a folder; give a file in it"):
        SqlStore.open(f"{tmp_path}/studies.db")


def test_a_folder_that_cannot_be_written_is_told(readonly_folder):
    with pytest.raises(StoreUnreachableError, match=r"check that .* you may write there"):
        SqlStore.open(f"{readonly_folder}/studies.db")


def test_a_file_that_is_no_database_is_told(tmp_path, url):
    (tmp_path / "studies.db").write_text("a shopping list\n" * 100)
    with pytest.raises(StoreUnreachableError, match="not a database; that file is something else"):
        SqlStore.open(url)


def test_a_file_of_another_program_is_refused_and_not_changed(tmp_path, url):
    path = tmp_path / "studies.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    before = path.read_bytes()
    for use in (SqlStore.open, StoreReader.open, migrate):
        with pytest.raises(StoreUnreachableError, match=r"of another program \(it has 'notes'\)"):
            use(url)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told(url):
    engine = open_engine(normalise_url(url))
    with (
        pytest.raises(StoreUnreachableError, match="free some disk space"),
        database_faults(engine.url),
        engine.begin() as connection,
    ):
        connection.execute(text("PRAGMA max_page_count = 2"))
        connection.execute(text("CREATE TABLE big AS SELECT zeroblob(100000)"))
    engine.dispose()


def test_a_store_held_for_too_long_is_told(tmp_path, url, monkeypatch):
    SqlStore.open(url).close()
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_SECONDS", 0.05)
    store = SqlStore.open(url)
    holder = sqlite3.connect(tmp_path / "studies.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnreachableError, match="locked; another process holds it"):
        store.create_study(make_study_record())
    holder.close()
    store.close()


def test_a_network_filesystem_is_refused_for_sqlite(tmp_path, url, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nnas:/home {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(files, "MOUNTS", mounts)
    with pytest.raises(StoreUnreachableError, match=r"\(nfs4\).*a local folder .* PostgreSQL"):
        SqlStore.open(url)


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/", "ext4"), ("/mnt", "ext4"), ("/mnt/my nas/a", "cifs"), ("/mnt/my nas/a/ssd", "xfs")],
)
def test_the_filesystem_of_a_folder_is_that_of_its_nearest_mount(folder, kind):
    mounts = (
        "rootfs / tmpfs rw 0 0\n/dev/vda / ext4 rw 0 0\n"
        "/dev/sdb /mnt/my\\040nas/a/ssd xfs rw 0 0\n//nas/a /mnt/my\\040nas cifs rw 0 0\n"
    )
    assert files.filesystem_of(Path(folder), mounts) == kind


def test_sqlite_is_set_for_many_processes(url):
    engine = open_engine(normalise_url(url))
    tune_sqlite(engine)  # once more changes nothing
    names = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
    with engine.begin() as connection:
        found = [connection.scalar(text(f"PRAGMA {name}")) for name in names]
    engine.dispose()
    assert found == ["wal", 1, 60_000, 1]
