import logging
import math
from dataclasses import replace

import numpy as np
import optuna
import pytest

from autotune.optimizer.frontier import sampler as frontier_sampler
from autotune.optimizer.frontier.beliefs import Belief, Guess, Usual
from autotune.optimizer.frontier.choice import Outlook, best_choice
from autotune.optimizer.frontier.gain import hypervolume, improvement, is_beaten
from autotune.optimizer.frontier.prior import ConfigPrior, Target
from autotune.optimizer.frontier.sampler import FrontierSampler
from autotune.optimizer.sampler import knob_distributions
from search_spaces import DeviceFacts, SearchSpace

MIB = 2**20
BUDGET = 100 * MIB
MOST = 24
SPACE = SearchSpace.of(
    {
        "amp_dtype": ["fp32", "bf16"],
        "checkpoint_interval": [0, 1, 2, 4],
        "micro_batch_size": [1, 2, 4, 8, 16, 32],
        "optimizer_bits": [8, 32],
    },
    global_batch_size=32,
)
CONFIGS = list(SPACE.configs(DeviceFacts()))
TARGETS = [
    Target(name="throughput", is_minimized=False),
    Target(name="peak_memory", is_minimized=True),
]


def truth(config):
    """Peak and step time of a made-up machine."""
    kept = 1.0 if config.checkpoint_interval == 0 else 0.3 + 0.1 * config.checkpoint_interval
    width = 0.6 if config.amp_dtype == "bf16" else 1.0
    peak = 10 + config.optimizer_bits + 6 * config.micro_batch_size * kept * width
    again = 1.0 if config.checkpoint_interval == 0 else 1.3
    slow = 1.2 if config.optimizer_bits == 8 else 1.0
    return peak * MIB, again * slow * width * (0.02 * 32 + 0.6 * 32 / config.micro_batch_size)


def priors(turned=False):
    found = np.log([truth(config) for config in CONFIGS])
    found = 2 * found.mean(axis=0) - found if turned else found
    return [ConfigPrior(peak_device_bytes=peak, step_seconds=step) for peak, step in np.exp(found)]


def make(known=None, seed=0):
    return FrontierSampler(
        CONFIGS,
        knob_distributions(CONFIGS),
        objectives=TARGETS,
        priors=known,
        memory_budget_bytes=BUDGET,
        seed=seed,
    )


def begin(sampler):
    return optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)


def config_of(params):
    return next(c for c in CONFIGS if params.items() <= c.as_dict().items())


def run(study, count):
    """Run trials; return the configs that were tried."""
    tried = []
    for _ in range(count):
        trial = study.ask(fixed_distributions=knob_distributions(CONFIGS))
        config = config_of(trial.params)
        peak, step = truth(config)
        trial.set_constraint("memory", peak / BUDGET - 1)
        study.tell(trial, [32 / step, peak])
        tried.append(config)
    return tried


def trials_to(share, known, seed=0):
    """Return how many trials it took to have a share of the best hypervolume."""
    points = np.log([[step, peak] for peak, step in map(truth, CONFIGS)])
    points = points[points[:, 1] <= math.log(BUDGET)]
    reference = points.max(axis=0)
    whole = hypervolume(points[~is_beaten(points)], reference)
    tried = run(begin(make(known, seed)), MOST)
    for count in range(1, MOST + 1):
        found = np.log([[step, peak] for peak, step in map(truth, tried[:count])])
        found = found[found[:, 1] <= math.log(BUDGET)]
        if hypervolume(found, reference) >= share * whole:
            return count
    return MOST + 1


def test_a_good_prior_finds_the_front_in_fewer_trials_than_none():
    assert trials_to(0.95, priors()) < trials_to(0.95, None)


def test_a_prior_turned_round_costs_a_bounded_number_of_trials():
    assert trials_to(0.95, priors(turned=True)) <= trials_to(0.95, None) + 8


def test_a_good_prior_avoids_what_does_not_fit():
    tried = run(begin(make(priors())), 15)
    assert sum(truth(config)[0] > BUDGET for config in tried) <= 1


@pytest.mark.parametrize(("overruns", "row"), [(0, 2), (1, 1), (2, 0), (9, 0)])
def test_each_trial_that_ran_out_of_memory_makes_it_more_careful(overruns, row):
    losses = np.array([[3.0, 3.0], [2.0, 2.0], [1.0, 1.0], [0.0, 0.0]])
    outlook = Outlook(
        draws=losses[None],
        means=losses,
        fits=np.array([0.99, 0.9, 0.7, 0.5]),
        seconds=None,
        is_open=np.ones(4, dtype=bool),
        overruns=overruns,
    )
    assert best_choice(outlook, np.array([[4.0, 4.0]]), []).row == row


