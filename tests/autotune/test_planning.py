from dataclasses import replace

import pytest

from autotune.planning import configs_of, study_began, within_blocks
from search_spaces import InvalidConfigError, SearchSpace, load_space
from tests.factories import make_config, make_facts, make_study_record
from trials.errors import WorkloadError

DEFAULT = load_space("default", global_batch_size=8)


def study(space=DEFAULT, num_blocks=3, **spec):
    record = make_study_record(facts=make_facts(num_blocks=num_blocks))
    values = {"space": space, "baseline": None, **spec}
    return replace(record, spec=replace(record.spec, **values))


def intervals(record):
    return {config.checkpoint_interval for config in configs_of(record)}


def test_intervals_above_the_number_of_blocks_are_not_tried_and_told_in_one_line():
    whole = study()
    fitted = within_blocks(whole)
    assert intervals(whole) == {0, 1, 2, 4} and intervals(fitted) == {0, 1, 2}
    event = study_began(fitted, 2, whole.spec.space)
    ((reason, count),) = (
        (why, count) for why, count in event.exclusions.items() if "blocks" in why
    )
    assert "more than the workload's 3 blocks is the same as of 3" in reason
    assert count == len(configs_of(whole)) - event.num_configs > 0


def test_as_many_blocks_as_there_are_may_be_left_out_at_once():
    assert intervals(within_blocks(study(num_blocks=4))) == {0, 1, 2, 4}


def test_an_interval_held_above_the_number_of_blocks_is_refused_with_that_number():
    held = study(DEFAULT.pinned({"checkpoint_interval": 8}))
    with pytest.raises(InvalidConfigError, match=r"checkpoint_interval=8: .* give at most 3"):
        within_blocks(held)


def test_deepest_blocks_beyond_those_there_are_are_left_out_too():
    knobs = {"checkpoint_interval": [1], "checkpoint_deepest": [0, 2, 5]}
    fitted = within_blocks(study(SearchSpace.of(knobs, global_batch_size=8)))
    assert {config.checkpoint_deepest for config in configs_of(fitted)} == {0, 2}


@pytest.mark.parametrize(
    ("workload", "is_told_of_blocks"), [("mine.py:Mine", True), ("command:python3 t.py", False)]
)
def test_a_program_is_not_told_to_return_blocks(workload, is_told_of_blocks):
    record = within_blocks(study(num_blocks=0, workload=workload))
    with pytest.raises(WorkloadError, match="hold --set checkpoint_interval=0") as caught:
        configs_of(record)
    assert ("return them from blocks()" in str(caught.value)) == is_told_of_blocks


@pytest.mark.parametrize(
    ("knobs", "pins", "words"),
    [
        (
            {"micro_batch_size": 4, "accumulation_steps": 4},
            {},
            "global batch of 16, and the study's is 8; give --global-batch 16, or a baseline of 8",
        ),
        (
            {"micro_batch_size": 4, "accumulation_steps": 2},
            {"micro_batch_size": 2},
            "it differs from --set micro_batch_size=2; leave that out",
        ),
        (
            {"micro_batch_size": 8, "checkpoint_interval": 4},
            {},
            "checkpoint_interval=4 is above the workload's 3 blocks; 3 recomputes the same",
        ),
        (
            {"micro_batch_size": 8, "optimizer_bits": 4, "zero_stage": 1, "offload_target": "cpu"},
            {},
            "offload_target=cpu needs optimizer_bits=32",
        ),
    ],
)
def test_a_baseline_that_cannot_be_tried_is_told_why_and_what_to_do(knobs, pins, words):
    baseline = make_config().with_knobs({"accumulation_steps": 1, **knobs})
    space = DEFAULT.including(baseline).pinned(pins)
    record = within_blocks(study(space, baseline=baseline))
    with pytest.raises(InvalidConfigError, match="cannot be tried here") as caught:
        configs_of(record)
    assert words in str(caught.value)


def test_a_baseline_is_judged_on_all_devices_of_the_job():
    knobs = {"micro_batch_size": 4, "accumulation_steps": 1, "optimizer_in_backward": "on"}
    baseline = make_config(**knobs)
    space = load_space("default", global_batch_size=8, num_devices=2).including(baseline)
    with pytest.raises(InvalidConfigError, match=r"tried here: .*optimizer_in_backward"):
        configs_of(within_blocks(study(space, baseline=baseline)))
