"""A study in words: what came of its trials, and what would help where nothing fitted. Pure."""

import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from autotune.figures import (
    UNITS,
    rounded_up,
    shown_bytes,
    shown_count,
    shown_number,
    shown_shortage,
)
from autotune.records import (
    Source,
    StudyRecord,
    StudyState,
    StudySummary,
    TrialRecord,
    TrialState,
)
from search_spaces import OffloadTarget, Optimizer, Switch, TrainingConfig
from trials.measurement import Failure, Outcome, StepTiming, Where, WorkloadFacts

FP32_BYTES = 4
SHORT = 100
"""Characters of a reason in a table."""
STOPPED = "stopped"
UNSCORED = "not scored: its quality is still to be measured"
DEVICE_MEMORY, HOST_MEMORY = "out of device memory", "out of host memory"


def tally(trials: Sequence[TrialRecord]) -> str:
    """Return how many trials ended how, most frequent first."""
    counts = Counter(str(trial.outcome) for trial in trials if trial.outcome is not None)
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.most_common())


def source_counts(trials: Sequence[TrialRecord]) -> str:
    """Return how many results are from where, in brackets; nothing where all were run."""
    counts = Counter(trial.source for trial in trials)
    if counts.keys() <= {Source.RUN}:
        return ""
    return f" ({', '.join(f'{counts[source]} {source}' for source in Source if counts[source])})"


def baseline_of(trials: Iterable[TrialRecord], study: StudyRecord) -> TrialRecord | None:
    """Return the told trial of a study's baseline; None before, or where there is no baseline."""
    told = (trial for trial in trials if trial.state == TrialState.TOLD)
    return next((trial for trial in told if trial.config == study.spec.baseline), None)


def against_baseline(chosen: TrialRecord, baseline: TrialRecord, budget_bytes: int) -> str:
    """Return what the recommended point changes, in words.

    Args:
        chosen: The recommended trial.
        baseline: The trial of the study's baseline.
        budget_bytes: Device memory that each was allowed.
    """
    if chosen.number == baseline.number:
        return f"the baseline (trial {baseline.number}) is the recommended point itself"
    if not baseline.is_feasible:
        reason = short_reason(baseline, budget_bytes)
        return f"the baseline (trial {baseline.number}) is no point: {reason}"
    pairs = zip(_main_numbers(chosen), _main_numbers(baseline), strict=True)
    changes = [
        f"{sign}{shown_number(new)} instead of {sign}{shown_number(old)} {unit} "
        f"({new / old - 1:+.0%})"
        for (new, sign, unit), (old, _, _) in pairs
        if new is not None and old
    ]
    return f"against the baseline (trial {baseline.number}): {', '.join(changes)}"


def _main_numbers(trial: TrialRecord) -> tuple[tuple[float | None, str, str], ...]:
    """Return a trial's cost, throughput and peak, each with what is written before and after."""
    scores = trial.scores
    memory = None if trial.measurement is None else trial.measurement.memory
    peak_mib = None if memory is None else memory.peak_device_bytes / UNITS["MiB"]
    return (
        (scores.cost_usd_per_million_samples, "$", "per million samples"),
        (scores.throughput_samples_per_second, "", "samples/s"),
        (peak_mib, "", "MiB at the peak"),
    )


