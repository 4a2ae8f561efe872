import math
from dataclasses import replace

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from autotune.errors import SettingsError, StudyMismatchError
from autotune.objective import Verdict, predicted_verdict
from autotune.optimizer.sampler import SAMPLERS, knob_distributions
from autotune.optimizer.storage import delete_optuna_study, open_storage
from autotune.optimizer.study import OptunaStudy
from autotune.records import Objective, Scores
from search_spaces import PRESETS, DeviceFacts, SearchSpace, TrainingConfig, load_space
from tests.factories import MIB, make_study_record
from trials.measurement import Direction

COST, THROUGHPUT, QUALITY = Objective
QUICK = [name for name in SAMPLERS if name != "gp"]
DRAWING = [name for name in QUICK if name != "grid"]
STEERED = [name for name in DRAWING if name != "nsga2"]
SPACE_OF_24 = SearchSpace.of(
    {
        "amp_dtype": ["fp32", "bf16"],
        "checkpoint_interval": [0, 1, 4],
        "micro_batch_size": [1, 2, 4, 8],
    },
    global_batch_size=8,
)
ODD_SPACE = SearchSpace.of({"micro_batch_size": [1, 3, 7, 50], "checkpoint_interval": [0, 1, 9]})
FREE_SPLIT = SearchSpace.of({"micro_batch_size": [1, 4], "accumulation_steps": [1, 2, 8]})
SPACES = {
    **{name: load_space(name, global_batch_size=8) for name in PRESETS},
    "odd": ODD_SPACE,
    "split": FREE_SPLIT,
}
FITTING = {"host_memory": 0.0, "memory": -0.2, "quality": 0.0, "valid": 0.0}
OUT_OF_MEMORY = predicted_verdict(900 * MIB, 600 * MIB)


def configs_of(space):
    return space.configs(DeviceFacts())


def open_study(storage=None, space=SPACE_OF_24, quality=Direction.MINIMIZE, **spec):
    record = replace(make_study_record().spec, space=space, **spec)
    return OptunaStudy(storage or InMemoryStorage(), record, configs_of(space), quality)


def good(config=None):
    """A feasible verdict; larger micro-batches are faster and cheaper."""
    speed = 10.0 if config is None else 10.0 + math.log2(config.micro_batch_size)
    scores = Scores(
        cost_usd_per_million_samples=100 / speed, throughput_samples_per_second=speed, quality=2.5
    )
    return Verdict(scores=scores, constraints=FITTING)


def ask_all(study, count):
    return [study.ask()[1] for _ in range(count)]


def tell(study, number, verdict, seen=()):
    study.tell(number, verdict, seen, {"outcome": "told"})


def run(study, count, judge):
    """Ask and tell one trial after the other; return the configs."""
    configs = []
    for _ in range(count):
        number, config, _ = study.ask()
        tell(study, number, judge(config))
        configs.append(config)
    return configs


def stored_trials(storage):
    return optuna.load_study(study_name="study", storage=storage).get_trials(deepcopy=False)


class MortalStorage(InMemoryStorage):
    """A storage whose driver dies before it writes what is named."""

    dies_before = ""

    def set_trial_system_attr(self, trial_id, key, value):
        self._die_before(key)
        super().set_trial_system_attr(trial_id, key, value)

    def set_trial_state_values(self, trial_id, state, values=None):
        self._die_before(state.name)
        return super().set_trial_state_values(trial_id, state, values)

    def _die_before(self, name):
        if name == self.dies_before:
            raise KeyboardInterrupt


@pytest.fixture
def storage(tmp_path):
    return open_storage(f"sqlite:///{tmp_path}/studies.db")


