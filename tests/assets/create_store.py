"""Makes the asset of the current schema version: python -m tests.assets.create_store.

Run it once for each new migration, before the first release that has it, and add the file to
git. Never make an old version's file again: it stands for the files that users have.
"""

from dataclasses import replace
from pathlib import Path

import optuna

from autotune.records import Owner, Scores, Source, StudyState, TrialState
from autotune.store.migrate import migrate
from autotune.store.sql import SqlStore
from tests.autotune.store_processes import open_optuna
from tests.factories import (
    make_config,
    make_key,
    make_measurement,
    make_oom,
    make_quality,
    make_study_record,
    make_trial,
)
from trials.measurement import Outcome

ASSETS = Path(__file__).parent


def main() -> None:
    """Write a study of three trials and a front, in our tables and in Optuna's."""
    building = ASSETS / "building.db"
    _, version = migrate(str(building))
    store = SqlStore.open(str(building))
    store.create_study(make_study_record())
    epoch = store.claim("study", Owner(host="builder", pid=1, started_at=0.0), 60)
    _add_trials(store)
    store.record_quality(make_quality())
    store.set_front("study", [0], recommended=0)
    store.release("study", epoch, StudyState.FINISHED, "3 of 3 trials done")
    store.close()
    _add_optuna_trials(str(building))
    building.rename(ASSETS / f"store_v{int(version.removeprefix('v'))}.db")


def _add_trials(store: SqlStore) -> None:
    """Add a measured trial, one that ran out of memory and a predicted one."""
    scores = Scores(cost_usd_per_million_samples=12.5, throughput_samples_per_second=16.0)
    for number, measurement in enumerate((make_measurement(), make_oom())):
        trial = make_trial(number, config=make_config(checkpoint_interval=number))
        store.open_trial(trial)
        store.record_measurement(trial, make_key(trial), None, measurement)
        store.tell_trial(trial, scores, violation=0.5 * number)
    predicted = make_trial(2, config=make_config(checkpoint_interval=2), source=Source.PREDICTED)
    predicted = replace(predicted, state=TrialState.TOLD, outcome=Outcome.OUT_OF_MEMORY)
    store.open_trial(predicted)


def _add_optuna_trials(url: str) -> None:
    storage = open_optuna(url)
    study = optuna.create_study(storage=storage, study_name="study")
    for value in (1.0, 2.0, 3.0):
        study.tell(study.ask(), value)
    storage.engine.dispose()


if __name__ == "__main__":
    main()
