"""The recommended config once more before it is recommended: a real run in a fresh process."""

import uuid
from collections.abc import Callable, Iterator

from autotune.events import PointRerun
from autotune.ledger import Ledger
from autotune.records import TrialRecord
from autotune.spending import Spending
from autotune.stopping import StopSwitch
from autotune.workers.base import Workers
from search_spaces import TrainingConfig
from trials.measurement import Measurement
from trials.spec import TrialSpec

MAX_TRIES = 3
COLLECT_SECONDS = 0.5


class Confirmer:
    """Runs recommended configs again, until one is confirmed, at most three times.

    Nothing is asked or told: a second run is a measurement of its config and no trial. The
    point that it speaks against leaves the front, and the next one is recommended.
    """

    def __init__(
        self,
        *,
        workers: Workers,
        ledger: Ledger,
        spending: Spending,
        stop: StopSwitch,
        spec_of: Callable[[TrainingConfig, str], TrialSpec],
        beat: Callable[[], None],
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            workers: With no trial under way.
            ledger: Knows the recommended point, and is told of second runs.
            spending: Kept back the time of the first; of more only what is left is spent.
            stop: Looked at before and during each.
            spec_of: Returns the trial of a config, under an identity.
            beat: Called while one is under way; ends it when that is asked for.
        """
        self._workers, self._ledger, self._spending = workers, ledger, spending
        self._stop = stop
        self._spec_of, self._beat = spec_of, beat

    def run(self) -> Iterator[PointRerun]:
        """Confirm the recommended point, or the one that is recommended instead.

        Yields:
            What each second run found.
        """
        for tries in range(MAX_TRIES):
            trial = self._ledger.unconfirmed
            is_unpaid = tries > 0 and self._spending.is_time_up
            if trial is None or self._stop.level or is_unpaid:
                return
            measurement = self._run_again(trial)
            if measurement is not None:
                rerun = self._ledger.book_rerun(trial, measurement)
                yield PointRerun(number=trial.number, measurement=measurement, rerun=rerun)

    def _run_again(self, trial: TrialRecord) -> Measurement | None:
        """Return what a run of a trial's config finds; None when its slot was lost with it."""
        identity = uuid.uuid4().hex
        self._workers.submit(self._spec_of(trial.config, identity))
        while True:
            for finished in self._workers.collect(COLLECT_SECONDS):
                if finished.trial_id != identity:
                    continue
                if finished.measurement is not None:
                    used = finished.measurement.process_seconds
                    self._spending.session_device_seconds += used
                return finished.measurement
            self._beat()
