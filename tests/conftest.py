"""Fixtures that tests of several packages share."""

import logging
import os
import sys
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from autotune.workers import ray_bootstrap
from tests.postgres_server import find_binaries, running_server


@pytest.fixture(autouse=True)
def _logging_left_as_it_was() -> Iterator[None]:
    """Undo what a command called in this process sets: it logs to a stream that a test closes."""
    yield
    root = logging.getLogger()
    for handler in [one for one in root.handlers if type(one) is logging.StreamHandler]:
        root.removeHandler(handler)
    for package in ("autotune", "trials", "search_spaces"):
        logging.getLogger(package).setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _ray_left_to_its_door() -> Iterator[None]:
    """Fail the test that imports Ray by itself: it reads its environment once, for all tests."""
    yield
    is_set_up = ray_bootstrap._import_purpose is not None
    assert is_set_up or "ray" not in sys.modules, "import Ray in a process of its own"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a real server, its password percent-encoded."""
    binaries = find_binaries()
    if binaries is None:
        reason = "no PostgreSQL server: no initdb on the PATH or in /usr/lib/postgresql/*/bin"
        (pytest.fail if "CI" in os.environ else pytest.skip)(reason)
    with running_server(binaries) as url:
        yield url


@pytest.fixture
def postgres_schema(postgres_url: str) -> Iterator[str]:
    """URL of an empty schema of this test's own; a database takes three times as long."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        yield f"{postgres_url}?options=-csearch_path%3D{name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE")
