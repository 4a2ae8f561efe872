"""Processes that use one store at once: python -m tests.autotune.store_processes TASK URL COUNT.

Each prints one line of what it did. The parent has no thread and no connection, so that its
children can be forked and begin at the same instant.
"""

import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable

import optuna

from autotune.errors import StudyBusyError, StudyExistsError
from autotune.store.engine import engine_options, normalise_url, open_engine, tune_sqlite
from autotune.store.leases import this_process
from autotune.store.migrate import making_tables
from autotune.store.sql import SqlStore
from tests.factories import make_key, make_measurement, make_study_record, make_trial

WAIT_SECONDS = 60.0


def open_optuna(url: str) -> optuna.storages.RDBStorage:
    """Open Optuna's storage in the database of a store."""
    address = normalise_url(url)
    engine = open_engine(address)
    with making_tables(engine):
        storage = optuna.storages.RDBStorage(
            address.render_as_string(hide_password=False), engine_kwargs=engine_options(address)
        )
    tune_sqlite(storage.engine)
    engine.dispose()
    return storage


def claim(url: str, index: int) -> str:
    try:
        return f"epoch {SqlStore.open(url).claim('study', this_process(), 60)}"
    except StudyBusyError:
        return "busy"


def start(url: str, index: int) -> str:
    """Do what a driver does first: find the store or make it, then run a trial."""
    store = SqlStore.open(url)
    try:
        store.create_study(make_study_record())
    except StudyExistsError:
        pass
    trial = make_trial(index)
    store.open_trial(trial)
    return str(store.record_measurement(trial, make_key(trial), None, make_measurement()))


def start_optuna(url: str, index: int) -> str:
    study = optuna.create_study(storage=open_optuna(url), study_name="s", load_if_exists=True)
    study.tell(study.ask(), 1.0)
    return "told"


TASKS: dict[str, Callable[[str, int], str]] = {
    "claim": claim,
    "start": start,
    "start_optuna": start_optuna,
}


def write_forever(url: str) -> None:
    """Open trials, and print the number of each once the store has it."""
    store = SqlStore.open(url)
    for number in itertools.count():
        store.open_trial(make_trial(number))
        print(number, flush=True)


def main(task: str, url: str, count: int) -> int:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)

    def work(index: int) -> None:
        barrier.wait(WAIT_SECONDS)
        # In one go: print writes the line and its end apart where output is not buffered.
        os.write(1, f"{TASKS[task](url, index)}\n".encode())
        barrier.wait(WAIT_SECONDS)  # a driver that has ended owns nothing

    processes = [context.Process(target=work, args=(index,)) for index in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return sum(process.exitcode != 0 for process in processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
