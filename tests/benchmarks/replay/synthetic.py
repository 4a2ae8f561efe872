"""A made-up table for tests: the shape of a real one, in no time."""

from autotune.rates import Rates
from search_spaces import DeviceFacts, SearchSpace, TrainingConfig
from tests.benchmarks.replay.table import FORMAT, Axis, Entry, Header, Prior, Span, Table
from trials.environment import Environment
from trials.measurement import Direction, Outcome

MIB = 2**20
BUDGET = 40 * MIB
BATCH = 16


def synthetic_table() -> Table:
    """Return a table of 40 configs, of which those with the largest peaks do not fit."""
    space = SearchSpace.of(
        {
            "checkpoint_interval": [0, 1, 2, 4],
            "micro_batch_size": [1, 2, 4, 8, 16],
            "optimizer_bits": [32, 8],
        },
        name="synthetic",
        global_batch_size=BATCH,
    )
    configs = space.configs(DeviceFacts())
    header = Header(
        format=FORMAT,
        name="synthetic",
        workload="none",
        space=space,
        objectives=(Axis.THROUGHPUT, Axis.PEAK_MEMORY),
        quality_direction=Direction.MINIMIZE,
        memory_budget_bytes=BUDGET,
        rates=Rates(
            device_usd_per_hour=1.0,
            device_gib_usd_per_hour=0.0,
            host_gib_usd_per_hour=0.0,
            nvme_gib_usd_per_hour=0.0,
            dated="2026-12-01",
        ),
        noise={"step_seconds": 0.0, "peak_device_bytes": 0.0, "runs": 0},
        environment=Environment(
            device_kind="cpu",
            device_name="none",
            device_memory_bytes=2**30,
            num_threads=1,
            python="3.11",
            torch="2.13",
        ),
        date="2026-12-01",
        how="by arithmetic",
    )
    return Table(header, tuple(_entry(config) for config in configs))


def _entry(config: TrainingConfig) -> Entry:
    kept = config.checkpoint_interval / 4 if config.checkpoint_interval else 1.25
    peak = round(MIB * (6 + config.optimizer_bits / 4 + 3 * config.micro_batch_size * kept))
    step = 0.1 * (1 + 0.3 * (config.checkpoint_interval == 1) + 2 / config.micro_batch_size)
    step *= 1.1 if config.optimizer_bits == 8 else 1.0
    fits = peak <= BUDGET
    return Entry(
        config=config,
        outcome=Outcome.COMPLETED if fits else Outcome.OUT_OF_MEMORY,
        trial_seconds=0.5 + 5 * step if fits else 0.5,
        peak_device_bytes=peak if fits else None,
        step_seconds=Span(mean=step, low=0.95 * step, high=1.05 * step) if fits else None,
        samples_per_second=BATCH / step if fits else None,
        cost_usd_per_million_samples=step / BATCH / 3600 * 1e6 if fits else None,
        constraints={"memory": peak / BUDGET - 1},
        prior=Prior(
            peak_device_bytes=1.1 * peak, step_seconds=0.8 * step, trial_seconds=0.5 + 4 * step
        ),
    )
