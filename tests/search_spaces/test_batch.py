import pytest

from search_spaces import InvalidConfigError, config_of_batch


@pytest.mark.parametrize(
    ("knobs", "split"),
    [
        ({}, (12, 1)),
        ({"micro_batch_size": 4}, (4, 3)),
        ({"micro_batch_size": "12"}, (12, 1)),
        ({"accumulation_steps": 6}, (2, 6)),
        ({"micro_batch_size": 5, "accumulation_steps": 2}, (5, 2)),
    ],
    ids=str,
)
def test_the_split_that_is_not_given_follows_from_the_global_batch(knobs, split):
    config = config_of_batch({**knobs, "optimizer_bits": 8}, 12)
    assert (config.micro_batch_size, config.accumulation_steps) == split
    assert config.optimizer_bits == 8


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"micro_batch_size": 5}, "micro_batch_size=5 does not divide the global batch of 12"),
        ({"micro_batch_size": 5}, "the nearest that do: 4 and 6;"),
        ({"micro_batch_size": 64}, "the nearest that do: 12;"),
        ({"accumulation_steps": 7}, "accumulation_steps=7 does not .* that do: 6 and 12;"),
    ],
)
def test_what_does_not_divide_the_batch_is_refused_with_the_nearest_that_do(knobs, words):
    with pytest.raises(InvalidConfigError, match=words):
        config_of_batch(knobs, 12)


def test_the_batch_is_that_of_all_devices():
    config = config_of_batch({"micro_batch_size": 2}, 12, num_devices=2)
    assert config.effective_batch_size(2) == 12
    assert config_of_batch({}, 12, num_devices=3).micro_batch_size == 4


@pytest.mark.parametrize(
    ("knobs", "devices", "words"),
    [
        ({}, 5, "5 devices do not divide the global batch of 12; the nearest .* that do: 4 and 6"),
        ({"micro_batch_size": 4}, 2, "divide the global batch of 6 that each device has"),
    ],
)
def test_devices_that_do_not_divide_the_batch_are_refused(knobs, devices, words):
    with pytest.raises(InvalidConfigError, match=words):
        config_of_batch(knobs, 12, devices)


def test_a_huge_batch_is_refused_at_once():
    with pytest.raises(InvalidConfigError, match=r"nearest that do: 2 and 4;"):
        config_of_batch({"micro_batch_size": 3}, 2**62)
