import pytest

from autotune.records import Budget
from autotune.worth import FEWEST_TRIALS, PATIENCE, Worth
from tests.autotune.test_refusals import Scripted, told, url, workers  # noqa: F401

SECONDS = [2.0] * FEWEST_TRIALS
HOUR = 3600.0


def looked(gains, *, seconds=SECONDS, planned=HOUR):
    worth = Worth(planned_seconds=planned)
    for number, gain in enumerate(gains, 1):
        worth.look(number, gain, seconds)
    return worth


@pytest.mark.parametrize(
    ("gains", "is_over"),
    [
        ([2.1 / HOUR] * 10, False),
        ([1.9 / HOUR] * PATIENCE, True),
        ([1.9 / HOUR] * (PATIENCE - 1), False),
        ([*[1e-9] * (PATIENCE - 1), 0.01, *[1e-9] * (PATIENCE - 1)], False),
        ([*[1e-9] * PATIENCE, 0.01], False),
    ],
)
def test_a_study_is_over_when_several_proposals_in_a_row_cost_more_than_they_save(gains, is_over):
    assert bool(looked(gains).reason) == is_over


def test_the_reason_says_what_is_weighed():
    assert looked([1e-4] * PATIENCE).reason == (
        "another trial takes 2 s and is expected to save 0.36 s of 1 h of training; "
        "--planned-hours says how long yours is"
    )


def test_one_proposal_that_is_looked_at_often_counts_once():
    worth = Worth(planned_seconds=HOUR)
    for _ in range(10):
        worth.look(1, 0.0, SECONDS)
    assert not worth.reason


def test_nothing_is_said_before_enough_trials_or_without_a_plan():
    assert not looked([0.0] * 10, seconds=SECONDS[1:]).reason
    assert not looked([0.0] * 10, planned=None).reason


def test_a_study_ends_by_itself_with_the_whole_front(url, workers):  # noqa: F811
    """All its configs would be 24; what it leaves is no better than what it has."""
    options = {"sampler": "frontier", "memory_budget_bytes": 2**40}
    result, trials = told(
        url, workers, Scripted(), budget=Budget(trials=40, planned_seconds=HOUR), **options
    )
    assert result.stop_reason.startswith("another trial takes")
    assert FEWEST_TRIALS < len(trials) < 24
    whole, _ = told(url, workers, None, name="whole", budget=Budget(trials=40), **options)
    assert {t.config for t in result.front} == {t.config for t in whole.front}
