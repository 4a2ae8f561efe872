"""What the tables are recorded of: workload, space, objectives and budgets of each."""

from dataclasses import dataclass, field
from pathlib import Path

from autotune.rates import Rates
from search_spaces import SearchSpace
from tests.benchmarks.replay.table import Axis
from trials.spec import TimingPolicy

MIB = 2**20
ROOT = Path(__file__).parents[3]
LLAMA = "tests/assets/workloads/llama_half_m.json"
RATES = Rates(
    device_usd_per_hour=0.01,
    device_gib_usd_per_hour=1.0,
    host_gib_usd_per_hour=0.0,
    nvme_gib_usd_per_hour=0.0,
    dated="2026-12-01",
    book="a device for the price of 10 MiB",
)
"""Memory costs a tiny model what it costs a large one: as much as the device that holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What to record.

    Attributes:
        name: Of the tables' files.
        reference: To the workload, as in ``TrialSpec``; a path is from the repository's root.
        space: Every config of it is run.
        objectives: The first is what the chosen config is best in.
        budgets_bytes: One table for each; none leaves the device's own limit.
        timing: Of each trial.
        preload: Modules that are imported once for all trials, beside those of the workload.
        quality_samples: Trained before evaluation; 0 where quality is no objective.
        rates: Of the cost objective.
    """

    name: str
    reference: str
    space: SearchSpace
    objectives: tuple[Axis, ...] = (Axis.THROUGHPUT, Axis.PEAK_MEMORY)
    budgets_bytes: tuple[int, ...] = ()
    timing: TimingPolicy = field(
        default_factory=lambda: TimingPolicy(max_seconds=1.2, relative_half_width=0.001)
    )
    preload: tuple[str, ...] = ()
    quality_samples: int = 0
    rates: Rates = RATES

    @property
    def workload(self) -> str:
        """The reference, whatever the working directory."""
        return self.reference.replace(LLAMA, str(ROOT / LLAMA))


def _byte_gpt() -> Recipe:
    """Dtype, which blocks recompute, split of a batch of 12, bits, and stepping in backward."""
    knobs = {
        "amp_dtype": ["fp32", "bf16"],
        "checkpoint_interval": [0, 1, 2, 4],
        "checkpoint_deepest": [0, 1, 2, 3],
        "micro_batch_size": [1, 2, 3, 4, 6, 12],
        "optimizer_bits": [32, 8],
        "optimizer_in_backward": ["off", "on"],
    }
    return Recipe(
        name="byte_gpt",
        reference="byte-gpt",
        space=SearchSpace.of(knobs, name="byte_gpt", global_batch_size=12),
        budgets_bytes=(22 * MIB, 19 * MIB, 16 * MIB),
    )


def _vision() -> Recipe:
    """Micro-batch and accumulation are free: large batches are fast, and learn less."""
    knobs = {
        "amp_dtype": ["fp32", "bf16"],
        "checkpoint_interval": [0, 1, 2, 3, 4],
        "micro_batch_size": [1, 2, 4, 8, 16, 32],
        "accumulation_steps": [1, 2, 4],
        "optimizer_bits": [32, 8],
    }
    return Recipe(
        name="vision",
        reference="vision",
        space=SearchSpace.of(knobs, name="vision"),
        objectives=(Axis.THROUGHPUT, Axis.COST, Axis.QUALITY),
        budgets_bytes=(10 * MIB,),
        quality_samples=512,
    )


def _llama() -> Recipe:
    """DeepSpeed's ZeRO-2 with and without offload, beside plain PyTorch."""
    knobs = {
        "amp_dtype": ["fp32", "bf16"],
        "checkpoint_interval": [0, 1, 2, 4],
        "micro_batch_size": [1, 2, 4, 8, 16],
        "optimizer_bits": [32, 8, 4],
        "zero_stage": [0, 2],
        "offload_target": ["none", "cpu"],
        "optimizer_in_backward": ["off", "on"],
    }
    return Recipe(
        name="llama_offload",
        reference=f"huggingface:{LLAMA}?sequence=32",
        space=SearchSpace.of(knobs, name="llama_offload", global_batch_size=16),
        budgets_bytes=(22 * MIB,),
        preload=("transformers.models.llama.modeling_llama", "deepspeed"),
    )


RECIPES = {recipe.name: recipe for recipe in (_byte_gpt(), _vision(), _llama())}
