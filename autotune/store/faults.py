"""What the database's errors mean to a person, told without the password."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, IntegrityError

from autotune.errors import StoreError, StoreUnreachableError
from autotune.store.engine import shown_url

REMEDIES = (
    ("database is locked", "another process holds it; end that process, or try again"),
    ("unable to open database file", "check that its folder exists and that you may write there"),
    ("readonly database", "you may not write to that file; check its permissions"),
    ("file is not a database", "that file is something else; give another path"),
    ("malformed", "the file is damaged; restore a copy, or begin a new store"),
    ("disk is full", "free some disk space, then run the same command again"),
    ("no space left on device", "free disk space on the server, then run the same command again"),
    ("password authentication failed", "check user and password; write special characters as %XX"),
    ("no password supplied", "give postgresql://user:password@host/database"),
    ("does not exist", "create it first, or check its name"),
    ("permission denied", "ask for the right to create tables there"),
    ("failed to resolve host", "check the host's name"),
    ("connection refused", "check that the server runs, its host and its port"),
    ("timeout", "check that the server runs and that no firewall is between"),
)
"""Part of a driver's message, in lower case, and what to do about it."""


@contextmanager
def database_faults(url: URL) -> Iterator[None]:
    """Raise what the database reports as an error of the store.

    The original is not chained: drivers and SQLAlchemy put statements, parameters and
    connection strings into their texts.

    Raises:
        StoreError: A row breaks a rule of the schema.
        StoreUnreachableError: Anything else.
    """
    try:
        yield
    except IntegrityError as error:
        raise StoreError(f"the store refused a row: {_told(error, url)}") from None
    except DBAPIError as error:
        reason = f"the store {shown_url(url)}: {_told(error, url)}; {_remedy(error)}"
        raise StoreUnreachableError(reason) from None


def _told(error: DBAPIError, url: URL) -> str:
    text = str(error.orig).strip().partition("\n")[0]
    return text.replace(str(url.password), "***") if url.password else text


def _remedy(error: DBAPIError) -> str:
    text = str(error.orig).lower()
    found = (remedy for part, remedy in REMEDIES if part in text)
    return next(found, "check the address and the database's own log")
