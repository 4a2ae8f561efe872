"""The loop of a study: ask, submit, collect, record, tell. The only one that writes."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from autotune.confirming import Confirmer
from autotune.errors import AutotuneError, LeaseLostError, NothingFitsError, WorkersError
from autotune.events import (
    Heartbeat,
    Listener,
    QualityMeasured,
    TrialLost,
    TrialStarted,
    TrialTold,
)
from autotune.front import Recommendation
from autotune.ledger import Ledger
from autotune.optimizer.study import OptunaStudy
from autotune.quality import QualityDesk, QualityJob
from autotune.records import Owner, StudyRecord, StudyState, TrialRecord, TrialState, WorkTime
from autotune.refusals import Refusals
from autotune.reruns import Rerun, nothing_again
from autotune.soundness import require_sound_evaluation, require_sound_workload
from autotune.spending import Spending
from autotune.stopping import StopSwitch
from autotune.store.base import StudyStore
from autotune.summary import baseline_of, nothing_fits, nothing_scored, source_counts
from autotune.workers.base import Finished, Workers
from autotune.worth import Worth
from search_spaces import TrainingConfig
from trials.errors import TrialError, WorkloadError
from trials.measurement import Measurement, Outcome
from trials.spec import TrialSpec

logger = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
RENEW_SECONDS = 5.0
COLLECT_SECONDS = 0.5
EXHAUSTED = "every config of the space is tried or ruled out"
MAX_CHECKS = 3
"""Refused configs that are run before a study ends, beside its budget of trials."""
MAX_BROKEN_IN_A_ROW = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """How a session of a study ended.

    Attributes:
        state: Of the study now.
        stop_reason: In words.
        front: The front.
        recommendation: The point to train with; None without a front.
        baseline: The trial of the study's baseline, once told.
        reruns: What second runs said, by number of the trial.
        num_unscored: Measured trials that wait for their quality.
        refusals: Configs that were not run.
        spending: What the study cost so far.
    """

    state: StudyState
    stop_reason: str
    front: tuple[TrialRecord, ...]
    recommendation: Recommendation | None
    baseline: TrialRecord | None
    reruns: dict[int, Rerun]
    num_unscored: int
    refusals: Refusals
    spending: Spending


class Tuner:
    """Runs one study until its budget is spent, it is stopped, or it cannot go on."""

    def __init__(
        self,
        *,
        store: StudyStore,
        optuna: OptunaStudy,
        workers: Workers,
        record: StudyRecord,
        stop: StopSwitch,
        listen: Listener,
    ) -> None:
        """Prepare a session. Nothing is written before ``run``."""
        self._store = store
        self._workers = workers
        self._record = record
        self._spec = record.spec
        self._stop = stop
        self._listen = listen
        self._desk = QualityDesk(store, record)
        self._ledger = Ledger(
            store=store,
            optuna=optuna,
            record=record,
            protocol=self._trial_spec(TrainingConfig(), "").protocol,
            on_told=lambda trial: listen(TrialTold(trial=trial)),
        )
        self._worth = Worth(planned_seconds=self._spec.budget.planned_seconds)
        self._in_flight: dict[str, TrialRecord | QualityJob] = {}
        self._broken_in_a_row = 0
        self._last_lost = ""
        self._spending = Spending(
            budget=self._spec.budget, rates=self._spec.rates, earlier=record.worked
        )

    def run(self, owner: Owner, configs: tuple[TrainingConfig, ...]) -> StudyResult:
        """Run the study.

        Args:
            owner: This driver.
            configs: Every config of the space.

        Raises:
            NothingFitsError: It ended without one completed trial.
            StudyBusyError: Another driver runs it.
            WorkersError: No slots are left.
            WorkloadError: Every trial fails the same way.
        """
        with self._claimed(owner):
            self._spending.count_earlier(self._ledger.recover(configs))
            for trial in self._ledger.unscored:
                self._order_quality(trial)
            try:
                with self._stop.watched():
                    self._loop(self._may_ask)
                    self._check_refusals()
                    if self._spec.confirms:
                        self._confirm()
            except LeaseLostError:
                self._in_flight.clear()  # they are the new owner's to give up
                raise
            finally:
                self._abandon()
            return self._conclude()

    @contextmanager
    def _claimed(self, owner: Owner) -> Iterator[None]:
        name, budget = self._spec.name, self._spec.budget
        self._epoch = self._store.claim(name, owner, LEASE_SECONDS, budget)
        self._renewed, self._renewed_device_seconds = time.monotonic(), 0.0
        state, reason = StudyState.FAILED, "the driver stopped on an error"
        try:
            yield
            self._renew()
            state, reason = self._state(), self._stop_reason()
        except KeyboardInterrupt:
            state, reason = StudyState.INTERRUPTED, "stopped by the user"
            raise
        except (AutotuneError, TrialError) as error:
            reason = str(error)
            raise
        finally:
            with suppress(LeaseLostError):
                self._renew()  # the time since the last renewal counts, however the session ends
            self._store.release(self._spec.name, self._epoch, state, reason)

    def _may_ask(self) -> bool:
        if self._spending.reached() is not None or not self._ledger.has_more():
            return False
        gain = self._ledger.expected_gain()
        if gain is not None:
            self._worth.look(gain.proposal, gain.relative, self._ledger.trial_seconds)
        return not self._worth.reason

    def _check_refusals(self) -> None:
        """Run refused configs that would be on the front if they fitted, the likeliest first."""
        for _ in range(MAX_CHECKS):
            if self._stop.level or self._spending.is_time_up or not self._ledger.enqueue_check():
                return
            self._loop(lambda: self._ledger.has_waiting)

    def _loop(self, may_ask: Callable[[], bool]) -> None:
        self._tell_ready()
        while True:
            self._fill(may_ask)
            if not self._in_flight:
                return
            if self._workers.num_free == 0:
                self._ledger.prepare()
            for finished in self._workers.collect(COLLECT_SECONDS):
                self._absorb(finished)
            self._tell_ready()
            self._beat()

    def _confirm(self) -> None:
        confirmer = Confirmer(
            workers=self._workers,
            ledger=self._ledger,
            spending=self._spending,
            stop=self._stop,
            spec_of=self._trial_spec,
            beat=self._beat,
        )
        for event in confirmer.run():
            self._listen(event)

    def _fill(self, may_ask: Callable[[], bool]) -> None:
        while self._workers.num_free > 0 and self._stop.level == 0:
            if self._desk.has_work:
                job, spec = self._desk.next_run()
                self._workers.submit(spec)
                self._in_flight[spec.trial_id] = job
            elif may_ask():
                self._start(self._ledger.ask())
            else:
                return

    def _start(self, trial: TrialRecord) -> None:
        if trial.state == TrialState.LEASED:
            limit = self._ledger.beaten_seconds(trial.config)
            spec = replace(self._trial_spec(trial.config, trial.lease), beaten_seconds=limit)
            slot = self._workers.submit(spec)
            self._spending.trials += 1
            self._in_flight[trial.lease] = replace(trial, slot=slot)
            self._listen(
                TrialStarted(
                    number=trial.number,
                    config=str(trial.config),
                    slot=slot,
                    why=self._ledger.why,
                )
            )
        elif trial.state == TrialState.MEASURED:
            self._order_quality(trial)
            self._tell_ready()

    def _trial_spec(self, config: TrainingConfig, identity: str) -> TrialSpec:
        return TrialSpec(
            workload=self._spec.workload,
            config=config,
            trial_id=identity,
            memory_budget_bytes=self._spec.memory_budget_bytes,
            num_devices=self._spec.space.num_devices,
            num_ranks=self._spec.num_ranks,
            seed=self._spec.seed,
            nvme_path=self._spec.nvme_path,
            deadline_seconds=self._spec.deadline_seconds,
            timing=self._spec.timing,
        )

    def _absorb(self, finished: Finished) -> None:
        job = self._in_flight.pop(finished.trial_id, None)
        if job is None:  # workers outlive a study that ended on an error, and so may its trials
            return
        measurement = finished.measurement
        if measurement is not None:
            self._spending.session_device_seconds += measurement.process_seconds
        if isinstance(job, QualityJob):
            self._absorb_quality(job, measurement)
        elif measurement is None:
            self._lose(job, finished.lost_reason)
        elif self._is_broken(job, measurement):
            try:
                self._lose(job, measurement.reason)
            finally:  # once lost, so that the measurement is attached to no trial
                self._ledger.keep_evidence(job, measurement)
        else:
            self._accept(job, measurement)

    @staticmethod
    def _is_broken(trial: TrialRecord, measurement: Measurement) -> bool:
        """Tell whether a result is a fault of the machine; a suspect one counts when repeated."""
        is_first = trial.attempt == 1
        return measurement.is_worth_another_run and (
            is_first or measurement.outcome == Outcome.CRASHED
        )

    def _accept(self, trial: TrialRecord, measurement: Measurement) -> None:
        self._broken_in_a_row = 0
        if self._spec.confirms:
            self._spending.reserve(measurement)
        measured = self._ledger.accept(trial, measurement)
        if measured is not None:
            self._order_quality(measured)
            require_sound_workload(self._spec.workload, self._ledger, self._desk)

    def _absorb_quality(self, job: QualityJob, measurement: Measurement | None) -> None:
        if self._stop.level >= 2 and (measurement is None or measurement.is_worth_another_run):
            return
        if self._desk.take(job, measurement) and measurement is not None:
            numerics = str(job.config.numerics_class(self._spec.space.num_devices))
            self._listen(
                QualityMeasured(numerics=numerics, seed=job.seed, measurement=measurement)
            )
            require_sound_evaluation(
                self._spec.workload, self._ledger, self._desk, job, measurement
            )

    def _lose(self, trial: TrialRecord, reason: str) -> None:
        """Give a trial up; one that a person ended has not used up an attempt."""
        is_ended_by_user = self._stop.level >= 2
        self._last_lost = reason
        self._spending.trials -= 1
        next_attempt = trial.attempt if is_ended_by_user else trial.attempt + 1
        again = self._ledger.lose(trial, reason, next_attempt=next_attempt)
        self._listen(
            TrialLost(
                number=trial.number,
                reason=reason,
                again=again,
                is_ended_by_user=is_ended_by_user,
            )
        )
        self._broken_in_a_row += not is_ended_by_user
        if self._broken_in_a_row >= MAX_BROKEN_IN_A_ROW:
            raise WorkersError(
                f"{self._broken_in_a_row} trials in a row broke without a result, the last one: "
                f"{reason}"
            )

    def _order_quality(self, trial: TrialRecord) -> None:
        if self._ledger.needs_quality(trial):
            self._desk.order(trial)

    def _tell_ready(self) -> None:
        for trial in self._ledger.unscored:
            quality = None
            if self._ledger.needs_quality(trial):
                quality = self._desk.quality(trial.config)
                if quality is None:
                    continue
            self._ledger.tell(trial, quality)
            require_sound_workload(self._spec.workload, self._ledger, self._desk)

    def _abandon(self) -> None:
        """Give up what is still under way, so that no trial stays leased."""
        for job in self._in_flight.values():
            if isinstance(job, TrialRecord):
                self._ledger.lose(job, "the driver stopped", next_attempt=job.attempt)
        self._in_flight.clear()

    def _beat(self) -> None:
        """Do what is due between two results: obey, renew the lease, and say how it stands."""
        if self._stop.level >= 2:
            self._workers.cancel_all()
        if time.monotonic() - self._renewed >= RENEW_SECONDS:
            self._renew()
        self._listen(
            Heartbeat(
                num_trials=self._spending.trials,
                num_in_flight=len(self._in_flight),
                seconds=self._spending.seconds,
                device_seconds=self._spending.device_seconds,
                usd=self._spending.usd,
                front=tuple(self._ledger.front),
            )
        )

    def _renew(self) -> None:
        now, used = time.monotonic(), self._spending.session_device_seconds
        worked = WorkTime(
            wall_seconds=now - self._renewed,
            device_seconds=used - self._renewed_device_seconds,
        )
        self._store.renew(self._spec.name, self._epoch, LEASE_SECONDS, worked)
        self._renewed, self._renewed_device_seconds = now, used

    def _state(self) -> StudyState:
        return StudyState.INTERRUPTED if self._stop.level else StudyState.FINISHED

    def _stop_reason(self) -> str:
        if self._stop.level:
            return "stopped by the user"
        reached = self._spending.reached()
        reason = reached or self._worth.reason or EXHAUSTED
        return reason + source_counts(list(self._ledger.trials.values()))

    def _conclude(self) -> StudyResult:
        unscored = self._ledger.unscored
        if not self._ledger.front and not unscored and not self._stop.level:
            raise self._fruitless()
        return StudyResult(
            state=self._state(),
            stop_reason=self._stop_reason(),
            front=tuple(self._ledger.front),
            recommendation=self._ledger.recommendation,
            baseline=baseline_of(self._ledger.trials.values(), self._record),
            reruns=dict(self._ledger.reruns),
            num_unscored=len(unscored),
            refusals=self._ledger.refusals,
            spending=self._spending,
        )

    def _fruitless(self) -> AutotuneError | TrialError:
        """Return the error of a study that ended without a point."""
        trials = list(self._ledger.trials.values())
        if self._ledger.reruns:
            return NothingFitsError(nothing_again(self._ledger.reruns))
        if any(trial.outcome == Outcome.COMPLETED for trial in trials):
            return WorkloadError(nothing_scored(trials))
        budget = self._spec.memory_budget_bytes
        return NothingFitsError(nothing_fits(trials, budget, self._record.facts, self._last_lost))
