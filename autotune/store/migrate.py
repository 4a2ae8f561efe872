"""The schema version of a store: made, checked and brought up to date."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, String, column, func, inspect, select, table

from autotune.errors import StoreSchemaError, StoreUnreachableError
from autotune.store.engine import READ_ONLY, normalise_url, open_engine, shown_url
from autotune.store.faults import database_faults
from autotune.store.files import locked_folder
from autotune.store.schema import REVISIONS, VERSION_TABLE

SCRIPTS = "autotune.store:migrations"
TABLES_LOCK = 0x6175746F  # "auto"


def migrate(url: str) -> tuple[str | None, str]:
    """Bring a store to this program's schema version, in one transaction.

    Returns:
        The version before, None for a new store, and the version now.

    Raises:
        SettingsError: The address is none of a store.
        StoreSchemaError: A newer program made the store.
        StoreUnreachableError: The database cannot be used, is damaged, or is another program's.
    """
    engine = open_engine(normalise_url(url))
    try:
        with database_faults(engine.url):
            _require_sound(engine)
            return _upgrade(engine)
    finally:
        engine.dispose()


def require_current_schema(engine: Engine) -> None:
    """Make the tables of a new store, and refuse one of another version.

    Raises:
        StoreSchemaError: The store is older or newer than this program; the message says which.
        StoreUnreachableError: The database cannot be used.
    """
    found = _found_version(engine)
    if found is None:
        with database_faults(engine.url):
            _upgrade(engine)
    else:
        _require_newest(engine, found)


def require_made(engine: Engine) -> None:
    """Refuse a database that has no store yet, and a store of another version. Makes nothing.

    Raises:
        StoreSchemaError: The store is older or newer than this program; the message says which.
        StoreUnreachableError: There is no store, or the database cannot be used.
    """
    found = _found_version(engine)
    if found is None:
        raise StoreUnreachableError(f"no store at {shown_url(engine.url)}; autotune run makes one")
    _require_newest(engine, found)


@contextmanager
def making_tables(engine: Engine) -> Iterator[None]:
    """Keep other processes from making tables of the same database meanwhile, ours or Optuna's.

    No lock of SQLite's own is held, since who makes them may want several connections.
    """
    if engine.dialect.name == "sqlite":
        assert engine.url.database is not None
        with locked_folder(Path(engine.url.database).parent):
            yield
    else:
        with engine.begin() as connection:
            connection.execute(select(func.pg_advisory_xact_lock(TABLES_LOCK)))
            yield


def _upgrade(engine: Engine) -> tuple[str | None, str]:
    from alembic import command  # takes a quarter of a second, and most commands only read
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    with making_tables(engine), engine.begin() as connection:
        found = _version(connection)
        newest = _require_known(engine, found)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return found, newest


def _require_sound(engine: Engine) -> None:
    """Refuse a SQLite file that is damaged anywhere, where an upgrade would not notice."""
    if engine.dialect.name != "sqlite":
        return
    with engine.execution_options(**READ_ONLY).connect() as connection:
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if found != "ok":
        fault = " ".join(found.split())
        raise StoreUnreachableError(
            f"the store {shown_url(engine.url)} is damaged: {fault}; "
            "restore a copy, or begin a new store"
        )


def _found_version(engine: Engine) -> str | None:
    with (
        database_faults(engine.url),
        engine.execution_options(**READ_ONLY).connect() as connection,
    ):
        return _version(connection)


def _require_newest(engine: Engine, found: str) -> None:
    newest = _require_known(engine, found)
    if found != newest:
        raise StoreSchemaError(
            f"the store {shown_url(engine.url)} has schema {found}, this autotune needs {newest}; "
            "run `autotune migrate`"
        )


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version = column("version_num", String())
    found: str | None = connection.scalar(
        select(version).select_from(table(VERSION_TABLE, version))
    )
    return found


def _require_known(engine: Engine, found: str | None) -> str:
    """Return the newest version that this program knows, if it knows the one found."""
    newest = REVISIONS[-1]
    if found not in {None, *REVISIONS}:
        raise StoreSchemaError(
            f"the store {shown_url(engine.url)} has schema {found}, made by a newer autotune; "
            f"this one knows schemas up to {newest}: update autotune"
        )
    return newest