@pytest.mark.parametrize("sampler", QUICK)
@pytest.mark.parametrize("name", SPACES)
def test_only_members_of_the_space_are_proposed(name, sampler):
    members = set(configs_of(SPACES[name]))
    study = open_study(space=SPACES[name], sampler=sampler)
    asked = run(study, min(20, len(members)), good)
    assert set(asked) <= members
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("sampler", QUICK)
def test_eight_workers_run_each_of_24_configs_once(sampler):
    study, asked, in_flight = open_study(sampler=sampler), [], []
    for _ in range(24):
        in_flight.append(study.ask())
        asked.append(in_flight[-1][1])
        if len(in_flight) == 8:
            number, config, _ = in_flight.pop(0)
            tell(study, number, good(config))
    assert len(set(asked)) == 24
    assert study.open_configs() == []


def test_the_grid_goes_through_the_space_in_order():
    assert run(open_study(sampler="grid"), 24, good) == list(configs_of(SPACE_OF_24))


def test_closed_configs_are_never_proposed():
    study = open_study()
    closed = configs_of(SPACE_OF_24)[::2]
    study.close_configs(closed)
    asked = run(study, len(study.open_configs()), good)
    assert len(asked) == 12
    assert not set(asked) & set(closed)


def test_enqueued_configs_come_first_and_in_order():
    study = open_study()
    wanted = [configs_of(SPACE_OF_24)[place] for place in (17, 3, 11)]
    for config in wanted:
        study.enqueue(config)
    assert study.num_waiting() == 3
    assert ask_all(study, 3) == wanted
    assert study.num_waiting() == 0


def test_an_enqueued_config_is_not_proposed_again():
    study = open_study()
    study.enqueue(configs_of(SPACE_OF_24)[5])
    assert len(set(ask_all(study, 24))) == 24


def test_a_config_that_was_lost_is_asked_again_with_its_attempt():
    study = open_study()
    number, config, attempt = study.ask()
    study.fail(number, "slot died")
    study.enqueue(config, attempt + 1)
    assert study.ask()[1:] == (config, 2)


def test_accumulation_that_follows_from_the_micro_batch_is_no_choice():
    distributions = knob_distributions(configs_of(SPACE_OF_24))
    assert list(distributions) == ["amp_dtype", "checkpoint_interval", "micro_batch_size"]


def test_accumulation_that_is_free_is_a_choice():
    distributions = knob_distributions(configs_of(FREE_SPLIT))
    assert list(distributions) == ["micro_batch_size", "accumulation_steps"]


def test_a_space_of_one_config_keeps_one_parameter_to_tell_an_asked_trial_by():
    assert list(knob_distributions([TrainingConfig(optimizer_bits=8)])) == ["micro_batch_size"]


def test_numbers_are_ordered_and_names_are_not():
    distributions = knob_distributions(configs_of(SPACE_OF_24))
    assert distributions["micro_batch_size"] == IntDistribution(1, 8, log=True)
    assert distributions["checkpoint_interval"] == IntDistribution(0, 4)
    assert distributions["amp_dtype"] == CategoricalDistribution(["bf16", "fp32"])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_space_of_one_config_works(sampler):
    only = TrainingConfig(micro_batch_size=3, accumulation_steps=2)
    space = SearchSpace.of({name: [value] for name, value in only.as_dict().items()})
    study = open_study(space=space, sampler=sampler)
    assert run(study, 1, good) == [only]
    assert study.open_configs() == []


@pytest.mark.parametrize("sampler", DRAWING)
def test_the_same_seed_proposes_the_same_configs(sampler):
    proposals = [run(open_study(seed=seed, sampler=sampler), 15, good) for seed in (7, 7, 8)]
    assert proposals[0] == proposals[1] != proposals[2]


@pytest.mark.parametrize("sampler", QUICK)
def test_a_resumed_study_does_not_repeat_its_suggestions(sampler):
    storage = InMemoryStorage()
    first = run(open_study(storage, sampler=sampler), 5, good)
    assert run(open_study(storage, sampler=sampler), 5, good) != first


BEGUN_WITH = (
    "begun with objectives cost (minimize), throughput (maximize), quality (minimize), not"
)


