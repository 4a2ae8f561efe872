"""A store to look at: one that is there, on connections that cannot change it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from sqlalchemy import ColumnElement, Connection, func, literal, select

from autotune.errors import StoreError
from autotune.records import Owner
from autotune.store.engine import READ_ONLY, normalise_url, open_reading_engine
from autotune.store.leases import is_held
from autotune.store.migrate import require_made
from autotune.store.schema import STUDIES
from autotune.store.sql import SqlStore, transaction


class StoreReader(SqlStore):
    """Studies in a SQL database, read-only. What would write raises StoreUnreachableError."""

    @classmethod
    def open(cls, url: str) -> Self:
        """Open the store at an address; neither file, folder nor table is made.

        Raises:
            SettingsError: The address is none of a store.
            StoreSchemaError: The store is older or newer than this program.
            StoreUnreachableError: There is no store, or the database cannot be used.
        """
        engine = open_reading_engine(normalise_url(url)).execution_options(**READ_ONLY)
        try:
            require_made(engine)
        except StoreError:
            engine.dispose()
            raise
        return cls(engine)

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """Yield a reader for which the store stands still: all it returns is of one moment."""
        engine = self._writer
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="REPEATABLE READ")
        with transaction(engine) as connection:
            still = type(self)(self._writer)
            still._reader = connection
            yield still

    def driven(self) -> frozenset[str]:
        """Return the names of the studies that a living driver runs."""
        with transaction(self._reader) as connection:
            seconds_left = STUDIES.c.lease_expires_at - _now(connection)
            query = select(STUDIES, seconds_left.label("seconds_left"))
            found = connection.execute(query.where(STUDIES.c.lease_expires_at.is_not(None))).all()
        return frozenset(
            row.name
            for row in found
            if is_held(
                Owner(host=row.owner_host, pid=row.owner_pid, started_at=row.owner_started_at),
                row.seconds_left,
            )
        )


def _now(connection: Connection) -> ColumnElement[Any]:
    if connection.dialect.name == "sqlite":
        return literal(time.time())
    return func.extract("epoch", func.clock_timestamp())
