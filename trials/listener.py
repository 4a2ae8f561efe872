"""What a user's program has reported, held against what was asked of it."""

import math
import time
from collections.abc import Callable

from search_spaces import TrainingConfig
from trials.command_line import command_fingerprint
from trials.errors import WorkloadError
from trials.measurement import QualityReading, StepTiming, WorkloadFacts
from trials.outcomes import DivergedError, SkippedStepsError
from trials.reports import (
    DEFAULT_KNOBS,
    FactsReport,
    MemoryReport,
    QualityReport,
    ReadyReport,
    StepReport,
    parse_report,
)
from trials.spec import Task, TrialSpec
from trials.timing import (
    MAX_LEADING_SKIPS,
    StepReading,
    is_enough,
    skips_too_much,
    timed_steps,
    timing_of,
)


def trained_config(spec: TrialSpec) -> TrainingConfig:
    """Return the config to train; for quality, one device takes all devices' micro-batches."""
    if spec.task != Task.QUALITY:
        return spec.config
    steps = spec.config.accumulation_steps * spec.num_devices
    return spec.config.with_knobs({"accumulation_steps": steps})


def trained_samples(spec: TrialSpec) -> int:
    """Return the samples of the whole optimizer steps nearest to what is asked for."""
    per_step = trained_config(spec).effective_batch_size()
    return max(1, round(spec.quality_samples / per_step)) * per_step


