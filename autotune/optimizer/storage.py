"""Optuna's tables in a store's database."""

from collections.abc import Iterator
from contextlib import contextmanager

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage, get_storage

from autotune.store.engine import engine_options, normalise_url, open_engine, tune_sqlite
from autotune.store.faults import database_faults
from autotune.store.migrate import making_tables


@contextmanager
def opened_storage(store_url: str) -> Iterator[BaseStorage]:
    """Yield Optuna's view of a store's database, and let go of the database afterwards.

    Raises:
        StoreError: A row breaks a rule of the schema.
        StoreUnreachableError: Anything else that the database reports, through Optuna or not.
    """
    with database_faults(normalise_url(store_url)):
        try:
            storage = open_storage(store_url)
            try:
                yield get_storage(storage)
            finally:
                storage.engine.dispose()
        except StorageInternalError as error:
            raise (error.__cause__ or error) from None


def open_storage(store_url: str) -> RDBStorage:
    """Return Optuna's storage in a store's database, making its tables if they are not there."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = normalise_url(store_url)
    engine = open_engine(url)
    with making_tables(engine):
        storage = RDBStorage(
            url.render_as_string(hide_password=False), engine_kwargs=engine_options(url)
        )
    engine.dispose()
    tune_sqlite(storage.engine)
    return storage


def delete_optuna_study(storage: BaseStorage, name: str) -> None:
    """Remove a study and its trials from Optuna's tables. Quiet when there is none."""
    known = {study.study_name: study._study_id for study in storage.get_all_studies()}
    if name in known:
        storage.delete_study(known[name])
