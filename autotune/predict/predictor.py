"""Predict configs: memory by kind, peak and step time, each with an interval."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from autotune.predict.calibration import Corrector, Interval, Prior
from autotune.predict.memory import (
    Kept,
    MemoryParts,
    Passes,
    fullest,
    kept_bytes,
    memory_parts,
    passes,
    unheld_copies,
)
from autotune.predict.speed import DeviceSpeed, StepParts, step_parts
from search_spaces import AmpDtype, TrainingConfig
from trials.measurement import Measurement, Outcome
from trials.trace_facts import GraphTrace, WorkloadTrace

LOW_PRECISION = (AmpDtype.BF16, AmpDtype.FP16)
MIB = 2**20
CPU_OVERHEAD = 3 * MIB // 2
"""Python's own objects, and what the C library keeps in small pieces: of byte-gpt's trials."""
PEAK_PRIOR = Prior(widths=(0.1, 1.0, 0.1, 0.15), noise=0.05)
"""Share of the peak that is neither weights nor state, one MiB's share, the same under 16 bits,
and what is certain of sharding."""
TIME_PRIOR = Prior(widths=(0.8, 0.8, 0.7, 0.7, 0.2), noise=0.25)
"""Whatever, under 16 bits, starting operators, the optimizer, recomputing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Where and with how many devices a workload is trained.

    Attributes:
        device_kind: ``cpu`` or ``cuda``.
        speed: Of the device.
        num_ranks: Devices that the job trains on together.
        num_blocks: Of the model.
    """

    device_kind: str
    speed: DeviceSpeed
    num_ranks: int = 1
    num_blocks: int

    @property
    def overhead_bytes(self) -> int:
        """Memory of a process that grows with training and is no tensor's."""
        return CPU_OVERHEAD if self.device_kind == "cpu" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What trials taught of peaks and of times."""

    peak: Corrector
    time: Corrector

    @classmethod
    def without_trials(cls) -> Self:
        """Return what is believed before any."""
        return cls(peak=Corrector.learnt(PEAK_PRIOR), time=Corrector.learnt(TIME_PRIOR))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a config will take.

    Attributes:
        config: The config.
        memory: Bytes by kind, as in ``MemoryUse``; not all there at once.
        peak_device_bytes: Of device memory.
        peak_host_bytes: Of host memory beside it.
        step_seconds: Of an optimizer step.
        probability_fits: That the peak keeps to a budget; None without one.
        phases: Bytes at the fullest of forward, backward and step, before any trial corrects them.
        peak_errors: How the logarithm of the peak may be off before any trial, for causes that
            configs share: one standard deviation of each.
        step_errors: The same of the step.
    """

    config: TrainingConfig
    memory: dict[str, int]
    peak_device_bytes: Interval
    peak_host_bytes: int
    step_seconds: Interval
    probability_fits: float | None
    phases: dict[str, float]
    peak_errors: tuple[float, ...]
    step_errors: tuple[float, ...]

    @property
    def phase(self) -> str:
        """When the peak is."""
        return fullest(self.phases)


