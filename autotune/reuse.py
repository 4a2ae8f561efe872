"""What earlier trials already answer: the same config, or a surely smaller one. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.records import StoredMeasurement, TrialRecord
from search_spaces import TrainingConfig
from trials.measurement import Outcome, Where


def answer_from(
    stored: Sequence[StoredMeasurement], memory_budget_bytes: int
) -> StoredMeasurement | None:
    """Return a stored measurement that holds under a memory budget, newest first.

    One that completed holds under every budget that its peak keeps to; one that ran out of
    device memory holds under every budget not larger than its own. What broke is run again,
    and so is what was invalid: its cause may lie outside of the config, and be mended by now. A
    time that is known badly, from a busy machine, is measured again.
    """
    return next((s for s in stored if _holds_under(s, memory_budget_bytes)), None)


def _holds_under(stored: StoredMeasurement, budget_bytes: int) -> bool:
    measurement = stored.measurement
    if measurement.is_worth_another_run or measurement.outcome == Outcome.INVALID:
        return False
    if measurement.outcome == Outcome.OUT_OF_MEMORY:
        is_on_device = measurement.failure is not None and measurement.failure.where != Where.HOST
        allowed = stored.memory_budget_bytes
        return is_on_device and allowed is not None and budget_bytes <= allowed
    if measurement.memory is None or measurement.outcome != Outcome.COMPLETED:
        return True
    if measurement.timing is not None and not measurement.timing.is_precise:
        return False
    needed = measurement.memory.peak_reserved_bytes or measurement.memory.peak_device_bytes
    return needed <= budget_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLarge:
    """Why a config is not run: a smaller one ran out of memory.

    Attributes:
        reason: In words, naming the trial.
        attempted_bytes: Device memory that the smaller one would have needed at least.
    """

    reason: str
    attempted_bytes: int


def surely_too_large(config: TrainingConfig, trials: Iterable[TrialRecord]) -> TooLarge | None:
    """Return why a config cannot fit, given what ran out of memory; None if it may.

    The effect of two knobs has a known sign: a larger micro-batch keeps more activations, and
    accumulating (two steps or more, against one) keeps the gradients through the next forward
    pass. Everything else must be equal.
    """
    for trial in trials:
        is_witness = trial.is_measured and trial.outcome == Outcome.OUT_OF_MEMORY
        if is_witness and _is_at_least_as_large(config, trial.config):
            assert trial.measurement is not None and trial.measurement.failure is not None
            attempted = trial.measurement.failure.attempted_bytes
            if attempted is not None:
                return TooLarge(
                    reason=f"not run: trial {trial.number} ({trial.config}) ran out of memory, "
                    "and this is at least as large in every knob",
                    attempted_bytes=attempted,
                )
    return None


def _is_at_least_as_large(config: TrainingConfig, other: TrainingConfig) -> bool:
    same = {"micro_batch_size": 1, "accumulation_steps": 1}
    return (
        config.with_knobs(same) == other.with_knobs(same)
        and config.micro_batch_size >= other.micro_batch_size
        and (config.accumulation_steps > 1) >= (other.accumulation_steps > 1)
    )