@pytest.mark.parametrize(
    ("objectives", "quality", "words"),
    [
        ((COST, QUALITY), "minimize", "cost (minimize), quality (minimize);"),
        ((COST, QUALITY, THROUGHPUT), "minimize", "cost (minimize), quality (minimize), throu"),
        ((THROUGHPUT, COST, QUALITY), "minimize", "throughput (maximize), cost (minimize), qual"),
        (tuple(Objective), "maximize", "cost (minimize), throughput (maximize), quality (max"),
    ],
)
def test_other_objectives_or_directions_on_resume_are_refused_naming_both(
    objectives, quality, words
):
    storage = InMemoryStorage()
    open_study(storage)
    with pytest.raises(StudyMismatchError) as caught:
        open_study(storage, objectives=objectives, quality=Direction(quality))
    assert f"{BEGUN_WITH} {words}" in str(caught.value)


def test_other_objectives_of_the_same_directions_are_refused_naming_both():
    storage = InMemoryStorage()
    open_study(storage, objectives=(COST,))
    with pytest.raises(StudyMismatchError, match=r"cost \(minimize\), not quality \(minimize\)"):
        open_study(storage, objectives=(QUALITY,))


def test_a_study_whose_driver_died_before_naming_its_objectives_goes_on():
    storage = InMemoryStorage()
    optuna.create_study(
        storage=storage, study_name="study", directions=["minimize", "maximize", "minimize"]
    )
    assert open_study(storage).ask()[0] == 0


def test_an_unknown_sampler_names_the_nearest_known():
    with pytest.raises(SettingsError, match="no sampler 'tpee'; did you mean 'tpe'"):
        open_study(sampler="tpee")


@pytest.mark.parametrize("sampler", QUICK)
def test_ten_trials_out_of_memory_then_ten_good_work_with_three_objectives(sampler):
    storage = InMemoryStorage()
    study = open_study(storage, sampler=sampler)
    verdicts = [OUT_OF_MEMORY] * 10 + [good()] * 10
    run(study, 20, lambda config: verdicts.pop(0))
    found = stored_trials(storage)
    assert {trial.state for trial in found} == {TrialState.COMPLETE}
    assert all(math.isfinite(value) for trial in found for value in trial.values)


def test_every_trial_carries_the_same_constraints(storage):
    study = open_study(storage)
    verdicts = [OUT_OF_MEMORY, good()]
    run(study, 2, lambda config: verdicts.pop(0))
    told = [trial.constraints for trial in stored_trials(storage)]
    assert [sorted(constraints) for constraints in told] == [sorted(FITTING)] * 2
    assert told[0]["memory"] == pytest.approx(0.5)


def test_an_infeasible_trial_is_told_with_the_worst_seen():
    storage = InMemoryStorage()
    study = open_study(storage)
    seen = [good(config).scores for config in configs_of(SPACE_OF_24)]
    tell(study, study.ask()[0], OUT_OF_MEMORY, seen)
    assert stored_trials(storage)[0].values == [10.0, 10.0, 2.5]


@pytest.mark.parametrize("sampler", STEERED)
def test_trials_out_of_memory_make_later_proposals_avoid_large_ones(sampler):
    """Half of the space does not fit: that much is what a blind search would propose."""
    space = load_space("default", global_batch_size=128)

    def judge(config):
        violation = config.micro_batch_size * 60 * MIB / (800 * MIB) - 1  # fits up to 8
        scores = Scores() if violation > 0 else good(config).scores
        return replace(good(), scores=scores, constraints={**FITTING, "memory": violation})

    asked = run(open_study(space=space, sampler=sampler), 60, judge)
    assert sum(config.micro_batch_size > 8 for config in asked[20:]) <= 4


def test_what_is_expected_not_to_fit_is_still_asked_when_nothing_else_is_left():
    asked = run(open_study(), 24, lambda c: good() if c.micro_batch_size < 2 else OUT_OF_MEMORY)
    assert len(set(asked)) == 24


