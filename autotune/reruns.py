"""What a second run of a config, in a fresh process, says of its first. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.figures import shown_bytes, shown_number
from autotune.records import StoredMeasurement, TrialRecord
from autotune.summary import failure_words
from trials.measurement import Measurement, Outcome, Where

MARGIN = 0.02
"""Share of the memory budget that a recommended config must leave free when it runs again."""
SAME_SPEED = 0.05
"""Two runs whose times differ by less agree, however narrow their intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """A second run of a trial's config.

    Attributes:
        measurement: What it found.
        objection: Why the config is not to be recommended; empty where it is confirmed.
    """

    measurement: Measurement
    objection: str = ""

    @property
    def is_confirmed(self) -> bool:
        """Whether the config ran again, within the budget less the margin."""
        return not self.objection


def rerun_of(later: Sequence[StoredMeasurement], budget_bytes: int) -> Rerun | None:
    """Return the newest later run that says something of a config; None where none does.

    A fault of the machine says nothing, nor does running out of a smaller budget.

    Args:
        later: Measurements of the config after its trial's own, newest first.
        budget_bytes: Device memory that the trial was allowed.
    """
    judged = (_judged(stored, budget_bytes) for stored in later)
    return next((rerun for rerun in judged if rerun is not None), None)


def reruns_of(
    later: Mapping[int, Sequence[StoredMeasurement]], budget_bytes: int
) -> dict[int, Rerun]:
    """Return what second runs say of a study's trials, by number, where they say anything."""
    judged = {number: rerun_of(found, budget_bytes) for number, found in later.items()}
    return {number: rerun for number, rerun in judged.items() if rerun is not None}


def rerun_numbers(measurement: Measurement) -> str:
    """Return what a second run that completed took and did."""
    assert measurement.memory is not None and measurement.timing is not None
    peak = shown_bytes(measurement.memory.peak_device_bytes)
    return f"peak {peak}, {shown_number(measurement.timing.samples_per_second)} samples/s"


def speed_doubt(first: Measurement, second: Measurement) -> str:
    """Return what to say where two runs of a config are further apart in time than their noise."""
    before, now = first.timing, second.timing
    assert before is not None and now is not None
    overlap = before.low_seconds <= now.high_seconds and now.low_seconds <= before.high_seconds
    share = abs(now.mean_seconds / before.mean_seconds - 1)
    if overlap or share <= SAME_SPEED:
        return ""
    return (
        f"its memory is confirmed and its speed is not: it did "
        f"{shown_number(before.samples_per_second)} samples/s the first time, so something else "
        "ran beside one of the two; measure on a quieter machine"
    )


def verdict_text(trial: TrialRecord, reruns: Mapping[int, Rerun]) -> str:
    """Return whether a recommended trial is confirmed, and which others were not, a line each."""
    lines = [
        f"Trial {other} is not recommended: run a second time, {rerun.objection}.\n"
        for other, rerun in reruns.items()
        if not rerun.is_confirmed
    ]
    rerun = reruns.get(trial.number)
    if rerun is not None and rerun.is_confirmed:
        assert trial.measurement is not None
        doubt = speed_doubt(trial.measurement, rerun.measurement)
        numbers = f"{rerun_numbers(rerun.measurement)}{f'; {doubt}' if doubt else ''}"
        lines.append(f"Confirmed by a second run: {numbers}.\n")
    else:
        lines.append("Not confirmed: no second run of it has completed.\n")
    return "".join(lines)


def nothing_again(reruns: Mapping[int, Rerun]) -> str:
    """Return why a study has no point though trials completed: none stood a second run."""
    told = "; ".join(f"trial {number}: {rerun.objection}" for number, rerun in reruns.items())
    return (
        f"no config that fitted stood a second run ({told}); begin another study with a larger "
        "--memory-budget, or take the first runs' word for it with --no-confirm"
    )


def _judged(stored: StoredMeasurement, budget_bytes: int) -> Rerun | None:
    measurement, failure = stored.measurement, stored.measurement.failure
    if measurement.is_worth_another_run:
        return None
    if measurement.outcome == Outcome.COMPLETED:
        return Rerun(measurement=measurement, objection=_excess(measurement, budget_bytes))
    assert failure is not None
    allowed = stored.memory_budget_bytes
    is_of_device = measurement.outcome == Outcome.OUT_OF_MEMORY and failure.where != Where.HOST
    if is_of_device and (allowed is None or allowed < budget_bytes):
        return None
    words = failure_words(measurement.outcome, failure, allowed or budget_bytes)
    return Rerun(measurement=measurement, objection=words)


def _excess(measurement: Measurement, budget_bytes: int) -> str:
    """Return by what a run takes more than the budget less the margin; empty if it does not."""
    assert measurement.memory is not None
    memory = measurement.memory
    needed = memory.peak_reserved_bytes or memory.peak_device_bytes
    if needed <= (1 - MARGIN) * budget_bytes:
        return ""
    return (
        f"it took {shown_bytes(needed)} of {shown_bytes(budget_bytes)}, and is to leave "
        f"{MARGIN:.0%} free"
    )
