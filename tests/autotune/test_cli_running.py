"""What is shown at the end of a study, on results that no study was run for."""

import pytest

from autotune.cli import run_command, running
from autotune.records import Budget, StudyState
from autotune.refusals import refusals_of
from autotune.spending import Spending
from autotune.tuner import StudyResult
from tests.factories import make_rates, make_study_record


@pytest.fixture
def show(monkeypatch, capsys):
    """Run a study of no trials that ends as given, and return what it prints."""

    def shown(**given):
        values = {
            "state": StudyState.INTERRUPTED,
            "stop_reason": "stopped by the user",
            "front": (),
            "recommendation": None,
            "baseline": None,
            "reruns": {},
            "num_unscored": 0,
            "refusals": refusals_of([]),
            "spending": Spending(budget=Budget(), rates=make_rates()),
        }
        result = StudyResult(**{**values, **given})
        ended = (make_study_record(), result)
        monkeypatch.setattr(running, "run_study", lambda *words, **more: ended)
        run_command(["run"])
        return capsys.readouterr()

    return shown


@pytest.mark.parametrize(
    ("num_unscored", "words"),
    [
        (0, "no point yet\n"),
        (1, "no point yet: 1 measured trial waits for its quality\n"),
        (2, "no point yet: 2 measured trials wait for their quality\n"),
    ],
)
def test_without_a_point_there_is_no_bare_heading(show, num_unscored, words):
    found = show(num_unscored=num_unscored)
    assert found.out == words and "wait" not in found.err
    assert "go on with: autotune resume study" in found.err