class Listener:
    """Takes a program's report line by line, until it says enough.

    Attributes:
        phase: What the program does, as far as its report tells.
        memory: What it said last of its memory.
    """

    def __init__(self, spec: TrialSpec, on_begin: Callable[[bool], None]) -> None:
        """Listen for what a spec asks.

        Args:
            spec: Of ``measure``, ``quality`` or ``describe``.
            on_begin: Called once, before the first step counts, with whether it was a ready
                line that came first.
        """
        self._spec = spec
        self._config = trained_config(spec)
        self._on_begin = on_begin
        self._num_lines = 0
        self._facts: FactsReport | None = None
        self._quality: float | None = None
        self._warm_up: list[StepReading] = []
        self._readings: list[StepReading] = []
        self._phase_started = time.monotonic()
        self.phase = "load"
        self.memory: dict[str, int] = {}

    def take(self, line: str) -> None:
        """Take in a line; what comes after enough is known is not looked at.

        Raises:
            WorkloadError: It says nothing known, or tells of another config than was asked for.
            DivergedError: The loss is not finite.
        """
        if self.is_done():
            return
        self._num_lines += 1
        match parse_report(line, self._num_lines):
            case FactsReport() as report:
                self._facts = report
                self._require_honoured(report.knobs)
            case ReadyReport() as report:
                self._begin(is_ready=report.ready)
            case MemoryReport() as report:
                self.memory = report.memory
            case QualityReport() as report:
                self._quality = report.quality
            case StepReport() as report:
                self._take_step(report)

    def is_done(self) -> bool:
        """Tell whether enough is known."""
        policy = self._spec.timing
        if self._spec.task == Task.DESCRIBE:
            return self._facts is not None
        if self._spec.task == Task.QUALITY:
            return self._quality is not None
        if self.phase != "timing":
            return len(self._warm_up) >= policy.warm_up_steps + MAX_LEADING_SKIPS
        is_stuck = len(self._readings) >= policy.min_steps + MAX_LEADING_SKIPS
        elapsed = time.monotonic() - self._phase_started
        return is_enough(self._readings, elapsed, policy) or (
            is_stuck and skips_too_much(self._readings)
        )

    def timing(self) -> StepTiming:
        """Return the time of its steps.

        Raises:
            WorkloadError: It reported too few.
            SkippedStepsError: It skipped too many.
        """
        self._require_steps()
        return timing_of(
            self._warm_up,
            self._readings,
            samples_per_step=self._config.effective_batch_size(),
            warm_up_seconds=sum(reading.seconds for reading in self._warm_up),
        )

    def facts(self) -> WorkloadFacts:
        """Return what it trains.

        Raises:
            WorkloadError: It did not say.
        """
        said = self._facts
        if said is None:
            raise WorkloadError('the program ended without a line {"facts": {...}}')
        trainable = said.num_parameters if said.num_trainable is None else said.num_trainable
        return WorkloadFacts(
            fingerprint=command_fingerprint(self._spec.workload),
            num_parameters=said.num_parameters,
            num_trainable=trainable,
            num_blocks=said.num_blocks,
            unit=said.unit,
            quality_name=said.quality_name,
            quality_direction=said.quality_direction,
            global_batch_size=said.global_batch_size,
            quality_samples=said.quality_samples,
        )

    def quality(self) -> QualityReading:
        """Return the metric.

        Raises:
            WorkloadError: It did not say.
            DivergedError: It is not finite.
        """
        value = self._quality
        if value is None:
            raise WorkloadError('the program ended without a line {"quality": NUMBER}')
        if not math.isfinite(value):
            raise DivergedError(f"the program reports a quality of {value}")
        return QualityReading(
            value=value,
            samples=trained_samples(self._spec),
            seed=self._spec.seed,
            train_seconds=time.monotonic() - self._phase_started,
        )

    def _take_step(self, report: StepReport) -> None:
        if self._facts is None:
            self._require_honoured(DEFAULT_KNOBS)
        self._begin(is_ready=False)
        reading = self._reading(report)
        needed = self._spec.timing.warm_up_steps
        if len(timed_steps(self._warm_up)) < needed:
            self._warm_up.append(reading)
            if len(timed_steps(self._warm_up)) == needed and self._spec.task == Task.MEASURE:
                self._enter("timing")
        else:
            self._readings.append(reading)

    def _reading(self, report: StepReport) -> StepReading:
        made = self._config.effective_batch_size()
        samples = made if report.samples is None else report.samples
        if samples != made:
            raise WorkloadError(
                f"the program reports a step of {samples} samples where the config makes {made}: "
                f"micro_batch_size {self._config.micro_batch_size} x accumulation_steps "
                f"{self._config.accumulation_steps}"
            )
        loss = 0.0 if report.loss is None else report.loss
        if not math.isfinite(loss) and not report.skipped:
            steps = len(self._warm_up) + len(self._readings) + 1
            raise DivergedError(f"the loss is {loss} after {steps} steps")
        return StepReading(
            seconds=report.step_seconds,
            data_wait_seconds=report.data_wait_seconds,
            units=samples if report.units is None else report.units,
            is_skipped=report.skipped,
            loss=loss,
        )

    def _begin(self, *, is_ready: bool) -> None:
        """Count from here on; only the first call does anything."""
        if self.phase == "load" and self._spec.task != Task.DESCRIBE:
            self._on_begin(is_ready)
            self._enter("warm_up" if self._spec.task == Task.MEASURE else "quality")

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self._phase_started = time.monotonic()

    def _require_steps(self) -> None:
        warm_up, readings = self._warm_up, self._readings
        policy = self._spec.timing
        every = [*warm_up, *readings]
        taken, needed = len(timed_steps(every)), policy.warm_up_steps + policy.min_steps
        if len(every) >= needed and (taken < needed or skips_too_much(every)):
            raise SkippedStepsError(
                f"{len(every) - len(timed_steps(every))} of {len(every)} steps were skipped by "
                "the gradient scaler: the gradients overflow in fp16; try bf16"
            )
        if taken < needed:
            raise WorkloadError(
                f"the program ended after reporting {taken} optimizer steps; {needed} are the "
                f"least: {policy.warm_up_steps} to warm up and {policy.min_steps} to time"
            )

    def _require_honoured(self, knobs: tuple[str, ...]) -> None:
        asked, usual = self._config.as_dict(), TrainingConfig().as_dict()
        for knob, value in asked.items():
            if value != usual[knob] and knob not in knobs:
                raise WorkloadError(
                    f"the program does not honour {knob}={value}: its facts name "
                    f"{', '.join(knobs)}; hold --set {knob}={usual[knob]}"
                )