@pytest.mark.parametrize("write", ["constraints:memory", "COMPLETE"])
def test_a_trial_is_told_again_after_its_driver_died_while_telling(write):
    storage = MortalStorage()
    study = open_study(storage)
    number, _, _ = study.ask()
    storage.dies_before = write
    with pytest.raises(KeyboardInterrupt):
        tell(study, number, OUT_OF_MEMORY)
    storage.dies_before = ""
    tell(open_study(storage), number, OUT_OF_MEMORY)
    assert stored_trials(storage)[0].state == TrialState.COMPLETE
    assert stored_trials(storage)[0].constraints == OUT_OF_MEMORY.constraints


def test_a_trial_that_is_told_already_is_left_as_it_is():
    storage = InMemoryStorage()
    study = open_study(storage)
    number, config, _ = study.ask()
    tell(study, number, good(config))
    tell(open_study(storage), number, OUT_OF_MEMORY)
    assert stored_trials(storage)[0].constraints == good(config).constraints


def test_a_late_result_of_a_trial_given_up_changes_nothing():
    storage = InMemoryStorage()
    study = open_study(storage)
    number, _, _ = study.ask()
    study.fail(number, "slot died")
    tell(study, number, good())
    assert stored_trials(storage)[0].state == TrialState.FAIL
    assert stored_trials(storage)[0].user_attrs["reason"] == "slot died"


def test_a_resumed_study_knows_what_was_under_way(storage):
    study = open_study(storage)
    told, under_way = study.ask(), study.ask()
    tell(study, told[0], good())
    assert open_study(storage).running() == {under_way[0]: (under_way[1], 1)}


def test_a_trial_whose_asking_was_cut_short_is_failed():
    storage = InMemoryStorage()
    study = open_study(storage)
    optuna.load_study(study_name="study", storage=storage).ask()
    assert study.running() == {}
    study.fail_half_asked("the driver ended while it asked")
    assert [trial.state for trial in stored_trials(storage)] == [TrialState.FAIL]


def test_a_dashboard_sees_the_names_of_the_objectives_and_the_notes(storage):
    study = open_study(storage)
    study.tell(study.ask()[0], good(), [], {"outcome": "completed", "peak_device_mib": 400.0})
    found = optuna.load_study(study_name="study", storage=storage)
    assert found.metric_names == ["cost", "throughput", "quality"]
    attributes = found.get_trials()[0].user_attrs
    assert (attributes["outcome"], attributes["peak_device_mib"]) == ("completed", 400.0)


def test_deleting_a_study_removes_its_trials_and_is_quiet_when_there_is_none(storage):
    open_study(storage).ask()
    for _ in range(2):
        delete_optuna_study(storage, "study")
    assert storage.get_all_studies() == []


@pytest.mark.parametrize(("may_idle_seconds", "made_ahead"), [(0.0, 1), (60.0, 0)])
def test_a_proposal_that_takes_long_is_made_while_trials_run_and_a_quick_one_is_not(
    may_idle_seconds, made_ahead
):
    study = open_study(sampler="random")
    number, first, _ = study.ask()
    before = study._num_proposals
    study.prepare(may_idle_seconds)
    assert study._num_proposals - before == made_ahead
    tell(study, number, good())
    _, second, _ = study.ask()
    assert study._num_proposals - before == 1  # the one made ahead, though it knows less
    assert second != first


def test_what_is_made_ahead_is_dropped_once_it_is_closed():
    study = open_study(sampler="random")
    study.ask()
    study.prepare(0.0)
    ahead = study._proposal.config
    study.close_configs([ahead])
    assert study.ask()[1] != ahead


def test_a_config_is_worth_a_gain_to_the_sampler_that_knows_one():
    study = open_study(sampler="frontier")
    assert study.expected_gain() is None  # before anything is there
    run(study, 3, good)
    gain = study.expected_gain()
    assert gain.relative >= 0 and study.expected_gain() == gain
    assert open_study(sampler="tpe").expected_gain() is None