def nothing_fits(
    trials: Sequence[TrialRecord], budget_bytes: int, facts: WorkloadFacts, last_lost: str = ""
) -> str:
    """Return why a study has no completed trial: the cause first, then the remedy.

    Args:
        trials: Those with a result.
        budget_bytes: Device memory that each was allowed.
        facts: What the workload is.
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
    resting = resting_bytes(trial.config, facts)
    alone = (
        f" (its weights, gradients and optimizer state alone make {shown_bytes(resting)})"
        if resting > budget_bytes
        else ""
    )
    return (
        f"no trial completed within {shown_bytes(budget_bytes)} ({tally(trials)}); nearest to "
        f"fitting: trial {trial.number} ({trial.config}), which "
        f"{shown_shortage(attempted, budget_bytes)}; that is where it ran out, not all it would "
        f"have taken{alone}; begin another study with --memory-budget "
        f"{rounded_up(2 * max(attempted, resting))} (twice that), a smaller model, "
        "or a --space with smaller micro-batches and more checkpointing"
    )


def nothing_scored(trials: Sequence[TrialRecord]) -> str:
    """Return why a study has no scored trial though some completed: none has a quality."""
    reasons = Counter(trial.reason for trial in trials if trial.outcome == Outcome.COMPLETED)
    return (
        f"no trial could be scored ({tally(trials)}, 0 with a quality); most often: "
        f"{reasons.most_common(1)[0][0]}; mend that, or leave quality out with "
        "--objectives cost,throughput"
    )


def resting_bytes(config: TrainingConfig, facts: WorkloadFacts) -> int:
    """Return what a config holds beside activations: weights, gradients, optimizer state.

    A lower bound. Source: fp32 gradients, and fp32 weights unless they are frozen in fewer bits;
    AdamW keeps two values per trained parameter, Lion and SGD one. Adapters are left out, as is
    a gradient that is freed once it is used. 0 where a job's devices or another memory share it.
    """
    if config.zero_stage > 0 or config.offload_target != OffloadTarget.NONE:
        return 0
    weights = facts.num_parameters * config.weight_bits / 8
    if config.lora_rank > 0:
        return int(weights)
    num_values = 2 if config.optimizer == Optimizer.ADAMW else 1
    gradient = 0 if config.optimizer_in_backward == Switch.ON else FP32_BYTES
    trained = gradient + num_values * config.optimizer_bits / 8
    return int(weights + facts.num_trainable * trained)


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
        f"warning: {len(waiting)} of {shown_count(len(trials), 'trial')} of the front are "
        f"{data_bound_text(worst).replace(': waits', ', the worst waits')}; samples/s and cost "
        "leave the wait out, so a job is slower than they say until its loader keeps up: more "
        "loader workers, or less work per sample"
    )


def short_reason(trial: TrialRecord, budget_bytes: int, length: int = SHORT) -> str:
    """Return why a trial did not complete, has no scores or waits for data, in few words.

    Args:
        trial: Any.
        budget_bytes: Device memory that it was allowed.
        length: Characters at most.
    """
    if trial.state == TrialState.MEASURED and trial.outcome == Outcome.COMPLETED:
        return UNSCORED
    if trial.outcome == Outcome.COMPLETED and trial.measurement is not None:
        waits = data_bound_text(trial.measurement.timing)
        return shortened(trial.reason, length) or waits
    if trial.source == Source.PREDICTED:
        witness = re.search(r"trial \d+ ", trial.reason)
        if witness is not None:
            return f"predicted: larger than {witness[0]}that ran out of memory"
        return shortened(trial.reason, length)
    failure = None if trial.measurement is None else trial.measurement.failure
    if failure is None or trial.outcome is None:
        return shortened(trial.reason, length)
    return shortened(failure_words(trial.outcome, failure, budget_bytes), length)


def shortened(text: str, length: int = SHORT) -> str:
    """Return a text's first line, cut between words where it is long."""
    return textwrap.shorten(text.partition("\n")[0], length, placeholder=" …")


def failure_words(outcome: Outcome, failure: Failure, budget_bytes: int) -> str:
    """Return what went wrong, and when.

    Args:
        outcome: Any but completed.
        failure: That goes with it.
        budget_bytes: Device memory that the trial was allowed.
    """
    phase = failure.phase.replace("_", "-")
    if outcome == Outcome.OUT_OF_MEMORY:
        if failure.where == Where.HOST:
            return f"{HOST_MEMORY} in {phase}"
        needed = failure.attempted_bytes
        least = "" if needed is None else f", {shown_shortage(needed, budget_bytes)}"
        return f"out of memory in {phase}{least}"
    words = {
        Outcome.INVALID: f"cannot train, fails in {phase}: {failure.reason}",
        Outcome.DIVERGED: f"diverged in {phase}: {failure.reason}",
        Outcome.CRASHED: f"process broke in {phase}: {failure.reason}",
    }
    return words.get(outcome, failure.reason)


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
