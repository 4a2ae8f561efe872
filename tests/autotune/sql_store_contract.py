"""What a SQL store must do beside: survive processes, faults and other versions."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from autotune.errors import StoreSchemaError
from autotune.store.engine import normalise_url, open_engine
from autotune.store.sql import SqlStore
from tests.autotune.store_contract import StudyStoreContract, open_and_measure
from tests.factories import (
    GIB,
    make_measurement,
    make_memory,
    make_study_record,
    make_trial,
)

ROOT = Path(__file__).parents[2]
HELPER = "tests.autotune.store_processes"


def run_processes(task: str, url: str, count: int) -> list[str]:
    """Return what each of some processes printed; fail if one of them failed."""
    done = subprocess.run(
        [sys.executable, "-m", HELPER, task, url, str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        pytest.fail(done.stderr)
    return done.stdout.split("\n")[:-1]


class SqlStoreContract(StudyStoreContract):
    """Inherit it, and give the ``url`` of an empty database."""

    @pytest.fixture
    def store(self, url):
        store = SqlStore.open(url)
        yield store
        store.close()

    @pytest.fixture
    def engine(self, url):
        engine = open_engine(normalise_url(url))
        yield engine
        engine.dispose()

    def test_of_eight_drivers_one_gets_the_study(self, url, store, study):
        answers = run_processes("claim", url, 8)
        assert sorted(answers) == ["busy"] * 7 + ["epoch 1"]

    @pytest.mark.slow
    def test_thirty_two_processes_start_at_once_and_lose_no_trial(self, url):
        answers = run_processes("start", url, 32)
        assert answers == ["True"] * 32, answers
        store = SqlStore.open(url)
        measured = [trial.number for trial in store.trials("study")]
        store.close()
        assert measured == list(range(32))

    @pytest.mark.slow
    def test_optuna_starts_beside_it_in_eight_processes_at_once(self, url, store):
        assert run_processes("start_optuna", url, 8) == ["told"] * 8

    def test_a_killed_writer_loses_nothing_acknowledged(self, url, store, study):
        code = f"from {HELPER} import write_forever; write_forever({url!r})"
        command = [sys.executable, "-c", code]
        writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        acknowledged = [int(writer.stdout.readline()) for _ in range(50)]
        writer.kill()
        acknowledged += [int(line) for line in writer.communicate()[0].splitlines()]
        kept = {trial.number for trial in store.trials(study)}
        assert kept >= set(acknowledged)

    def test_reading_does_not_wait_for_a_writer(self, store, study, engine):
        began = time.monotonic()
        with engine.begin() as connection:
            connection.execute(text("UPDATE autotune_studies SET stop_reason = 'unseen'"))
            assert store.study(study).stop_reason == ""
            assert store.trials(study) == []
        assert time.monotonic() - began < 5

    def test_a_store_from_the_future_is_refused_with_both_versions(self, url, store, engine):
        with engine.begin() as connection:
            connection.execute(text("UPDATE autotune_alembic_version SET version_num = 'v9999'"))
        with pytest.raises(StoreSchemaError, match=r"v9999.*newer autotune.*v0\d\d\d"):
            SqlStore.open(url)

    def test_the_front_can_be_read_in_plain_sql(self, store, study, engine):
        measurement = make_measurement(memory=make_memory(peak_device_bytes=141 * GIB))
        open_and_measure(store, 0, measurement)
        store.set_front(study, [0], recommended=0)
        with engine.begin() as connection:
            (row,) = connection.execute(text("SELECT * FROM autotune_front")).all()
        assert (row.study, row.rank, bool(row.is_recommended), row.trial) == (study, 1, True, 0)
        assert (row.amp_dtype, row.micro_batch_size) == ("fp32", 4)
        assert (row.peak_device_bytes, row.mean_step_seconds) == (141 * GIB, 0.5)
        assert (row.quality_name, row.device_name) == ("held-out loss", "Test CPU")

    def test_plain_sql_shows_fronts_by_study_and_rank(self, store, study, engine):
        store.create_study(make_study_record("earlier in the alphabet"))
        for name in (study, "earlier in the alphabet"):
            for number in range(2):
                store.open_trial(make_trial(number, study=name))
            store.set_front(name, [1, 0], recommended=None)
        with engine.begin() as connection:
            rows = connection.execute(text("SELECT study, trial FROM autotune_front")).all()
        names = ["earlier in the alphabet"] * 2 + [study] * 2
        assert rows == list(zip(names, [1, 0, 1, 0], strict=True))
