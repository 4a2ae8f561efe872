"""Configs that are predicted not to fit: refused, checked where that counts, and counted."""

import pytest

from autotune.baselines import most_aggressive
from autotune.events import TrialTold
from autotune.predict.calibration import Interval
from autotune.predict.predictor import Prediction
from autotune.records import Objective, Source
from autotune.refusals import refusals_text
from autotune.store.sql import SqlStore
from autotune.workers import WorkersRequest, open_workers
from search_spaces import SearchSpace
from tests.autotune import simulated
from tests.autotune.tuning import make_record, tune
from trials.measurement import Outcome

MIB = 2**20
BUDGET = 200 * MIB
KNOBS = {"micro_batch_size": [1, 2, 4, 8, 16, 32], "checkpoint_interval": [0, 1, 2, 4]}
SPACE = SearchSpace.of(KNOBS, global_batch_size=32)


class Scripted:
    """Predicts simulated trials, some of them wrongly.

    Attributes:
        learnt: Trials that it was last told of.
    """

    def __init__(self, factor_of=lambda config: 1.0):
        self._factor_of = factor_of
        self.learnt = 0

    def learn(self, trials):
        self.learnt = len(trials)

    def predict(self, configs, memory_budget_bytes=None):
        return [self._predicted(config, memory_budget_bytes) for config in configs]

    def _predicted(self, config, budget):
        peak = simulated.device_bytes(config) * self._factor_of(config)
        step = simulated.step_seconds(config)
        return Prediction(
            config=config,
            memory={},
            peak_device_bytes=Interval(low=0.9 * peak, mean=peak, high=1.1 * peak),
            peak_host_bytes=0,
            step_seconds=Interval(low=0.9 * step, mean=step, high=1.1 * step),
            probability_fits=min(1.0, budget / peak / 2),
            phases={"backward": peak},
            peak_errors=(),
            step_errors=(),
        )


@pytest.fixture(scope="module")
def workers():
    request = WorkersRequest(num_slots=2, runner=simulated.RUNNER)
    workers = open_workers(request, is_local=True)
    yield workers
    workers.close()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/studies.db"


def record(**override):
    values = {
        "space": SPACE,
        "memory_budget_bytes": BUDGET,
        "trials": 40,
        "sampler": "random",
        "objectives": (Objective.COST, Objective.THROUGHPUT),
    }
    return make_record(**{**values, **override})


def fits(config):
    return simulated.device_bytes(config) <= BUDGET


def told(url, workers, predictor, **override):
    """Run a study; return its result and its trials in the order in which they were told."""
    trials = []

    def listen(event):
        if isinstance(event, TrialTold):
            trials.append(event.trial)

    return tune(
        url, record(**override), workers=workers, predictor=predictor, listen=listen
    ), trials


def test_what_surely_does_not_fit_is_not_run(url, workers):
    result, trials = told(url, workers, Scripted())
    refused = [trial for trial in trials if trial.source == Source.PREDICTED]
    assert len(refused) >= 2
    assert not any(fits(trial.config) for trial in refused)
    assert all(
        trial.outcome == Outcome.OUT_OF_MEMORY and not trial.is_measured for trial in refused
    )
    assert all(trial.violation > 0 for trial in refused)
    assert result.refusals.refused == {trial.config for trial in refused}
    assert not result.refusals.false


def test_without_predictions_the_same_study_runs_out_of_memory_more_often(url, workers, tmp_path):
    def ran_out(trials):
        return sum(t.is_measured and t.outcome == Outcome.OUT_OF_MEMORY for t in trials)

    _, with_predictions = told(url, workers, Scripted())
    _, without = told(f"sqlite:///{tmp_path}/other.db", workers, None)
    assert ran_out(with_predictions) < ran_out(without)


def test_before_three_trials_have_completed_nothing_is_refused(url, workers):
    _, trials = told(url, workers, Scripted(lambda config: 100.0))
    first = next(place for place, t in enumerate(trials) if t.source == Source.PREDICTED)
    assert sum(trial.outcome == Outcome.COMPLETED for trial in trials[:first]) >= 3


def test_a_refused_config_that_would_be_on_the_front_is_run_and_counted_if_it_fits(url, workers):
    """The fastest that fits is predicted at more than its memory, and than the budget."""
    fastest = min(filter(fits, SPACE.configs(record().device_facts)), key=simulated.step_seconds)
    wrong = Scripted(lambda config: 1.3 if config == fastest else 1.0)
    result, trials = told(url, workers, wrong, seed=3, objectives=tuple(Objective))
    sources = [trial.source for trial in trials if trial.config == fastest]
    assert sources == [Source.PREDICTED, Source.RUN]
    assert fastest in result.refusals.checked & result.refusals.false
    assert "1 fitted (1 refused wrongly)" in refusals_text(result.refusals)
    assert fastest in {trial.config for trial in result.front}


def test_refusals_outlive_the_session_and_are_not_asked_again(url, workers):
    _, first = told(url, workers, Scripted(), trials=8)
    refused = {trial.config for trial in first if trial.source == Source.PREDICTED}
    result, second = told(url, workers, Scripted())
    assert refused <= result.refusals.refused
    again = [t for t in second if t.config in refused]
    assert all(trial.source == Source.RUN for trial in again)  # a check, at most
    store = SqlStore.open(url)
    stored = [t for t in store.trials("study") if t.source == Source.PREDICTED]
    store.close()
    assert {trial.config for trial in stored} == result.refusals.refused
    assert all("predicted to take" in t.reason or "ran out of memory" in t.reason for t in stored)


def test_a_trial_that_can_no_longer_matter_ends_early_and_is_told_so(url, workers):
    """Simulated steps of 0.14 s and more against a front that is known to 2 %."""
    limits = []
    _, trials = told(url, workers, None, memory_budget_bytes=2**40)
    fastest = min(trials, key=lambda trial: simulated.step_seconds(trial.config))
    for trial in trials:
        if trial.measurement.timing.is_beaten:
            limits.append(simulated.step_seconds(trial.config))
    assert limits
    assert min(limits) > simulated.step_seconds(fastest.config)
    assert not fastest.measurement.timing.is_beaten


def test_the_most_aggressive_config_comes_first_unless_it_has_no_chance(url, workers, tmp_path):
    boldest = most_aggressive(SPACE.configs(record().device_facts))
    _, hopeful = told(url, workers, Scripted(), trials=4)
    other = f"sqlite:///{tmp_path}/other.db"
    _, hopeless = told(other, workers, Scripted(lambda config: 60.0), trials=4)
    assert boldest in {trial.config for trial in hopeful[:2]}
    assert boldest not in {trial.config for trial in hopeless[:2]}
