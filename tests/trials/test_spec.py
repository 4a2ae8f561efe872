import pytest

from search_spaces import TrainingConfig
from trials.errors import SpecError
from trials.spec import Task, TimingPolicy, TrialSpec


def test_a_spec_survives_its_json():
    spec = TrialSpec(
        workload="byte-gpt",
        config=TrainingConfig(micro_batch_size=4),
        task=Task.QUALITY,
        memory_budget_bytes=2**30,
        cores=(0, 1),
        timing=TimingPolicy(min_steps=5),
    )
    assert TrialSpec.from_json(spec.to_json()) == spec


def test_a_spec_needs_a_workload_alone():
    assert TrialSpec.from_json('{"workload": "byte-gpt"}') == TrialSpec(workload="byte-gpt")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[]", '"workload"'),
        ('{"workload": "a", "sed": 1}', "unknown key 'sed'"),
        ('{"workload": "a", "config": {"amp": 1}}', "unknown knob 'amp'"),
        ('{"workload": "a", "seed": "x"}', "seed='x': must be int"),
        ('{"workload": "a", "task": "guess"}', "task='guess': must be one of measure"),
        ('{"workload": "a", "deadline_seconds": 0}', "deadline_seconds=0"),
        ('{"workload": "a", "memory_budget_bytes": -1}', "memory_budget_bytes=-1"),
        ('{"workload": "a", "task": "profile"}', "needs profile_folder"),
        ('{"workload": "a", "cores": 1}', "cores must be a list"),
        ('{"workload": "a", "timing": {"warm_up_steps": 1}}', "warm_up_steps=1: at least 2"),
    ],
)
def test_a_bad_spec_is_named_with_what_is_wrong(text, words):
    with pytest.raises(SpecError) as caught:
        TrialSpec.from_json(text)
    assert words in str(caught.value)


@pytest.mark.parametrize("change", [{"seed": 1}, {"timing": TimingPolicy(min_steps=9)}])
def test_measurements_of_another_protocol_are_told_apart(change):
    assert TrialSpec(workload="a").protocol != TrialSpec(workload="a", **change).protocol


def test_the_protocol_ignores_where_and_under_which_budget_a_trial_runs():
    plain = TrialSpec(workload="a")
    placed = plain.placed(device="cuda:0", num_threads=4, cores=(1,))
    assert placed.protocol == plain.protocol
