"""Recording a table: every config by a real trial, whatever ends the recorder."""

import pytest

from search_spaces import SearchSpace
from tests.benchmarks.replay.compile import tables_of
from tests.benchmarks.replay.errors import TableError
from tests.benchmarks.replay.recipes import MIB, RECIPES, Recipe
from tests.benchmarks.replay.record import recorded
from tests.benchmarks.replay.runs import RunLog
from tests.benchmarks.replay.table import read_table, write_table
from trials.host import TrialHost
from trials.measurement import Outcome
from trials.spec import TimingPolicy

RECIPE = Recipe(
    name="tiny",
    reference="byte-gpt",
    space=SearchSpace.of(
        {"micro_batch_size": [1, 16], "optimizer_bits": [32, 8]},
        name="tiny",
        global_batch_size=16,
    ),
    budgets_bytes=(21 * MIB,),
    timing=TimingPolicy(min_steps=2, max_steps=2, max_seconds=0.1),
)


@pytest.fixture(scope="module")
def host():
    host = TrialHost()
    yield host
    host.close()


@pytest.fixture(scope="module")
def log_path(host, tmp_path_factory):
    """A recording that was killed after three trials, in the middle of writing the third."""
    path = tmp_path_factory.mktemp("recording") / "log.jsonl"
    assert not recorded(RECIPE, RunLog(path), host, trials=3, passes=1)
    path.write_text(path.read_text()[:-40])
    return path


def test_a_killed_recording_goes_on_and_ends_as_a_table(host, log_path, tmp_path):
    log = RunLog(log_path)
    kept = dict(log.by_job)
    assert len(kept) == 2
    assert recorded(RECIPE, log, host, trials=100, passes=1)
    again = RunLog(log_path)
    assert again.by_job == log.by_job
    assert all(again.by_job[job] == run for job, run in kept.items())
    (table,) = tables_of(RECIPE, again, host)
    write_table(table, tmp_path / "tiny.jsonl.gz")
    found = read_table(tmp_path / "tiny.jsonl.gz")
    assert len(found.configs) == 4
    large = [entry for entry in found.entries if entry.config.micro_batch_size == 16]
    assert {entry.outcome for entry in large} == {Outcome.OUT_OF_MEMORY}
    assert all(0 < entry.constraints["memory"] < 2 for entry in large)
    assert found.header.noise["runs"] >= 12
    for entry in found.entries:
        assert len(entry.prior.peak_errors) == 4 and len(entry.prior.step_errors) == 5
        if entry.outcome == Outcome.COMPLETED:
            runs = [r for job, r in log.by_job.items() if job.config == entry.config]
            steps = [second for run in runs for second in run.measurement.timing.step_seconds]
            assert len(steps) >= 6
            assert entry.step_seconds.mean == pytest.approx(min(steps), rel=1e-5)


def test_a_log_of_another_recipe_is_refused(host, log_path):
    log = RunLog(log_path)
    with pytest.raises(TableError, match=r"begun with other trials.*tiny / byte_gpt"):
        recorded(RECIPES["byte_gpt"], log, host, trials=1, passes=1)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_a_recipe_has_300_configs_or_more(recipe):
    assert len(list(recipe.space.combinations())) >= 300
