"""What workers promise: slots that run one trial each, and never lose one in silence."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from trials.environment import Environment
from trials.measurement import Measurement
from trials.spec import TrialSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersRequest:
    """What workers are asked for.

    Attributes:
        device_kind: ``cpu`` or ``cuda``.
        num_slots: Trials at once; None for one per GPU, or on CPU two where there are the cores.
        ray_address: Of a running cluster; None starts one on this machine alone.
        runner: What trial processes call, as ``module:function``.
        nvme_path: Folder that trials may offload to.
        num_devices: Devices that one trial trains on together.
        preload: Modules that slots import once, so that no trial has to.
    """

    device_kind: str = "cpu"
    num_slots: int | None = None
    ray_address: str | None = None
    runner: str = "trials.runner:run_trial"
    nvme_path: str | None = None
    num_devices: int = 1
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A trial that is over.

    Attributes:
        trial_id: As in its spec.
        slot: Where it ran.
        measurement: What it found, or None when its slot was lost with it.
        lost_reason: What happened to the slot, when the measurement is None.
    """

    trial_id: str
    slot: str
    measurement: Measurement | None
    lost_reason: str = ""


class Workers(ABC):
    """Slots, each with a device of its own.

    The caller keeps no more trials under way than there are free slots. Every submitted trial
    comes back from ``collect`` exactly once: with its measurement, or as lost. A lost slot is
    replaced; when none can be had any more, the next call raises.
    """

    @abstractmethod
    def environment(self) -> Environment:
        """Return what every slot's trials run on.

        Raises:
            WorkersError: Slots differ from each other; the message names how.
        """

    @property
    @abstractmethod
    def num_slots(self) -> int:
        """Trials that can run at once."""

    @property
    @abstractmethod
    def num_free(self) -> int:
        """Slots without a trial."""

    @abstractmethod
    def submit(self, spec: TrialSpec) -> str:
        """Start a trial on a free slot and return the slot's name; the slot sets its device.

        Raises:
            WorkersError: No slot is free, or none can be had any more.
        """

    @abstractmethod
    def collect(self, timeout_seconds: float) -> list[Finished]:
        """Return the trials that ended; wait for the first of them, but not for ever.

        Raises:
            WorkersError: Lost slots cannot be replaced.
        """

    @abstractmethod
    def cancel_all(self) -> None:
        """End every trial under way; each still comes back from ``collect``."""

    @abstractmethod
    def close(self) -> None:
        """End everything that was started, and remove what it left. Safe to call twice."""
