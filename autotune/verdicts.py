"""What trainings through the exported file say of a trial. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.figures import shown_bytes
from autotune.reruns import MARGIN as FREE_MARGIN
from autotune.summary import failure_words
from trials.measurement import Measurement, Outcome
from trials.spec import Through

MEMORY_MARGIN = 0.10
"""Beyond the noise of its runs, what a target may take more than the trial did."""
MEMORY_FLOOR_BYTES = 8 * 1024**2
"""And at least so much, which a program keeps for itself however small the model."""
TIME_MARGIN = 0.20
"""Beyond the noise, by how much its steps may be slower: programs do more than train."""
LOSS_MARGIN = 0.02
"""By how much its losses may be off those of the trial's own loop, on the same batches."""
NEWEST = 5
"""Of the runs that a store has, so many judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the runs of a trial's export through a program came to.

    Attributes:
        through: The program.
        numbers: What they took, in words; empty where none completed.
        objection: Why the config is not verified; empty where it is.
    """

    through: Through
    numbers: str
    objection: str

    @property
    def is_verified(self) -> bool:
        """Whether the config trains there as it was measured."""
        return not self.objection


def judge(
    through: Through,
    trial: Measurement,
    reference: Measurement,
    runs: Sequence[Measurement],
    budget_bytes: int,
) -> Verdict:
    """Compare runs with the trial: peak memory and step time, and losses with its own loop.

    Beyond the margins means that even the best run is: so noise among the runs objects to
    nothing.

    Args:
        through: The program that trained.
        trial: As it was measured in the study.
        reference: The trial's own loop on the very batches of the runs, at the same time.
        runs: At least one.
        budget_bytes: Device memory that the trial was allowed.
    """
    failed = next((run for run in (reference, *runs) if run.outcome != Outcome.COMPLETED), None)
    if failed is not None:
        assert failed.failure is not None
        words = failure_words(failed.outcome, failed.failure, budget_bytes)
        return Verdict(through=through, numbers="", objection=words)
    objections = [
        _memory_objection(trial, runs, budget_bytes),
        _time_objection(trial, reference, runs),
        _loss_objection(reference, runs),
    ]
    return Verdict(
        through=through,
        numbers=_numbers(trial, reference, runs),
        objection="; ".join(filter(None, objections)),
    )


def verified_text(study: str, verdicts: Mapping[Through, Verdict]) -> str:
    """Return whether a trial is verified, a line for each program; what to do if by none."""
    if not verdicts:
        return f"Not verified by training with its export: autotune verify {study}\n"
    return "".join(
        f"Verified through {through}: {verdict.numbers}.\n"
        if verdict.is_verified
        else f"Not verified through {through}: {verdict.objection}.\n"
        for through, verdict in verdicts.items()
    )


def headline(verdicts: Mapping[Through, Verdict]) -> str:
    """Return what to call the chosen point: only a verified one is recommended."""
    return "Recommended" if is_verified(verdicts) else "Best measured"


def is_verified(verdicts: Mapping[Through, Verdict]) -> bool | None:
    """Return whether a program trains a config as measured and none objects; None if none ran."""
    return all(verdict.is_verified for verdict in verdicts.values()) if verdicts else None


def _peak(measurement: Measurement) -> int:
    assert measurement.memory is not None
    return measurement.memory.peak_reserved_bytes or measurement.memory.peak_device_bytes


def _memory_objection(trial: Measurement, runs: Sequence[Measurement], budget_bytes: int) -> str:
    peaks = [_peak(run) for run in runs]
    allowed = (1 - FREE_MARGIN) * budget_bytes
    if max(peaks) > allowed:
        return (
            f"it took {shown_bytes(max(peaks))} of {shown_bytes(budget_bytes)} with an "
            f"evaluation and a save, and is to leave {FREE_MARGIN:.0%} free"
        )
    margin = max(MEMORY_MARGIN * _peak(trial), MEMORY_FLOOR_BYTES)
    if min(peaks) > _peak(trial) + margin:
        return (
            f"its peak is {shown_bytes(min(peaks))} to {shown_bytes(max(peaks))}, more than "
            f"{shown_bytes(int(margin))} over the trial's {shown_bytes(_peak(trial))}"
        )
    return ""


def _time_objection(
    trial: Measurement, reference: Measurement, runs: Sequence[Measurement]
) -> str:
    assert trial.timing is not None and reference.timing is not None
    usual = max(trial.timing.high_seconds, reference.timing.high_seconds)
    fastest = min(run.timing.mean_seconds for run in runs if run.timing is not None)
    if fastest <= (1 + TIME_MARGIN) * usual:
        return ""
    return (
        f"its steps take {fastest:.3f} s at best, more than {TIME_MARGIN:.0%} over the trial's "
        f"{usual:.3f} s"
    )


def _loss_objection(reference: Measurement, runs: Sequence[Measurement]) -> str:
    worst = min(_loss_difference(reference, run) for run in runs)
    if worst <= LOSS_MARGIN:
        return ""
    return (
        f"its losses are off those of the trial's loop by {worst:.1%}, more than {LOSS_MARGIN:.0%}"
    )


def _loss_difference(reference: Measurement, run: Measurement) -> float:
    """Return the largest relative difference of a step's loss."""
    assert reference.verification is not None and run.verification is not None
    pairs = zip(reference.verification.losses, run.verification.losses, strict=True)
    return max(abs(there - here) / max(abs(here), 1e-12) for here, there in pairs)


def _numbers(trial: Measurement, reference: Measurement, runs: Sequence[Measurement]) -> str:
    peaks = [_peak(run) for run in runs]
    times = [run.timing.mean_seconds for run in runs if run.timing is not None]
    off = max(_loss_difference(reference, run) for run in runs)
    assert trial.timing is not None
    return (
        f"{len(runs)} run(s), peak {shown_bytes(max(peaks))} (trial {shown_bytes(_peak(trial))}), "
        f"step {min(times):.3f} to {max(times):.3f} s (trial {trial.timing.mean_seconds:.3f} s), "
        f"losses within {off:.2%}"
    )
