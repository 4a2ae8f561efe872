import time

import pytest
from sqlalchemy import insert

from autotune.records import TrialState
from autotune.store.rows import trial_values
from autotune.store.schema import TRIALS
from tests.autotune.sql_store_contract import SqlStoreContract
from tests.autotune.store_contract import open_and_measure
from tests.factories import make_trial


class TestSqliteStore(SqlStoreContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path}/studies.db"

    def test_a_front_among_twenty_thousand_trials_is_read_at_once(self, store, study, engine):
        measured = open_and_measure(store, 0).measurement_id
        trial = make_trial(state=TrialState.TOLD, measurement_id=measured)
        rows = [{**trial_values(trial), "number": number} for number in range(1, 20_000)]
        with engine.begin() as connection:
            connection.execute(insert(TRIALS), rows)
        store.set_front(study, range(0, 20_000, 400), recommended=0)
        began = time.perf_counter()
        assert len(store.front(study)) == 50
        assert time.perf_counter() - began < 0.1