@pytest.mark.parametrize(("notes", "overruns"), [({}, 1), ({"source": "predicted"}, 0)])
def test_only_what_really_ran_out_of_memory_makes_it_more_careful(notes, overruns):
    study = begin(make(priors()))
    trial = study.ask(fixed_distributions=knob_distributions(CONFIGS))
    for name, value in notes.items():
        trial.set_user_attr(name, value)
    trial.set_constraint("memory", 0.5)
    study.tell(trial, [1.0, 1.5 * BUDGET])
    blank = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
    seen = study.sampler._seen(study, blank)
    assert (seen.num_overruns, len(seen.overran)) == (overruns, 1)


def test_what_measurements_contradict_loses_its_say():
    features = np.linspace(0, 1, 20)[:, None]
    belief = Belief(
        features,
        Guess(4 * features[:, 0], np.zeros((len(features), 0))),
        Usual(bias=0.1, error=0.1, noise=0.02),
    )
    belief.expect([], [])
    assert belief.weight > 0.5
    belief.expect([0, 6, 12, 19], [4.0, 2.7, 1.4, 0.0])
    assert belief.weight < 0.01


def test_what_puts_one_prediction_off_puts_off_those_of_the_same_cause():
    features = np.array([[0.0], [0.0], [1.0], [1.0]])
    cause = np.array([[0.0], [1.0], [0.0], [1.0]])
    usual = Usual(bias=0.01, error=0.05, noise=0.02)
    belief = Belief(features, Guess(np.zeros(4), cause), usual)
    assert belief.expect([], []).widths[0, 3] > 1.0 > belief.expect([], []).widths[0, 2]
    expected = belief.expect([0, 1], [0.0, 0.8]).mean
    assert expected[3] > 0.6 and abs(expected[2]) < 0.1


def test_the_sampler_takes_the_causes_from_the_priors():
    known = [
        replace(prior, peak_errors=(0.1, place / 100), step_errors=(place / 50,))
        for place, prior in enumerate(priors())
    ]
    sampler, places = make(known), np.arange(len(CONFIGS))
    peak, time = sampler._peak._places[0].causes, sampler._beliefs[0]._places[0].causes
    assert peak.shape[1] == 3 and np.allclose(peak[:, 2], places / 100)
    assert time.shape[1] == 2 and np.allclose(time[:, 1], places / 50)


def test_the_same_seed_tries_the_same():
    assert run(begin(make(None, 3)), 8) == run(begin(make(None, 3)), 8)


def test_what_is_under_way_is_not_proposed_again():
    study = begin(make(priors()))
    distributions = knob_distributions(CONFIGS)
    asked = [study.ask(fixed_distributions=distributions).params for _ in range(12)]
    assert len({tuple(params.items()) for params in asked}) == 12


def test_a_model_that_fails_lets_tpe_stand_in_and_says_so(monkeypatch, caplog):
    def broken(*args):
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr(frontier_sampler, "best_choice", broken)
    sampler = make()
    with caplog.at_level(logging.WARNING):
        study = begin(sampler)
        asked = [study.ask(fixed_distributions=knob_distributions(CONFIGS)) for _ in range(3)]
    assert sampler.fallbacks == 3
    assert all(trial.params.keys() == knob_distributions(CONFIGS).keys() for trial in asked)
    assert "multivariate TPE stands in for the frontier model" in caplog.text


def test_another_sampler_of_the_study_goes_on_from_its_trials():
    study = begin(make(priors()))
    first = run(study, 5)
    study.sampler = make(priors())
    assert not set(first) & set(run(study, 5))


def test_three_objectives_with_one_front_point_add_the_box_around_a_point():
    front = np.array([[0.5, 0.5, 0.5]])
    points = np.array([[0.0, 0.0, 0.0], [0.6, 0.6, 0.6], [0.0, 0.9, 0.9]])
    gained = improvement(points, front, np.ones(3))
    assert gained == pytest.approx([1 - 0.125, 0.0, 0.01 - 0.005])


def test_a_front_is_judged_in_the_objectives_own_units():
    """Doubling the fastest config is worth more than doubling the slowest."""
    sampler = make(priors())
    losses = np.array([[-math.log(200.0), math.log(3.0)], [-math.log(2.0), math.log(9.0)]])
    np.testing.assert_allclose(sampler._in_units(losses), [[-200.0, 3.0], [-2.0, 9.0]])
