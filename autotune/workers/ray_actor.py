"""What runs at a slot's place in the cluster: an actor on devices reserved for it."""

import json
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from autotune.workers.slots import SlotPlan
from trials.errors import TrialSetupError
from trials.folders import PrivateFolder, short_temporary_folder
from trials.groups import TrialGroup
from trials.host import RunningTrial, TrialHost
from trials.spec import TrialSpec


class Reservation:
    """The devices of one slot, as a placement group of one bundle.

    They are granted all at once and on one machine, or not at all, and stay the slot's own while
    a lost actor is replaced.
    """

    def __init__(self, plan: SlotPlan) -> None:
        """Ask Ray for them; an actor that is placed here waits until they are granted."""
        self._num_cpus, self._num_gpus = plan.num_threads, plan.is_cuda * plan.num_devices
        bundle = {"CPU": self._num_cpus, "GPU": self._num_gpus}
        self._group = placement_group(
            [{name: float(count) for name, count in bundle.items() if count}],
            strategy="STRICT_PACK",
        )

    @property
    def options(self) -> dict[str, Any]:
        """How Ray places an actor that takes all of it."""
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)
        return {
            "num_cpus": self._num_cpus,
            "num_gpus": self._num_gpus,
            "scheduling_strategy": strategy,
        }

    def fits(self, node: Mapping[str, float]) -> bool:
        """Return whether a machine has what is reserved, be it in use or not."""
        return node.get("CPU", 0) >= self._num_cpus and node.get("GPU", 0) >= self._num_gpus

    def release(self) -> None:
        """Give the devices back."""
        remove_placement_group(self._group)


class SlotActor:
    """The slot's side: runs one trial at a time, and can be told to end it."""

    def __init__(self, runner: str, preload: Sequence[str], parent: str | None) -> None:
        """Prepare a host.

        Args:
            runner: What trial processes call, as ``module:function``.
            preload: Modules that are imported once, so that no trial has to.
            parent: Where to keep temporary files; None for the machine's own place.
        """
        where = short_temporary_folder() if parent is None else Path(parent)
        self._folder = PrivateFolder("autotune-slot-", where)
        # A slot may be killed; what multiprocessing and the host leave then must be findable.
        tempfile.tempdir = str(self._folder.path)
        self._host = TrialHost(runner, preload)
        self._lock = threading.Lock()
        self._trial: RunningTrial | TrialGroup | None = None
        self._ticket = self._cancelled_ticket = -1

    def open(self, probe_json: str) -> tuple[str, str | None, str]:
        """Run a first trial, and say where the slot is.

        Returns:
            The slot's process, machine and GPUs as JSON, then what ``run`` returns.
        """
        place = {
            "pid": os.getpid(),
            "machine": ray.util.get_node_ip_address(),  # type: ignore[no-untyped-call]
            "gpus": [str(gpu) for gpu in ray.get_gpu_ids()],
        }
        return json.dumps(place), *self.run(0, probe_json)

    def run(self, ticket: int, spec_json: str) -> tuple[str | None, str]:
        """Run a trial.

        Args:
            ticket: Counts the trials of a driver.
            spec_json: A ``TrialSpec``.

        Returns:
            The measurement as JSON, or None and why the slot cannot run trials any more.
        """
        try:
            trial = self._start(ticket, TrialSpec.from_json(spec_json))
        except TrialSetupError as error:
            return None, str(error)
        try:
            return trial.result().to_json(), ""
        finally:
            with self._lock:
                self._trial = None
            trial.end()

    @ray.method(concurrency_group="control")
    def cancel(self, ticket: int) -> None:
        """End a trial, whether it has begun or is about to."""
        with self._lock:
            self._cancelled_ticket = ticket
            if self._trial is not None and self._ticket <= ticket:
                self._trial.cancel()

    def close(self) -> None:
        """Remove what the slot keeps outside its process, once its trial is over."""
        self._host.close()
        self._folder.remove()

    def _start(self, ticket: int, spec: TrialSpec) -> RunningTrial | TrialGroup:
        with self._lock:
            trial = self._trial = self._host.start(spec)
            self._ticket = ticket
            if ticket <= self._cancelled_ticket:
                trial.cancel()
            return trial
