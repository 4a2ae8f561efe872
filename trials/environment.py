"""On what a measurement was made. One made elsewhere is never silently reused."""

from dataclasses import dataclass
from typing import Any

from search_spaces import DeviceFacts, stable_hash
from trials.codec import to_plain

_ASIDE = ("missing", "host_memory_bytes", "nvme_free_bytes")
"""Fields that are no part of the fingerprint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Fingerprint of a device and the software on it.

    Attributes:
        device_kind: ``cpu`` or ``cuda``.
        device_name: As the driver or the processor names itself.
        device_memory_bytes: Memory of the device; on CPU, of the machine.
        num_threads: Compute threads of a trial on CPU; 0 on CUDA.
        compute_capability: ``8.0`` and the like, or None on CPU.
        driver: Driver version, or None on CPU.
        cuda: CUDA version of the torch build, or None.
        python: Version.
        torch: Version.
        bitsandbytes: Version, or None where it is not installed.
        deepspeed: Version, or None where it is not installed.
        torchao: Version, or None where it is not installed.
        missing: Techniques that cannot be used, and why. No part of the fingerprint: what was
            measured without them stands.
        host_memory_bytes: Memory of the machine; None in what was stored before it was asked.
            No part of the fingerprint either.
        nvme_free_bytes: What is left on the disk that state may be offloaded to; None where
            there is no such folder. No part of the fingerprint either.
    """

    device_kind: str
    device_name: str
    device_memory_bytes: int
    num_threads: int
    python: str
    torch: str
    compute_capability: str | None = None
    driver: str | None = None
    cuda: str | None = None
    bitsandbytes: str | None = None
    deepspeed: str | None = None
    torchao: str | None = None
    peft: str | None = None
    missing: tuple[tuple[str, str], ...] = ()
    host_memory_bytes: int | None = None
    nvme_free_bytes: int | None = None

    @property
    def hash(self) -> str:
        """Equal for environments whose measurements may stand for each other."""
        return stable_hash(self._fingerprint())

    def device_facts(self) -> DeviceFacts:
        """Return what the rules of a space need."""
        capability = None
        if self.compute_capability is not None:
            major, minor = self.compute_capability.split(".")
            capability = (int(major), int(minor))
        return DeviceFacts(
            kind=self.device_kind,
            compute_capability=capability,
            missing=self.missing,
        )

    def differences(self, other: "Environment") -> list[str]:
        """Name the fields in which two environments differ, with both values."""
        mine, theirs = self._fingerprint(), other._fingerprint()
        return [f"{k}: {mine[k]} / {theirs[k]}" for k in mine if mine[k] != theirs[k]]

    def _fingerprint(self) -> dict[str, Any]:
        return {name: value for name, value in to_plain(self).items() if name not in _ASIDE}
