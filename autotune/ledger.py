"""A study's trials in the store and in Optuna, kept in step by the one that writes both.

Order of writing, so that a driver may die between any two lines: asked in Optuna, leased in the
store, measured in the store, told to Optuna, told in the store. ``recover`` picks up from each.
"""

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.baselines import first_configs
from autotune.dominance import beaten_seconds
from autotune.front import Recommendation, pareto_front, recommend
from autotune.objective import Quality, Verdict, judge, predicted_verdict
from autotune.optimizer.study import Gain, OptunaStudy
from autotune.records import (
    MeasurementKey,
    Objective,
    Source,
    StoredMeasurement,
    StudyRecord,
    TrialRecord,
    TrialState,
)
from autotune.refusals import Refusals, hoped_quality, refusals_of
from autotune.reruns import Rerun, reruns_of
from autotune.reuse import TooLarge, answer_from, surely_too_large
from autotune.store.base import StudyStore
from search_spaces import OffloadTarget, TrainingConfig, stable_hash
from trials.measurement import Measurement, Outcome

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 2
MAY_IDLE = 0.02
"""Share of a trial's time that a slot may wait for its next config."""


class Ledger:
    """Trials of one study: asks for them, and books what becomes of each."""

    def __init__(
        self,
        *,
        store: StudyStore,
        optuna: OptunaStudy,
        record: StudyRecord,
        protocol: str,
        on_told: Callable[[TrialRecord], None],
    ) -> None:
        """Open the books; nothing is written yet.

        Args:
            store: Where trials and measurements go.
            optuna: Who proposes configs; its forecast refuses what it predicts not to fit.
            record: The study.
            protocol: How its trials measure.
            on_told: Called with every trial once it is told.
        """
        self._store = store
        self._optuna = optuna
        self._record = record
        self._spec = record.spec
        self._protocol = protocol
        self._on_told = on_told
        self._forecast = optuna.forecast
        self.trials: dict[int, TrialRecord] = {}
        self.front: list[TrialRecord] = []
        self.reruns: dict[int, Rerun] = {}
        self._stored_front: tuple[list[int], int | None] | None = None

    @property
    def recommendation(self) -> Recommendation | None:
        """The point of the front to train with."""
        return recommend(self.front, self._spec.objectives, self._record.facts.quality_direction)

    @property
    def unscored(self) -> list[TrialRecord]:
        """Trials that are measured and not told: their quality is on the way."""
        return [t for t in self.trials.values() if t.state == TrialState.MEASURED]

    @property
    def unconfirmed(self) -> TrialRecord | None:
        """The recommended trial, while nothing is known of a second run of its config."""
        chosen = self.recommendation
        if chosen is None or chosen.number in self.reruns:
            return None
        return self.trials[chosen.number]

    @property
    def why(self) -> str:
        """What the trial asked last was expected to bring; empty if nothing says it."""
        return self._optuna.why

    @property
    def has_waiting(self) -> bool:
        """Whether an enqueued config has not been asked yet."""
        return self._optuna.num_waiting() > 0

    def has_more(self) -> bool:
        """Tell whether any config is left to ask."""
        return self._optuna.has_more

    def ask(self) -> TrialRecord:
        """Return the next trial: leased, and either to be run or answered already.

        A trial that earlier measurements answer comes back measured or told.
        """
        number, config, attempt = self._optuna.ask()
        trial = TrialRecord(
            study=self._spec.name,
            number=number,
            config=config,
            state=TrialState.LEASED,
            attempt=attempt,
            lease=uuid.uuid4().hex,
        )
        stored = answer_from(
            self._store.measurements(self._key(config)), self._spec.memory_budget_bytes
        )
        if stored is not None:
            return self._answer(trial, stored)
        too_large = surely_too_large(config, self.trials.values()) or self._refusal(config)
        if too_large is not None:
            return self._predict(trial, too_large)
        self._store.open_trial(trial)
        return trial

    @property
    def refusals(self) -> Refusals:
        """What was refused by prediction, and what checks of it found."""
        return refusals_of(self.trials.values())

    def beaten_seconds(self, config: TrainingConfig) -> float | None:
        """Return from what step time on a config cannot matter; None for the user's baseline."""
        if config == self._spec.baseline:
            return None
        has_quality = Objective.QUALITY in self._spec.objectives
        rivals = [t for t in self.front if not has_quality or self._is_of_class(t, config)]
        return beaten_seconds(
            config,
            rivals,
            objectives=self._spec.objectives,
            rates=self._spec.rates,
            num_ranks=self._spec.num_ranks,
        )

    @property
    def trial_seconds(self) -> list[float]:
        """How long each completed trial took that this study ran."""
        measured = (t.measurement for t in self.trials.values() if t.source == Source.RUN)
        return [
            m.process_seconds / m.num_ranks
            for m in measured
            if m is not None and m.outcome == Outcome.COMPLETED
        ]

    def expected_gain(self) -> Gain | None:
        """Return what another trial is expected to bring; None if nothing says it."""
        return self._optuna.expected_gain()

    def prepare(self) -> None:
        """Propose the next config ahead, if a slot would else wait for it noticeably."""
        seconds = self.trial_seconds
        if seconds:
            self._optuna.prepare(MAY_IDLE * sum(seconds) / len(seconds))

    def enqueue_check(self) -> bool:
        """Have a refused config asked again, to be run: the likeliest to fit of the front's.

        Returns:
            False where no refused config would be on the front if it fitted.
        """
        if self._forecast is None:
            return False
        pending = [t for t in self.trials.values() if self._is_worth_a_check(t)]
        if not pending:
            return False
        likely = self._forecast.probability_fits
        self._optuna.enqueue(max(pending, key=lambda trial: likely(trial.config)).config)
        return True

    def accept(self, trial: TrialRecord, measurement: Measurement) -> TrialRecord | None:
        """Book a trial's measurement; None when its lease no longer stands."""
        if not self._keep(trial, measurement):
            logger.warning("late result of trial %s kept as evidence only", trial.number)
            return None
        return self._measured(trial, measurement)

    def lose(self, trial: TrialRecord, reason: str, *, next_attempt: int) -> int | None:
        """Give a trial up for a fault that is not its config's.

        Returns:
            The number of the trial that tries the config again; None if none does.
        """
        self._optuna.fail(trial.number, reason)
        if next_attempt > MAX_ATTEMPTS:
            self._store.lose_trial(self._spec.name, trial.number, reason)
            return None
        again = self._optuna.enqueue(trial.config, next_attempt)
        self._store.lose_trial(self._spec.name, trial.number, _run_again(reason, again))
        return again

    def keep_evidence(self, trial: TrialRecord, measurement: Measurement) -> None:
        """Keep what a lost trial found, attached to no trial."""
        self._keep(trial, measurement)

    def book_rerun(self, trial: TrialRecord, measurement: Measurement) -> Rerun | None:
        """Keep a second run; a point that it speaks against leaves the front.

        Returns:
            What it says of the config; None for a fault of the machine.
        """
        self._keep(trial, measurement)
        self._learn_reruns()
        self._update_front()
        return self.reruns.get(trial.number)

    def tell(self, trial: TrialRecord, quality: Quality | None) -> None:
        """Score a measured trial and tell the sampler, the store and the front."""
        assert trial.measurement is not None
        verdict = judge(
            trial.measurement,
            budget_bytes=self._spec.memory_budget_bytes,
            rates=self._spec.rates,
            quality=quality,
        )
        reason = trial.reason or (quality.reason if quality is not None else "")
        self._tell(replace(trial, reason=reason), verdict)

    def needs_quality(self, trial: TrialRecord) -> bool:
        """Tell whether a trial's class must have a quality before it is told."""
        is_completed = trial.outcome == Outcome.COMPLETED
        return is_completed and Objective.QUALITY in self._spec.objectives

    def recover(self, configs: Sequence[TrainingConfig]) -> list[TrialRecord]:
        """Take up what an earlier driver left, or enqueue what comes first.

        Returns:
            Every trial that has a result.
        """
        stored = self._store.trials(self._spec.name)
        by_number = {trial.number: trial for trial in stored}
        self._optuna.fail_half_asked("the driver ended while it asked")
        running = self._optuna.running()
        for number, (config, attempt) in running.items():
            if number not in by_number or by_number[number].state == TrialState.LEASED:
                self._take_back(number, config, attempt)
        for trial in stored:
            if trial.state == TrialState.LEASED and trial.number not in running:
                self._store.lose_trial(self._spec.name, trial.number, "the driver ended")
        with_result = [t for t in stored if t.state in (TrialState.MEASURED, TrialState.TOLD)]
        self.trials = {trial.number: trial for trial in with_result}
        self._optuna.close_configs([trial.config for trial in with_result])
        self._close_too_large(with_result)
        self._learn(with_result)
        self._learn_reruns()
        if not stored and not running and not self._optuna.num_waiting():
            for config in first_configs(configs, self._spec.baseline, self._forecast):
                self._optuna.enqueue(config)
        self._update_front()
        return with_result

    def _take_back(self, number: int, config: TrainingConfig, attempt: int) -> None:
        reason = "the driver ended before the result came"
        self._optuna.fail(number, reason)
        again = self._optuna.enqueue(config, attempt)
        self._store.lose_trial(self._spec.name, number, _run_again(reason, again))

    def _refusal(self, config: TrainingConfig) -> TooLarge | None:
        """Return why a config is predicted not to fit; asked again, it is to be checked."""
        is_check = any(t.config == config for t in self.trials.values() if not t.is_measured)
        return None if self._forecast is None or is_check else self._forecast.refusal(config)

    def _is_worth_a_check(self, trial: TrialRecord) -> bool:
        """Tell whether a trial was refused by prediction alone and would count if it fitted."""
        if trial.source != Source.PREDICTED or trial.config in self.refusals.checked:
            return False
        if surely_too_large(trial.config, self.trials.values()):
            return False
        assert self._forecast is not None
        direction = self._record.facts.quality_direction
        scores = self._forecast.scores(trial.config)
        if Objective.QUALITY in self._spec.objectives:
            known = [t for t in self.trials.values() if self._is_of_class(t, trial.config)]
            scores = replace(scores, quality=hoped_quality(known, self.front, direction))
        hoped = replace(trial, outcome=Outcome.COMPLETED, scores=scores, violation=0.0)
        return hoped in pareto_front([*self.front, hoped], self._spec.objectives, direction)

    def _is_of_class(self, trial: TrialRecord, config: TrainingConfig) -> bool:
        """Tell whether a trial's quality is that of a config: they are of one numerics class."""
        devices = self._spec.space.num_devices
        return trial.config.numerics_class(devices) == config.numerics_class(devices)

    def _answer(self, trial: TrialRecord, stored: StoredMeasurement) -> TrialRecord:
        cached = replace(trial, source=Source.CACHED, measurement_id=stored.id)
        measured = self._measured(cached, stored.measurement)
        self._store.open_trial(measured)
        return measured

    def _predict(self, trial: TrialRecord, too_large: TooLarge) -> TrialRecord:
        predicted = replace(
            trial,
            source=Source.PREDICTED,
            outcome=Outcome.OUT_OF_MEMORY,
            reason=too_large.reason,
        )
        self._store.open_trial(predicted)
        verdict = predicted_verdict(too_large.attempted_bytes, self._spec.memory_budget_bytes)
        return self._tell(predicted, verdict)

    def _measured(self, trial: TrialRecord, measurement: Measurement) -> TrialRecord:
        measured = replace(
            trial,
            state=TrialState.MEASURED,
            outcome=measurement.outcome,
            reason=measurement.reason,
            measurement=measurement,
        )
        self.trials[trial.number] = measured
        self._close_too_large([measured])
        self._learn([measured])
        return measured

    def _learn(self, trials: Sequence[TrialRecord]) -> None:
        for trial in trials:
            if self._forecast is not None and trial.measurement is not None:
                self._forecast.learn(trial.config, trial.measurement)

    def _close_too_large(self, trials: Sequence[TrialRecord]) -> None:
        witnesses = [t for t in trials if t.outcome == Outcome.OUT_OF_MEMORY]
        if witnesses:
            is_open = self._optuna.open_configs()
            self._optuna.close_configs([c for c in is_open if surely_too_large(c, witnesses)])

    def _tell(self, trial: TrialRecord, verdict: Verdict) -> TrialRecord:
        seen = [t.scores for t in self.trials.values() if t.is_feasible]
        self._optuna.tell(trial.number, verdict, seen, _notes(trial))
        self._store.tell_trial(trial, verdict.scores, verdict.violation)
        told = replace(
            trial, state=TrialState.TOLD, scores=verdict.scores, violation=verdict.violation
        )
        self.trials[trial.number] = told
        if told.is_feasible:
            self._update_front()
        logger.info("trial %s: %s, %s", told.number, told.config, told.outcome)
        self._on_told(told)
        return told

    def _update_front(self) -> None:
        direction = self._record.facts.quality_direction
        refuted = {number for number, rerun in self.reruns.items() if not rerun.is_confirmed}
        standing = [trial for number, trial in self.trials.items() if number not in refuted]
        self.front = pareto_front(standing, self._spec.objectives, direction)
        chosen = self.recommendation
        numbers = [trial.number for trial in self.front]
        recommended = None if chosen is None else chosen.number
        if (numbers, recommended) != self._stored_front:
            self._store.set_front(self._spec.name, numbers, recommended)
            self._stored_front = (numbers, recommended)

    def _learn_reruns(self) -> None:
        later = self._store.later_measurements(self._spec.name)
        self.reruns = reruns_of(later, self._spec.memory_budget_bytes)

    def _keep(self, trial: TrialRecord, measurement: Measurement) -> bool:
        return self._store.record_measurement(
            trial, self._key(trial.config), self._spec.memory_budget_bytes, measurement
        )

    def _key(self, config: TrainingConfig) -> MeasurementKey:
        return MeasurementKey(
            workload=self._record.facts.fingerprint,
            config=config,
            environment=self._record.environment.hash,
            protocol=self._protocol_of(config),
        )

    def _protocol_of(self, config: TrainingConfig) -> str:
        """Return how a config is measured; one that swaps to a disk, on that disk."""
        if config.offload_target != OffloadTarget.NVME:
            return self._protocol
        return stable_hash([self._protocol, self._spec.nvme_path])


def _run_again(reason: str, number: int) -> str:
    return f"{reason}; run again as trial {number}"


def _notes(trial: TrialRecord) -> dict[str, str | float]:
    """Return what a dashboard shows of a trial beside its values."""
    notes: dict[str, str | float] = {"outcome": str(trial.outcome)}
    if trial.source != Source.RUN:
        notes["source"] = str(trial.source)
    if trial.reason:
        notes["reason"] = trial.reason[:500]
    return notes
