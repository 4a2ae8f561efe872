import shutil
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from autotune.errors import StoreSchemaError, StoreUnreachableError
from autotune.store import migrate as migrate_module
from autotune.store import migrations
from autotune.store.engine import normalise_url, open_engine
from autotune.store.migrate import migrate
from autotune.store.schema import METADATA, REVISIONS, VERSION_TABLE
from autotune.store.sql import SqlStore
from tests.autotune.store_processes import open_optuna
from tests.factories import make_measurement, make_study_record, make_trial

ASSETS = sorted((Path(__file__).parents[1] / "assets").glob("store_v*.db"))
VERSIONS = sorted((Path(migrations.__file__).parent / "versions").glob("v*.py"))
NEXT_VERSION = """
from alembic import op
import sqlalchemy as sa
revision, down_revision = "v9999", "{}"
def upgrade():
    op.add_column("autotune_studies", sa.Column("note", sa.Text))
    op.execute("{}")
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("postgres_schema")
    return f"sqlite:///{tmp_path}/studies.db"


@pytest.fixture
def engine(url):
    engine = open_engine(normalise_url(url))
    yield engine
    engine.dispose()


@pytest.fixture
def add_version(tmp_path, monkeypatch):
    """Have a program with one more migration, which ends in a statement."""

    def add(statement):
        copy = tmp_path / "migrations"
        shutil.copytree(Path(migrations.__file__).parent, copy)
        newest = VERSIONS[-1].name.partition("_")[0]
        (copy / "versions" / "v9999_next.py").write_text(NEXT_VERSION.format(newest, statement))
        monkeypatch.setattr(migrate_module, "SCRIPTS", str(copy))
        monkeypatch.setattr(migrate_module, "REVISIONS", (*REVISIONS, "v9999"))

    return add


def test_each_version_has_its_asset():
    numbers = [int(path.name[1:5]) for path in VERSIONS]
    assert [path.stem for path in ASSETS] == [f"store_v{number}" for number in numbers]


@pytest.mark.parametrize("asset", ASSETS, ids=lambda path: path.stem)
def test_an_old_store_is_upgraded_read_and_written(asset, tmp_path):
    path = shutil.copy(asset, tmp_path)
    migrate(path)
    store = SqlStore.open(path)
    told, out_of_memory, predicted = store.trials("study")
    store.open_trial(make_trial(3))
    assert told.measurement == make_measurement()
    assert [out_of_memory.outcome, predicted.outcome] == ["out_of_memory"] * 2
    assert store.study("study").spec == replace(make_study_record().spec, sampler="tpe")
    assert len(store.trials("study")) == 4
    store.close()


@pytest.mark.parametrize("asset", ASSETS, ids=lambda path: path.stem)
def test_optuna_goes_on_in_an_upgraded_store(asset, tmp_path):
    path = shutil.copy(asset, tmp_path)
    migrate(path)
    storage = open_optuna(path)
    study = optuna.load_study(storage=storage, study_name="study")
    study.tell(study.ask(), 4.0)
    assert [trial.value for trial in study.trials] == [1.0, 2.0, 3.0, 4.0]
    storage.engine.dispose()


def test_a_new_store_has_the_tables_of_the_schema(url, engine):
    migrate(url)
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []


def test_migrating_says_from_where_to_where(url, add_version):
    newest = VERSIONS[-1].name.partition("_")[0]
    assert migrate(url) == (None, newest)
    assert migrate(url) == (newest, newest)
    add_version("SELECT 1")
    assert migrate(url) == (newest, "v9999")


def test_an_old_store_is_refused_until_it_is_migrated(url, add_version):
    migrate(url)
    add_version("SELECT 1")
    with pytest.raises(StoreSchemaError, match=r"has schema v0.*needs v9999; run `autotune migr"):
        SqlStore.open(url)
    migrate(url)
    SqlStore.open(url).close()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_truncated_store_is_refused(tmp_path, share):
    path = tmp_path / "studies.db"
    store = SqlStore.open(str(path))
    store.create_study(make_study_record())
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(StoreUnreachableError, match=r"studies\.db.*restore a copy"):
        migrate(str(path))


def test_a_store_damaged_within_is_refused(tmp_path):
    path = tmp_path / "studies.db"
    SqlStore.open(str(path)).close()
    whole = path.read_bytes()
    third_page = 2 * 4096
    more_cells_than_there_are = b"\x07"
    count = third_page + 4
    path.write_bytes(whole[:count] + more_cells_than_there_are + whole[count + 1 :])
    with pytest.raises(StoreUnreachableError, match=r"studies\.db is damaged: .*restore a copy"):
        migrate(str(path))


def test_a_migration_that_fails_changes_nothing(url, engine, add_version):
    migrate(url)
    add_version("SELECT no_such_column FROM autotune_studies")
    with pytest.raises(StoreUnreachableError, match="no_such_column"):
        migrate(url)
    with engine.begin() as connection:
        columns = [
            column["name"] for column in inspect(connection).get_columns("autotune_studies")
        ]
        assert "note" not in columns


def test_the_versions_that_are_known_are_those_of_the_migrations():
    config = Config()
    config.set_main_option("script_location", "autotune.store:migrations")
    script = ScriptDirectory.from_config(config)
    assert [revision.revision for revision in script.walk_revisions()] == [*reversed(REVISIONS)]
