"""autotune's own sampler on a table: with the table's prior, or with none."""

from autotune.optimizer.frontier.prior import ConfigPrior, Target
from autotune.optimizer.frontier.sampler import FrontierSampler
from autotune.optimizer.sampler import knob_distributions
from tests.benchmarks.replay.samplers import OptunaSearch, Sampler
from tests.benchmarks.replay.table import Entry, Table
from trials.measurement import Direction


def with_prior(table: Table, seed: int) -> Sampler:
    """Return the sampler, told what is predicted of each config."""
    return _made(table, seed, [_prior(entry) for entry in table.entries])


def without_prior(table: Table, seed: int) -> Sampler:
    """Return the sampler without any prediction."""
    return _made(table, seed, None)


def _made(table: Table, seed: int, priors: list[ConfigPrior] | None) -> Sampler:
    inner = FrontierSampler(
        table.configs,
        knob_distributions(table.configs),
        objectives=[
            Target(name=str(axis), is_minimized=direction == Direction.MINIMIZE)
            for axis, direction in zip(table.header.objectives, table.directions, strict=True)
        ],
        priors=priors,
        memory_budget_bytes=table.header.memory_budget_bytes,
        seed=seed,
    )
    return OptunaSearch(inner, table)


def _prior(entry: Entry) -> ConfigPrior:
    return ConfigPrior(
        peak_device_bytes=entry.prior.peak_device_bytes,
        step_seconds=entry.prior.step_seconds,
        trial_seconds=entry.prior.trial_seconds,
        peak_errors=entry.prior.peak_errors,
        step_errors=entry.prior.step_errors,
    )
