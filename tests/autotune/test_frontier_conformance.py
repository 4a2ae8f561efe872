"""Optuna's own suite for samplers, on the sampler that starts from physics."""

import pytest
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
)

from autotune.optimizer.frontier.prior import ConfigPrior, Target
from autotune.optimizer.frontier.sampler import FrontierSampler
from autotune.optimizer.sampler import knob_distributions
from search_spaces import DeviceFacts, SearchSpace

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
SPACE = SearchSpace.of(
    {"micro_batch_size": [1, 2, 4], "checkpoint_interval": [0, 1]}, global_batch_size=4
)
CONFIGS = list(SPACE.configs(DeviceFacts()))


def made():
    return FrontierSampler(
        CONFIGS,
        knob_distributions(CONFIGS),
        objectives=[Target(name="throughput", is_minimized=False)],
        priors=[ConfigPrior(peak_device_bytes=2.0**20, step_seconds=0.1) for _ in CONFIGS],
        memory_budget_bytes=2**30,
    )


class TestFrontierSampler(
    BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase
):
    @pytest.fixture
    def sampler(self):
        return made
