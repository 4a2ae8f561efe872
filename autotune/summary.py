"""A study in words: what came of its trials, and what would help where nothing fitted. Pure."""

from collections import Counter
from collections.abc import Sequence

from autotune.records import TrialRecord
from trials.measurement import Outcome, Where

MIB, GIB = 1024**2, 1024**3
DEVICE_MEMORY, HOST_MEMORY = "out of device memory", "out of host memory"


def tally(trials: Sequence[TrialRecord]) -> str:
    """Return how many trials ended how, most frequent first."""
    counts = Counter(str(trial.outcome) for trial in trials if trial.outcome is not None)
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.most_common())


def nothing_fits(trials: Sequence[TrialRecord], budget_bytes: int, last_lost: str = "") -> str:
    """Return why a study has no feasible trial: the cause first, then the remedy.

    Args:
        trials: Those with a result.
        budget_bytes: Device memory that each was allowed.
        last_lost: Why the last trial without a result had none.
    """
    if not trials:
        lost = f"no trial brought a result; the last one: {last_lost}"
        return lost if last_lost else "no trial ran; raise --trials or --seconds"
    cause = Counter(_cause(trial) for trial in trials).most_common(1)[0][0]
    nearest = _nearest(trials)
    if nearest is None or cause != DEVICE_MEMORY:
        return f"no trial completed ({tally(trials)}); most often: {cause}"
    trial, attempted = nearest
    missing = attempted - budget_bytes
    short = f"at least {missing / GIB:.3g} GiB" if missing >= MIB else "an unknown amount"
    return (
        f"no trial completed within {shown_bytes(budget_bytes)} ({tally(trials)}); nearest to "
        f"fitting: trial {trial.number} ({trial.config}), short of {short}; "
        f"give --memory-budget more than {attempted / GIB:.4g}GiB, a smaller model, "
        "or a --space with smaller micro-batches and more checkpointing"
    )


def shown_bytes(size: int) -> str:
    """Return bytes as people read them: in GiB from one on, in MiB below."""
    return f"{size / GIB:.3g} GiB" if size >= GIB else f"{size / MIB:.3g} MiB"


def _cause(trial: TrialRecord) -> str:
    if trial.outcome != Outcome.OUT_OF_MEMORY:
        return trial.reason
    failure = None if trial.measurement is None else trial.measurement.failure
    return HOST_MEMORY if failure is not None and failure.where == Where.HOST else DEVICE_MEMORY


def _nearest(trials: Sequence[TrialRecord]) -> tuple[TrialRecord, int] | None:
    attempts = [
        (trial, failure.attempted_bytes)
        for trial in trials
        if trial.measurement is not None
        and (failure := trial.measurement.failure) is not None
        and failure.attempted_bytes is not None
        and failure.where == Where.DEVICE
    ]
    return min(attempts, key=lambda pair: pair[1], default=None)
