"""What a person sees while a study runs: a live panel, and a line for each trial."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autotune.events import (
    ConfigsForeseen,
    Event,
    Heartbeat,
    Listener,
    PointRerun,
    QualityMeasured,
    StudyBegan,
    TrialLost,
    TrialStarted,
    TrialTold,
    WorkersStarting,
)
from autotune.figures import (
    shown_bytes,
    shown_count,
    shown_number,
    shown_parameters,
    shown_usd,
)
from autotune.objective import direction_of, value_of
from autotune.records import Objective, Source, StudyRecord, TrialRecord
from autotune.reruns import rerun_numbers
from autotune.summary import data_bound_text, short_reason
from trials.measurement import Direction, Outcome

REASON_LENGTH = 200
UNITS = {Objective.COST: "$/M samples", Objective.THROUGHPUT: "samples/s"}


class Progress:
    """Turns a study's events into what standard error shows.

    Attributes:
        study: Once it has begun.
    """

    def __init__(self, console: Console) -> None:
        """Write to a console; it gets a live panel where a person watches."""
        self._console = console
        self.study: StudyRecord | None = None
        self._counts: Counter[str] = Counter()
        self._beat = Heartbeat(
            num_trials=0, num_in_flight=0, seconds=0, device_seconds=0, usd=0, front=()
        )
        self._faults: set[str] = set()
        self._live: Live | None = None

    @contextmanager
    def shown(self) -> Iterator[Listener]:
        """Show progress for as long as the context lasts, and yield what to tell events to."""
        if not self._console.is_terminal:
            yield self.on_event
            return
        with Live(console=self._console, refresh_per_second=4, transient=True) as live:
            self._live = live
            yield self.on_event

    def on_event(self, event: Event) -> None:
        """Take in one event."""
        if isinstance(event, StudyBegan):
            self.study = event.study
            self._write(_introduction(event))
        elif isinstance(event, TrialTold):
            self._count(event.trial)
            assert self.study is not None
            self._write(_told_line(event.trial, self.study))
        elif isinstance(event, QualityMeasured):
            self._write_quality(event)
        elif isinstance(event, Heartbeat):
            self._beat = event
        elif isinstance(event, TrialStarted):
            if event.why:
                self._write(f"trial {event.number}: {event.config}: {event.why}")
        else:
            self._write(_line_of(event))
        if self._live is not None and not isinstance(event, TrialStarted):
            self._live.update(self._panel())

    def _count(self, trial: TrialRecord) -> None:
        self._counts[str(trial.outcome)] += 1

    def _write_quality(self, event: QualityMeasured) -> None:
        """Write a quality, and a fault once for all classes and seeds that it stops."""
        reading, reason = event.measurement.quality, event.measurement.reason
        if reading is None and reason in self._faults:
            return
        self._faults.add(reason)
        found = reason if reading is None else f"{reading.value:.4f}"
        if reading is not None and reading.evaluation_batch_size is not None:
            found += (
                f" (evaluated {reading.evaluation_batch_size} at a time, more ran out of memory)"
            )
        self._write(f"quality of {event.numerics}, seed {event.seed}: {found}")

    def _write(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def _panel(self) -> Table:
        panel = Table.grid(padding=(0, 1))
        limit = None if self.study is None else self.study.spec.budget.trials
        if limit is not None:
            done = min(self._beat.num_trials, limit)
            panel.add_row(ProgressBar(total=limit, completed=done, width=40), f"{done}/{limit}")
        out_of_memory = self._counts[Outcome.OUT_OF_MEMORY]
        panel.add_row(
            f"{self._beat.num_trials} trials, {self._beat.num_in_flight} in flight, "
            f"{out_of_memory} out of memory"
        )
        panel.add_row(
            f"{self._beat.seconds:.0f} s, {self._beat.device_seconds:.0f} device-s, "
            f"{shown_usd(self._beat.usd)}{self._left()}"
        )
        if self.study is not None and self._beat.front:
            panel.add_row("best: " + ", ".join(_bests(self.study, self._beat.front)))
        return panel

    def _left(self) -> str:
        budget = None if self.study is None else self.study.spec.budget
        if budget is None or budget.seconds is None:
            return ""
        return f", {max(0.0, budget.seconds - self._beat.seconds):.0f} s left"


def _introduction(event: StudyBegan) -> str:
    study = event.study
    spec, facts, environment = study.spec, study.facts, study.environment
    batch = spec.space.global_batch_size
    batch_text = "free batch" if batch is None else f"global batch {batch}"
    lines = [
        f"study {spec.name}: {spec.workload}, {shown_parameters(facts.num_parameters)}, "
        f"{batch_text}",
        f"on {shown_count(event.num_slots, 'slot')} of {environment.device_name} "
        f"({environment.device_kind}), {shown_bytes(spec.memory_budget_bytes)} of memory "
        "per trial",
        f"space {spec.space.name}: {event.num_configs} configs, "
        f"objectives {', '.join(spec.objectives)}, rates of {spec.rates.label}",
    ]
    return "\n".join([*lines, *_exclusion_lines(event.exclusions)])


def _exclusion_lines(exclusions: Mapping[str, int]) -> Iterator[str]:
    """Yield what is not tried, the reason that leaves out most first."""
    if not exclusions:
        return
    total = sum(exclusions.values())
    yield f"not tried: {total:,} configs, each counted by the first reason found"
    width = len(f"{max(exclusions.values()):,}")
    for why, count in sorted(exclusions.items(), key=lambda item: -item[1]):
        yield f"  {count:>{width},}  {why}"


def _told_line(trial: TrialRecord, study: StudyRecord) -> str:
    mark = " (baseline)" if trial.config == study.spec.baseline else ""
    cached = f" ({trial.source})" if trial.source == Source.CACHED else ""
    head, scores = f"trial {trial.number}{mark}: {trial.config}: ", trial.scores
    reason = short_reason(trial, study.spec.memory_budget_bytes, REASON_LENGTH)
    if trial.outcome != Outcome.COMPLETED or scores.throughput_samples_per_second is None:
        return f"{head}{reason or str(trial.outcome).replace('_', ' ')}{cached}"
    assert trial.measurement is not None and trial.measurement.memory is not None
    assert scores.cost_usd_per_million_samples is not None
    waits = data_bound_text(trial.measurement.timing)
    share = scores.throughput_half_width / scores.throughput_samples_per_second
    return (
        f"{head}{shown_number(scores.throughput_samples_per_second)} samples/s ±{share:.1%}, "
        f"${shown_number(scores.cost_usd_per_million_samples)}/M, "
        f"{shown_bytes(trial.measurement.memory.peak_device_bytes)}"
        f"{f', {waits}' if waits else ''}{_ended_early(trial)}{cached}"
        f"{f'; not scored: {reason}' if reason and reason != waits else ''}"
    )


def _ended_early(trial: TrialRecord) -> str:
    timing = None if trial.measurement is None else trial.measurement.timing
    return ", ended early: beaten already" if timing is not None and timing.is_beaten else ""


def _line_of(event: WorkersStarting | ConfigsForeseen | TrialLost | PointRerun) -> str:
    if isinstance(event, WorkersStarting):
        return f"starting workers {event.where}"
    if isinstance(event, ConfigsForeseen):
        if event.reason:
            return f"searching without predictions: {event.reason}"
        more = f"\n{event.put_off}" if event.put_off else ""
        return f"{event.num_configs} configs predicted in {event.seconds:.1f} s{more}"
    return _lost_line(event) if isinstance(event, TrialLost) else _rerun_line(event)


def _lost_line(event: TrialLost) -> str:
    if event.is_ended_by_user:
        return (
            f"trial {event.number}: ended before its result; resume runs it again as trial "
            f"{event.again}"
        )
    again = "given up" if event.again is None else f"run again as trial {event.again}"
    return f"trial {event.number}: lost, {again}: {event.reason}"


def _rerun_line(event: PointRerun) -> str:
    head = f"trial {event.number} a second time: "
    if event.rerun is None:
        return f"{head}{event.measurement.reason}, which says nothing of its config"
    if event.rerun.is_confirmed:
        return f"{head}{rerun_numbers(event.measurement)}, confirmed"
    return f"{head}not confirmed, so not recommended: {event.rerun.objection}"


def _bests(study: StudyRecord, front: Sequence[TrialRecord]) -> Iterator[str]:
    for objective in study.spec.objectives:
        direction = direction_of(objective, study.facts.quality_direction)
        values = [v for trial in front if (v := value_of(trial.scores, objective)) is not None]
        best = (min if direction == Direction.MINIMIZE else max)(values)
        yield f"{shown_number(best)} {UNITS.get(objective, study.facts.quality_name)}"
