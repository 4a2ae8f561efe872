from autotune.baselines import first_configs, most_aggressive
from search_spaces import DeviceFacts, SearchSpace, TrainingConfig, load_space

CONFIGS = load_space("default", global_batch_size=8).configs(DeviceFacts())
TODAY = TrainingConfig(micro_batch_size=2, accumulation_steps=4)


def test_todays_config_comes_first():
    assert first_configs(CONFIGS, TODAY)[0] == TODAY


def test_the_safest_then_the_most_aggressive_follow():
    safest, boldest = first_configs(CONFIGS, None)
    assert str(safest) == "fp16, ckpt 1, batch 1x8, 8-bit"
    assert str(boldest) == "fp32, no ckpt, batch 8x1, 32-bit"


def test_checkpointing_more_blocks_is_safer_than_fewer():
    space = SearchSpace.of({"checkpoint_interval": [0, 1, 4]})
    safest, boldest = first_configs(space.configs(DeviceFacts()), None)
    assert (safest.checkpoint_interval, boldest.checkpoint_interval) == (1, 0)


def test_offload_is_safer_than_keeping_the_state():
    space = SearchSpace.of({"offload_target": ["none", "cpu"]})
    safest, boldest = first_configs(tuple(space.combinations()), None)
    assert (safest.offload_target, boldest.offload_target) == ("cpu", "none")


def test_a_config_that_is_two_of_them_comes_once():
    safest, boldest = first_configs(CONFIGS, None)
    assert first_configs(CONFIGS, boldest) == [boldest, safest]


def test_a_space_of_one_config_has_one_first_config():
    assert first_configs([TODAY], TODAY) == [TODAY]


def test_todays_config_may_lie_outside_the_space():
    outside = TrainingConfig(micro_batch_size=3)
    assert first_configs(CONFIGS, outside)[0] == outside


class Hopeless:
    """Holds one config for too large."""

    def __init__(self, config):
        self._config = config

    def is_hopeless(self, config):
        return config == self._config


def test_the_most_aggressive_is_left_out_where_it_surely_does_not_fit():
    safest, boldest = first_configs(CONFIGS, None)
    assert most_aggressive(CONFIGS) == boldest
    assert first_configs(CONFIGS, None, Hopeless(boldest)) == [safest]
    assert first_configs(CONFIGS, TODAY, Hopeless(safest)) == [TODAY, safest, boldest]


def test_todays_config_is_tried_whatever_is_predicted_of_it():
    _, boldest = first_configs(CONFIGS, None)
    assert first_configs(CONFIGS, boldest, Hopeless(boldest))[0] == boldest
