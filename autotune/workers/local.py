"""Slots of this very process, without Ray: for debugging, and where there is no Ray."""

import time
from collections.abc import Sequence
from multiprocessing.connection import wait

from autotune.errors import WorkersError
from autotune.workers.base import Finished, Workers, WorkersRequest
from autotune.workers.probes import common_environment, probe_spec, probed_environment
from autotune.workers.slots import SlotPlan
from trials.environment import Environment
from trials.errors import TrialSetupError
from trials.groups import TrialGroup
from trials.host import RunningTrial, TrialHost
from trials.spec import TrialSpec


class LocalWorkers(Workers):
    """Slots that share one trial host in this process."""

    def __init__(self, plans: Sequence[SlotPlan], request: WorkersRequest) -> None:
        """Open slots.

        Args:
            plans: What each gets.
            request: What else is asked for.
        """
        self._nvme_path = request.nvme_path
        self._plans = {plan.name: plan for plan in plans}
        self._running: dict[str, RunningTrial | TrialGroup] = {}
        self._lost: list[Finished] = []
        self._host = TrialHost(request.runner, request.preload)

    def environment(self) -> Environment:
        """See Workers."""
        probes: dict[str, RunningTrial | TrialGroup] = {}
        try:
            for name, plan in self._plans.items():
                probes[name] = self._host.start(plan.place(probe_spec(self._nvme_path)))
            return common_environment(
                {name: probed_environment(name, probe.result()) for name, probe in probes.items()}
            )
        except TrialSetupError as error:
            raise WorkersError(str(error)) from error
        finally:
            for probe in probes.values():
                probe.end()

    @property
    def num_slots(self) -> int:
        """See Workers."""
        return len(self._plans)

    @property
    def num_free(self) -> int:
        """See Workers."""
        return len(self._plans) - len(self._running)

    def submit(self, spec: TrialSpec) -> str:
        """See Workers."""
        name = next((name for name in self._plans if name not in self._running), None)
        if name is None:
            raise WorkersError("no slot is free")
        try:
            self._running[name] = self._host.start(self._plans[name].place(spec))
        except TrialSetupError as error:
            # The next start begins with a new helper process: a slot lost and replaced.
            self._lost.append(
                Finished(
                    trial_id=spec.trial_id, slot=name, measurement=None, lost_reason=str(error)
                )
            )
        return name

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """See Workers."""
        until = time.monotonic() + timeout_seconds
        while True:
            finished = self._take_finished()
            seconds_left = until - time.monotonic()
            if finished or not self._running or seconds_left <= 0:
                return finished
            trials = self._running.values()
            wait(
                [waitable for trial in trials for waitable in trial.waitables],
                min(seconds_left, *(trial.seconds_left for trial in trials)),
            )

    def cancel_all(self) -> None:
        """See Workers."""
        for trial in self._running.values():
            trial.cancel()

    def close(self) -> None:
        """See Workers."""
        for trial in self._running.values():
            trial.end()
        self._running.clear()
        self._plans.clear()
        self._host.close()

    def _take_finished(self) -> list[Finished]:
        finished, self._lost = self._lost, []
        for name, trial in list(self._running.items()):
            measurement = trial.poll(timeout_seconds=0.0)
            if measurement is not None:
                del self._running[name]
                finished.append(
                    Finished(trial_id=trial.spec.trial_id, slot=name, measurement=measurement)
                )
        return finished
