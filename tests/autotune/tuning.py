"""Runs studies on simulated trials; as a program, a driver that tests may kill."""

import sys
from dataclasses import replace
from datetime import UTC, datetime

from autotune.forecast import Forecast
from autotune.optimizer.storage import opened_storage
from autotune.optimizer.study import OptunaStudy
from autotune.records import Budget, StudyRecord, StudySpec
from autotune.stopping import StopSwitch
from autotune.store.leases import this_process
from autotune.store.sql import SqlStore
from autotune.tuner import StudyResult, Tuner
from autotune.workers import WorkersRequest, open_workers
from search_spaces import DeviceFacts, load_space
from tests.autotune import simulated
from tests.factories import make_environment, make_rates

MIB = 2**20


def make_record(name="study", workload="simulated:ok", *, trials=20, **override) -> StudyRecord:
    values = {
        "name": name,
        "workload": workload,
        "space": load_space("default", global_batch_size=32),
        "memory_budget_bytes": 1024 * MIB,
        "budget": Budget(trials=trials),
        "rates": make_rates(),
        "deadline_seconds": 20.0,
        "confirms": False,
        "sampler": "tpe",
    }
    return StudyRecord(
        spec=StudySpec(**{**values, **override}),
        facts=simulated.facts(),
        environment=make_environment(),
        created_at=datetime.now(UTC),
    )


def tune(
    url, record, *, stop=None, listen=None, is_local=True, workers=None, predictor=None
) -> StudyResult:
    """Run or resume a study on two slots."""
    store = SqlStore.open(url)
    own = workers is None
    if workers is None:
        request = WorkersRequest(num_slots=2, runner=simulated.RUNNER)
        workers = open_workers(request, is_local=is_local)
    try:
        if record.spec.name not in {summary.name for summary in store.studies()}:
            store.create_study(record)
        stored = replace(store.study(record.spec.name), spec=record.spec)
        configs = record.spec.space.configs(DeviceFacts())
        forecast = None if predictor is None else Forecast(predictor, record.spec, configs)
        direction = record.facts.quality_direction
        with opened_storage(url) as storage:
            tuner = Tuner(
                store=store,
                optuna=OptunaStudy(storage, record.spec, configs, direction, forecast),
                workers=workers,
                record=stored,
                stop=stop or StopSwitch(),
                listen=listen or (lambda event: None),
            )
            return tuner.run(this_process(), configs)
    finally:
        if own:
            workers.close()
        store.close()


def main(url: str, name: str, workload: str, trials: str, kind: str) -> None:
    tune(url, make_record(name, workload, trials=int(trials)), is_local=kind == "local")


if __name__ == "__main__":
    main(*sys.argv[1:])