class Predictor:
    """Predicts configs of one workload for one job."""

    def __init__(self, trace: WorkloadTrace, job: Job) -> None:
        """Predict from a trace alone, until ``learn`` is called."""
        self._trace, self._job = trace, job
        self._passes: dict[TrainingConfig, Passes] = {}
        self.calibration = Calibration.without_trials()

    def learn(self, trials: Iterable[tuple[TrainingConfig, Measurement]]) -> int:
        """Correct later predictions by what trials measured; returns how many had anything."""
        completed = [(c, m) for c, m in trials if m.outcome == Outcome.COMPLETED and m.memory]
        peaks, times = [], []
        for config, measurement in completed:
            memory, step = self._parts(config)
            assert measurement.memory is not None
            peak = measurement.memory.peak_device_bytes
            peaks.append((_peak_features(config, memory), math.log(peak / memory.peak)))
            if measurement.timing is not None:
                ratio = measurement.timing.mean_seconds / step.total
                times.append((_time_features(config, step), math.log(ratio)))
        self.calibration = Calibration(
            peak=Corrector.learnt(PEAK_PRIOR, [x for x, _ in peaks], [y for _, y in peaks]),
            time=Corrector.learnt(TIME_PRIOR, [x for x, _ in times], [y for _, y in times]),
        )
        return len(completed)

    def predict(
        self, configs: Sequence[TrainingConfig], memory_budget_bytes: int | None = None
    ) -> list[Prediction]:
        """Return what configs will take."""
        return [self._predicted(config, memory_budget_bytes) for config in configs]

    def kept(self, config: TrainingConfig) -> Kept:
        """Return what a process keeps under a config, and where."""
        job, graph = self._job, self._graph(config)
        return kept_bytes(graph, config, device_kind=job.device_kind, num_ranks=job.num_ranks)

    def _predicted(self, config: TrainingConfig, budget: int | None) -> Prediction:
        memory, step = self._parts(config)
        features, timed = _peak_features(config, memory), _time_features(config, step)
        peak, time = self.calibration.peak, self.calibration.time
        fits = None if budget is None else peak.probability_below(budget, memory.peak, features)
        interval = peak.corrected(memory.peak, features)
        by_kind = {**memory.by_kind}
        by_kind["temporary"] = max(0, by_kind["temporary"] + int(interval.mean - memory.peak))
        return Prediction(
            config=config,
            memory=by_kind,
            peak_device_bytes=interval,
            peak_host_bytes=self._trace.host_bytes + memory.host,
            step_seconds=time.corrected(step.total, timed),
            probability_fits=fits,
            phases=memory.phases,
            peak_errors=PEAK_PRIOR.errors(features),
            step_errors=TIME_PRIOR.errors(timed),
        )

    def _parts(self, config: TrainingConfig) -> tuple[MemoryParts, StepParts]:
        job, graph = self._job, self._graph(config)
        found = self._found(graph, config)
        kept = self.kept(config)
        step = step_parts(
            graph,
            config,
            kept,
            found.held,
            speed=job.speed,
            num_blocks=job.num_blocks,
        )
        return memory_parts(config, found, kept, job.num_ranks, job.overhead_bytes), step

    def _graph(self, config: TrainingConfig) -> GraphTrace:
        is_low = config.amp_dtype in LOW_PRECISION
        return self._trace.graph(is_low_precision=is_low, lora_rank=config.lora_rank)

    def _found(self, graph: GraphTrace, config: TrainingConfig) -> Passes:
        """Return the passes of a config; those that differ in other knobs share them."""
        key = TrainingConfig(
            amp_dtype=config.amp_dtype,
            checkpoint_interval=config.checkpoint_interval,
            checkpoint_deepest=config.checkpoint_deepest,
            micro_batch_size=config.micro_batch_size,
            activation_offload=config.activation_offload,
            lora_rank=config.lora_rank,
            weight_bits=config.weight_bits,
        )
        if key not in self._passes:
            copies = unheld_copies(graph, key, self._job.device_kind)
            self._passes[key] = passes(graph, key, self._job.num_blocks, copies)
        return self._passes[key]


def _peak_features(config: TrainingConfig, memory: MemoryParts) -> tuple[float, ...]:
    moving = max(0.0, memory.peak - memory.fixed) / memory.peak
    is_low = config.amp_dtype in LOW_PRECISION
    return moving, MIB / memory.peak, is_low * moving, float(config.zero_stage > 0)


def _time_features(config: TrainingConfig, step: StepParts) -> tuple[float, ...]:
    return (
        1.0,
        float(config.amp_dtype in LOW_PRECISION),
        step.starting / step.total,
        step.stepping / step.total * (1 + (config.optimizer_bits < 32)),
        float(config.checkpoint_interval > 0),
    )
