"""Slots on a Ray cluster: one actor per device, each with a trial host of its own.

Texts cross between driver and slot, never objects: a trial's spec as JSON, its measurement
back as JSON, and trouble as a sentence.
"""

import itertools
import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError

from autotune.errors import WorkersError
from autotune.workers.base import Finished, Workers, WorkersRequest
from autotune.workers.probes import common_environment, probe_spec, probed_environment
from autotune.workers.ray_actor import Reservation, SlotActor
from autotune.workers.ray_bootstrap import Cluster
from autotune.workers.slots import SlotPlan
from trials.devices import PATIENCE_SECONDS
from trials.environment import Environment
from trials.measurement import Measurement
from trials.processes import end_all, end_strays, living
from trials.spec import TrialSpec

logger = logging.getLogger(__name__)

MAX_FAILED_STARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the driver waits for a slot.

    Attributes:
        start_seconds: Until it is ready for trials.
        silence_seconds: Beyond what its trial may take.
        end_seconds: Until a trial that was cancelled is over.
    """

    start_seconds: float = 120.0
    silence_seconds: float = PATIENCE_SECONDS + 30.0
    end_seconds: float = 15.0


class _Slot:
    """The driver's side: an actor, and the one call to it that is under way.

    starting --> free --> running --> free
    Whatever is lost, while starting or running, goes back to starting.
    """

    def __init__(
        self,
        plan: SlotPlan,
        cluster: Cluster,
        request: WorkersRequest,
        patience: Patience,
    ) -> None:
        """Start a slot. See RayWorkers."""
        self._request = request
        # Ray shows an actor no GPU but its own.
        self._plan = replace(plan, device="cuda:0") if plan.is_cuda else plan
        self._reservation = Reservation(self._plan)
        self._cluster = cluster
        self._patience = patience
        self.due = math.inf
        self.name = plan.name
        self.num_failed_starts = 0
        self.start()

    def start(self) -> None:
        """Begin with a new actor."""
        self.spec: TrialSpec | None = None
        self.environment: Environment | None = None
        self._process: set[Any] = set()
        self._actor = self._new_actor()
        probe = self._plan.place(probe_spec(self._request.nvme_path)).to_json()
        self._expect(self._actor.open.remote(probe), self._patience.start_seconds)

    @property
    def is_free(self) -> bool:
        """Whether a trial can be submitted."""
        return self.call is None

    @property
    def is_ready(self) -> bool:
        """Whether the slot has started."""
        return self.environment is not None

    @property
    def is_running(self) -> bool:
        """Whether a trial is under way."""
        return self.spec is not None

    def submit(self, ticket: int, spec: TrialSpec) -> None:
        """Start a trial."""
        self.spec = spec
        self._ticket = ticket
        # A trial's deadline begins anew once it has its device.
        allowed = 2 * spec.deadline_seconds + self._patience.silence_seconds
        self._expect(self._actor.run.remote(ticket, self._plan.place(spec).to_json()), allowed)

    def cancel(self) -> None:
        """End the trial under way."""
        self._actor.cancel.remote(self._ticket)
        self.due = min(self.due, time.monotonic() + self._patience.end_seconds)

    def fits(self, nodes: Sequence[Mapping[str, float]]) -> bool:
        """Return whether any of some machines has what the slot needs, be it in use or not."""
        return any(self._reservation.fits(node) for node in nodes)

    def take_start(self) -> Environment | None:
        """Return what a slot that is ready runs on, or None while it starts.

        Raises:
            WorkersError: It is lost.
        """
        answer = self._take()
        if answer is None:
            return None
        place_json, measurement_json, trouble = answer
        place = json.loads(place_json)
        if place["gpus"]:
            self.name = f"cuda-{place['gpus'][0]}"
        if self._cluster.is_here:
            self._process = living([place["pid"]])
        else:
            self.name = f"{place['machine']}/{self._plan.name}"
        self.environment = probed_environment(self.name, _read(measurement_json, trouble))
        return self.environment

    def take_measurement(self) -> Measurement | None:
        """Return what the trial found, or None while it runs.

        Raises:
            WorkersError: The slot is lost.
        """
        answer = self._take()
        if answer is None:
            return None
        self.spec = None
        return _read(*answer)

    def close(self) -> Any:
        """Have the slot clean up after its trial; returns the call to wait for."""
        if self.is_running:
            self.cancel()
        return self._actor.close.remote()

    def end(self) -> None:
        """Kill the actor, and with it what runs in the slot."""
        ray.kill(self._actor)
        # A process that hangs does not hear Ray.
        end_all(self._process, patience_seconds=0.0)

    def release(self) -> None:
        """Give the devices back; no actor can start here any more."""
        self._reservation.release()

    def _new_actor(self) -> Any:
        variables = dict(self._cluster.worker_variables)
        options: dict[str, Any] = {
            **self._reservation.options,
            "max_restarts": 0,
            "max_task_retries": 0,
            "concurrency_groups": {"control": 1},
            "runtime_env": {"env_vars": variables} if variables else None,
        }
        folder, asked = self._cluster.folder, self._request
        actor: Any = ray.remote(**options)(SlotActor)
        parent = None if folder is None else str(folder)
        return actor.remote(asked.runner, list(asked.preload), parent)

    def _expect(self, call: Any, seconds: float) -> None:
        self.call = call
        self.due = time.monotonic() + seconds
        self._allowed = seconds

    def _take(self) -> Any:
        """Return the answer to the call under way, or None while there is none."""
        ready, _ = ray.wait([self.call], timeout=0)
        if not ready:
            if time.monotonic() < self.due:
                return None
            raise WorkersError(f"no sign of slot {self.name} for {self._allowed:.0f} s")
        try:
            answer = ray.get(self.call)
        except RayError as error:
            message = " ".join(str(error).split())
            raise WorkersError(f"{type(error).__name__}: {message}") from error
        self.call = None
        return answer


class RayWorkers(Workers):
    """Slots of a Ray cluster. The driver decides what runs again; Ray never does."""

    def __init__(
        self,
        cluster: Cluster,
        plans: Sequence[SlotPlan],
        request: WorkersRequest,
        patience: Patience | None = None,
    ) -> None:
        """Open slots, and take the cluster over: it ends with them.

        Args:
            cluster: Where.
            plans: What each slot gets.
            request: What else is asked for.
            patience: How long to wait for slots.

        Raises:
            WorkersError: A slot does not start. The cluster is left open.
        """
        self._cluster = cluster
        self._patience = patience or Patience()
        self._tickets = itertools.count(1)
        self._environment: Environment | None = None
        self._is_open = True
        self._trouble = "the workers are closed"
        self._slots = [_Slot(plan, cluster, request, self._patience) for plan in plans]
        self._await_first_start()

    def environment(self) -> Environment:
        """See Workers."""
        self._require_slots()
        self._environment = common_environment(
            {slot.name: slot.environment for slot in self._slots if slot.environment is not None}
        )
        return self._environment

    @property
    def num_slots(self) -> int:
        """See Workers."""
        return len(self._slots)

    @property
    def num_free(self) -> int:
        """See Workers.

        Raises:
            WorkersError: Lost slots cannot be replaced.
        """
        self._require_slots()
        return sum(slot.is_free for slot in self._slots)

    def submit(self, spec: TrialSpec) -> str:
        """See Workers."""
        self._require_slots()
        slot = next((slot for slot in self._slots if slot.is_free), None)
        if slot is None:
            raise WorkersError("no slot is free")
        slot.submit(next(self._tickets), spec)
        return slot.name

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """See Workers. Whatever it returns, a trial is under way or a slot is free."""
        self._require_slots()
        until = time.monotonic() + timeout_seconds
        finished: list[Finished] = []
        while True:
            for slot in list(self._slots):
                finished += self._look_at(slot)
            if not self._slots:
                return finished
            is_running = any(slot.is_running for slot in self._slots)
            if is_running and (finished or time.monotonic() >= until):
                return finished
            if not is_running and any(slot.is_free for slot in self._slots):
                return finished
            self._wait(until if is_running else math.inf)

    def cancel_all(self) -> None:
        """See Workers."""
        for slot in self._slots:
            if slot.is_running:
                slot.cancel()

    def close(self) -> None:
        """See Workers."""
        if not self._is_open:
            return
        self._is_open = False
        closing = [slot.close() for slot in self._slots if slot.is_ready]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=self._patience.end_seconds)
        for slot in self._slots:
            slot.end()
            slot.release()
        self._slots.clear()
        self._cluster.close()

    def _await_first_start(self) -> None:
        while starting := [slot for slot in self._slots if not slot.is_ready]:
            for slot in starting:
                try:
                    slot.take_start()
                except WorkersError as error:
                    raise WorkersError(
                        f"slot {slot.name} does not start: {error}; {_holdings()}"
                    ) from error
            self._wait(math.inf)

    def _look_at(self, slot: _Slot) -> list[Finished]:
        """Take what has come of a slot's call, and replace the slot if it is lost."""
        if slot.is_free:
            return []
        spec = slot.spec
        try:
            if spec is None:
                self._accept(slot)
                return []
            measurement = slot.take_measurement()
        except WorkersError as error:
            return self._replace(slot, spec, str(error))
        if measurement is None:
            return []
        return [Finished(trial_id=spec.trial_id, slot=slot.name, measurement=measurement)]

    def _accept(self, slot: _Slot) -> None:
        environment = slot.take_start()
        if environment is None:
            return
        if self._environment is not None:
            common_environment({"before": self._environment, slot.name: environment})
        slot.num_failed_starts = 0

    def _replace(self, slot: _Slot, spec: TrialSpec | None, reason: str) -> list[Finished]:
        """Start a lost slot anew, or give it up; return the trial that was lost with it."""
        logger.warning("slot %s lost: %s", slot.name, reason)
        self._trouble = reason
        name = slot.name
        slot.end()
        if spec is None:
            slot.num_failed_starts += 1
        else:
            # The kernel may have killed the trial with the slot, and left what that had started.
            end_strays(spec.trial_id)
        if slot.num_failed_starts < MAX_FAILED_STARTS and slot.fits(self._cluster.nodes()):
            slot.start()
        else:
            slot.release()
            self._slots.remove(slot)
        if spec is None:
            return []
        return [Finished(trial_id=spec.trial_id, slot=name, measurement=None, lost_reason=reason)]

    def _wait(self, until: float) -> None:
        """Wait for news of any slot."""
        busy = [slot for slot in self._slots if not slot.is_free]
        if busy:
            due = min(until, *(slot.due for slot in busy))
            timeout = max(0.0, due - time.monotonic())
            ray.wait([slot.call for slot in busy], num_returns=1, timeout=timeout)

    def _require_slots(self) -> None:
        if not self._slots:
            raise WorkersError(f"no slot is left: {self._trouble}")


def _read(measurement_json: str | None, trouble: str) -> Measurement:
    if measurement_json is None:
        raise WorkersError(trouble)
    return Measurement.from_json(measurement_json)


def _holdings() -> str:
    """Return in words what the cluster has."""
    total = ray.cluster_resources()  # type: ignore[no-untyped-call]
    free = ray.available_resources()  # type: ignore[no-untyped-call]
    return "the cluster has " + " and ".join(
        f"{total.get(name, 0):g} {name}s, {free.get(name, 0):g} of them free"
        for name in ("CPU", "GPU")
    )
