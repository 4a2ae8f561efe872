import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import (
    DeviceFacts,
    EmptySpaceError,
    InvalidConfigError,
    SearchSpace,
    TrainingConfig,
    load_space,
)

CPU = DeviceFacts()


@given(st.sets(st.integers(1, 64), min_size=1, max_size=5), st.integers(1, 512), st.integers(1, 9))
def test_every_config_reaches_the_global_batch_or_the_space_names_what_would(
    micros, batch, num_devices
):
    def build(global_batch_size):
        return SearchSpace.of(
            {"micro_batch_size": sorted(micros)},
            global_batch_size=global_batch_size,
            num_devices=num_devices,
        )

    try:
        space = build(batch)
    except EmptySpaceError as error:
        nearest = str(error).rpartition(": ")[2].split(" and ")
        assert all(build(int(near)).configs(CPU) for near in nearest)
    else:
        assert {c.effective_batch_size(num_devices) for c in space.configs(CPU)} == {batch}


def test_a_global_batch_out_of_reach_names_the_nearest_that_are_not():
    with pytest.raises(EmptySpaceError, match=r"global batch 256 .* 252 and 259"):
        SearchSpace.of({"micro_batch_size": [1, 2, 4]}, global_batch_size=256, num_devices=7)


def test_explicit_accumulation_steps_are_kept_to_the_global_batch():
    space = SearchSpace.of(
        {"micro_batch_size": [1, 2, 4], "accumulation_steps": [1, 2]}, global_batch_size=4
    )
    splits = [(c.micro_batch_size, c.accumulation_steps) for c in space.configs(CPU)]
    assert splits == [(2, 2), (4, 1)]


def test_without_a_global_batch_micro_batch_and_accumulation_are_free():
    space = SearchSpace.of({"micro_batch_size": [1, 2], "accumulation_steps": [1, 4]})
    assert len(space.configs(CPU)) == 4


def test_the_hash_ignores_the_name_and_nothing_else():
    knobs = {"micro_batch_size": [1, 2]}
    space = SearchSpace.of(knobs, name="a", global_batch_size=4)
    assert space.hash == SearchSpace.of(knobs, name="b", global_batch_size=4).hash
    assert space.hash != SearchSpace.of(knobs, name="a", global_batch_size=8).hash
    assert space.hash != space.pinned({"micro_batch_size": 1}).hash


def test_a_space_survives_its_dictionary():
    space = load_space("full", global_batch_size=16, num_devices=2)
    assert SearchSpace.from_mapping(space.as_dict()) == space


def test_each_excluded_combination_carries_its_reason():
    space = SearchSpace.of({"offload_target": ["none", "cpu"], "micro_batch_size": [1, 2]})
    exclusions = space.exclusions(CPU)
    assert [e.config.micro_batch_size for e in exclusions] == [1, 2]
    assert all("offload_target=cpu needs zero_stage" in e.reason for e in exclusions)


def test_stages_and_targets_may_be_listed_together_though_some_pairs_cannot_work():
    space = SearchSpace.of(
        {"zero_stage": [0, 1, 2, 3], "offload_target": ["none", "cpu", "nvme"]},
        global_batch_size=8,
    )
    pairs = {(c.zero_stage, str(c.offload_target)) for c in space.configs(DeviceFacts())}
    assert pairs == {
        *((stage, "none") for stage in range(4)),
        *((stage, "cpu") for stage in (1, 2, 3)),
        (3, "nvme"),
    }


def test_a_space_with_nothing_to_try_gives_the_reasons():
    space = SearchSpace.of({"offload_target": ["nvme"]})
    with pytest.raises(EmptySpaceError, match=r"nothing to try .* offload_target=nvme"):
        space.configs(CPU)


def test_configs_come_in_the_same_order_each_time():
    space = load_space("default", global_batch_size=8)
    assert space.configs(CPU) == load_space("default", global_batch_size=8).configs(CPU)
    assert len(space.configs(CPU)) == 3 * 4 * 4 * 2


def test_pinning_a_knob_holds_it_at_one_value():
    space = load_space("default", global_batch_size=8).pinned({"checkpoint_interval": 2})
    assert {c.checkpoint_interval for c in space.configs(CPU)} == {2}


def test_including_a_config_makes_it_a_point_of_the_space():
    config = TrainingConfig(micro_batch_size=3, accumulation_steps=4, checkpoint_interval=5)
    space = SearchSpace.of({"micro_batch_size": [1, 2]}, global_batch_size=12)
    assert config in space.including(config).configs(CPU)


@pytest.mark.parametrize("bad", [{"global_batch_size": 0}, {"num_devices": 0}])
def test_a_batch_or_world_below_one_is_refused_by_name(bad):
    with pytest.raises(InvalidConfigError, match=f"{next(iter(bad))}=0"):
        SearchSpace.of({"micro_batch_size": [1]}, **bad)


def test_a_knob_without_values_is_refused():
    with pytest.raises(InvalidConfigError, match="micro_batch_size has no values"):
        SearchSpace.of({"micro_batch_size": []})


def test_an_unknown_key_of_a_space_is_named():
    with pytest.raises(InvalidConfigError, match="'global_batch' in the space; did you mean"):
        SearchSpace.from_mapping({"global_batch": 8, "knobs": {"micro_batch_size": [1]}})
