"""The database engine: how an address is read, and the settings that every connection gets."""

import os
import sqlite3
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from autotune.errors import SettingsError, StoreUnreachableError
from autotune.store.files import prepare_file, reading_address, require_file

BUSY_TIMEOUT_SECONDS = 60.0
"""How long a SQLite transaction waits for another's to end."""

CONNECT_TIMEOUT_SECONDS = 10

READ_ONLY = {"sqlite_begin": "DEFERRED"}
"""Execution options of an engine whose SQLite transactions only read: they wait for no writer."""

OWN_TABLES = ("autotune_", "version_info")
"""How the names of our tables begin, or of Optuna's first one, which may be there before ours."""

FILE_SUFFIXES = (".db", ".sqlite")
DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
ADDRESS_FORMS = "sqlite:///studies.db, postgresql://user:password@host/database or a .db file"


def normalise_url(text: str) -> URL:
    """Read a store's address, as a person writes it.

    Args:
        text: A ``sqlite:///`` or ``postgresql://`` URL, its password percent-encoded; or the
            path of a ``.db`` or ``.sqlite`` file.

    Raises:
        SettingsError: Neither; the message repeats nothing that may be a password.
    """
    if "://" not in text and text.endswith(FILE_SUFFIXES):
        return _sqlite_url(text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise SettingsError(f"the store's address is no URL; give {ADDRESS_FORMS}") from None
    driver = DRIVERS.get(url.drivername)
    if driver is None:
        raise SettingsError(f"no store at {url.drivername}:// addresses; give {ADDRESS_FORMS}")
    if driver != "sqlite":
        return _server_url(url, driver)
    if url.query:
        raise SettingsError(f"a SQLite address takes no options, got {', '.join(url.query)}")
    return _sqlite_url(url.database)


def shown_url(url: URL) -> str:
    """Return an address that is fit to be read: no password, no options."""
    return url.set(query={}).render_as_string(hide_password=True)


def engine_options(url: URL) -> dict[str, Any]:
    """Return keyword arguments for ``create_engine``: of our engine, and of Optuna's."""
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": BUSY_TIMEOUT_SECONDS}}
    return {
        "pool_pre_ping": True,
        "pool_size": 2,
        "max_overflow": 4,
        "connect_args": {"connect_timeout": CONNECT_TIMEOUT_SECONDS},
    }


def open_engine(url: URL) -> Engine:
    """Return an engine for an address from ``normalise_url``. It has not connected yet.

    Raises:
        StoreUnreachableError: No driver for it, no place for its file, or a file of another
            program.
    """
    if url.get_backend_name() == "sqlite":
        assert url.database is not None
        prepare_file(Path(url.database))
        _refuse_foreign(Path(url.database))
    try:
        engine = create_engine(url, **engine_options(url))
    except ImportError as error:
        raise StoreUnreachableError(
            "a PostgreSQL store needs a driver: run pip install 'autotune[postgres]'"
        ) from error
    tune_sqlite(engine)
    return engine


def open_reading_engine(url: URL) -> Engine:
    """Return an engine for a store that is there, on connections that cannot change it.

    Raises:
        StoreUnreachableError: No driver for it, no such file, or one of another program.
    """
    if url.get_backend_name() != "sqlite":
        return open_engine(url).execution_options(postgresql_readonly=True)
    assert url.database is not None
    require_file(Path(url.database))
    _refuse_foreign(Path(url.database))
    engine = create_engine(url, creator=partial(_connect_for_reading, Path(url.database)))
    event.listen(engine, "begin", _begin)
    return engine


def tune_sqlite(engine: Engine) -> None:
    """Make a SQLite engine fit for many processes; leave engines of other databases alone.

    Transactions take the write lock when they begin, unless the engine is ``READ_ONLY``: one
    that reads first and then writes would fail at once if another wrote in between. So Optuna's
    engine is tuned once its storage is made, which holds two connections at a time.
    """
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_connection)
        event.listen(engine, "begin", _begin)
        engine.dispose()  # connections made before have none of this


def _sqlite_url(database: str | None) -> URL:
    if database in (None, "", ":memory:"):
        raise SettingsError("a store in memory ends with its process; give sqlite:///studies.db")
    return URL.create("sqlite", database=str(Path(database).expanduser().absolute()))


def _server_url(url: URL, driver: str) -> URL:
    if "@" in (url.host or ""):
        raise SettingsError("the store's address has two @; write one in a password as %40")
    password = url.normalized_query.get("password", (url.password,))[-1]
    hidden = url.difference_update_query(["password"])  # as an option it would be shown
    return hidden.set(drivername=driver, password=password)


def _connect_for_reading(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        reading_address(path),
        uri=True,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,  # the driver begins no transactions: _begin does
        check_same_thread=False,
    )
    connection.execute("PRAGMA query_only = ON")
    return connection


def _refuse_foreign(path: Path) -> None:
    """Refuse a SQLite file of another program before anything in it is changed."""
    if not os.path.isfile(path):
        return
    tables: list[str] = []
    # A file that cannot be read is told by whoever opens it next.
    with suppress(sqlite3.DatabaseError), closing(_connect_for_reading(path)) as connection:
        tables += (name for (name,) in connection.execute("SELECT name FROM sqlite_master"))
    if tables and not any(name.startswith(OWN_TABLES) for name in tables):
        raise StoreUnreachableError(
            f"{path} is the database of another program (it has {tables[0]!r}); "
            "give another path with --store"
        )


def _set_up_connection(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # the driver begins no transactions: _begin does
    _enter_wal_mode(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _enter_wal_mode(connection: sqlite3.Connection) -> None:
    """Turn the write-ahead log on; SQLite itself does not wait for other processes here."""
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _begin(connection: Connection) -> None:
    mode = connection.get_execution_options().get("sqlite_begin", "IMMEDIATE")
    connection.exec_driver_sql(f"BEGIN {mode}")
