"""A study in words: what came of its trials, and what would help where nothing fitted. Pure."""

import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence
from math import ceil, log10

from autotune.records import Source, StudyState, StudySummary, TrialRecord, TrialState
from trials.measurement import Failure, Outcome, StepTiming, Where

UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
MOST_DIGITS = 999.5
"""From here on a number of three digits is written with an exponent."""
SHORT = 100
"""Characters of a reason in a table."""
STOPPED = "stopped"
UNSCORED = "not scored: its quality is still to be measured"
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
    shortage, needed = _shortage(attempted, budget_bytes)
    return (
        f"no trial completed within {shown_bytes(budget_bytes)} ({tally(trials)}); nearest to "
        f"fitting: trial {trial.number} ({trial.config}), {shortage}; "
        f"give --memory-budget {_rounded_up(needed)} or more, a smaller model, "
        "or a --space with smaller micro-batches and more checkpointing"
    )


def shown_bytes(size: int) -> str:
    """Return bytes as people read them: three digits, in the unit that suits their size."""
    unit = _unit_of(size)
    return f"{size / UNITS[unit]:.3g} {unit}"


def shown_state(study: StudySummary, is_driven: bool) -> tuple[str, str]:
    """Return how a study stands and why, in words.

    Args:
        study: As stored; one whose driver was killed is still running there.
        is_driven: Whether a living driver runs it.
    """
    if study.state == StudyState.RUNNING and not is_driven:
        return STOPPED, stopped_text(study.name)
    return str(study.state), study.stop_reason


def stopped_text(study: str) -> str:
    """Return what to do about a study whose driver was killed."""
    return f"{STOPPED} (driver gone): autotune resume {shlex.quote(study)}"


def trial_state(trial: TrialRecord, is_driven: bool) -> str:
    """Return where in its life a trial is; a leased one is under way while its driver lives."""
    if trial.state != TrialState.LEASED:
        return str(trial.state)
    return "running" if is_driven else "interrupted"


def data_bound_text(timing: StepTiming | None) -> str:
    """Return how long a step waits for data where that is much of its time; empty elsewhere."""
    if timing is None or not timing.is_data_bound:
        return ""
    wait = timing.data_wait_seconds
    whole = wait + timing.mean_seconds
    share = timing.data_wait_share
    return f"data-bound: waits {wait:.3g} s of {whole:.3g} s per step for data ({share:.0%})"


def data_bound_warning(trials: Sequence[TrialRecord]) -> str:
    """Return a warning where trials of a study wait for data; empty where none does."""
    timings = [trial.measurement.timing for trial in trials if trial.measurement is not None]
    waiting = [timing for timing in timings if timing is not None and timing.is_data_bound]
    if not waiting:
        return ""
    worst = max(waiting, key=lambda timing: timing.data_wait_share)
    return (
        f"warning: {len(waiting)} of {len(trials)} trial(s) of the front are "
        f"{data_bound_text(worst).replace(': waits', ', the worst waits')}; samples/s and cost "
        "leave the wait out, so a job is slower than they say until its loader keeps up: more "
        "loader workers, or less work per sample"
    )


def short_reason(trial: TrialRecord) -> str:
    """Return why a trial did not complete, has no scores, or waits for data, in few words."""
    if trial.state == TrialState.MEASURED and trial.outcome == Outcome.COMPLETED:
        return UNSCORED
    if trial.outcome == Outcome.COMPLETED and trial.measurement is not None:
        return data_bound_text(trial.measurement.timing)
    if trial.source == Source.PREDICTED:
        witness = re.search(r"trial \d+", trial.reason)
        smaller = "a smaller config" if witness is None else witness[0]
        return f"predicted: larger than {smaller} that ran out of memory"
    failure = None if trial.measurement is None else trial.measurement.failure
    if failure is None or trial.outcome is None:
        return shortened(trial.reason)
    return shortened(_failure_words(trial.outcome, failure))


def shortened(text: str) -> str:
    """Return a text's first line, cut between words where it is long."""
    return textwrap.shorten(text.partition("\n")[0], SHORT, placeholder=" …")


def _failure_words(outcome: Outcome, failure: Failure) -> str:
    phase = failure.phase.replace("_", "-")
    if outcome == Outcome.OUT_OF_MEMORY:
        if failure.where == Where.HOST:
            return f"{HOST_MEMORY} in {phase}"
        needed = failure.attempted_bytes
        least = "" if needed is None else f", needs at least {shown_bytes(needed)}"
        return f"out of memory in {phase}{least}"
    words = {
        Outcome.INVALID: f"cannot train, fails in {phase}: {failure.reason}",
        Outcome.DIVERGED: f"diverged in {phase}: {failure.reason}",
        Outcome.CRASHED: f"process broke in {phase}: {failure.reason}",
    }
    return words.get(outcome, failure.reason)


def _shortage(attempted_bytes: int, budget_bytes: int) -> tuple[str, int]:
    """Return what a config misses, in words, and the bytes to try instead."""
    missing = attempted_bytes - budget_bytes
    if missing > 1:
        return f"short of at least {shown_bytes(missing)}", attempted_bytes
    # What it held and asked for was below the budget: the classifier then adds one byte.
    words = "whose last allocation failed though it was smaller than what the budget had left"
    return f"{words}, so by how much it misses is not known", budget_bytes + budget_bytes // 10


def _rounded_up(size: int) -> str:
    """Return a size above the given one, of two digits, as a flag takes it."""
    unit = _unit_of(size)
    number = (size + 1) / UNITS[unit]
    step = 10.0 ** (int(log10(number)) - 1) if number >= 1 else 0.1
    return f"{ceil(number / step) * step:.4g}{unit}"


def _unit_of(size: int) -> str:
    return next((unit for unit, one in UNITS.items() if size / one < MOST_DIGITS), "TiB")


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
