"""What a measurement costs: four rates, dated, until whole price books come."""

from dataclasses import dataclass

from trials.environment import Environment
from trials.measurement import Measurement

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Prices of the components that a trial occupies, in US dollars.

    Attributes:
        device_usd_per_hour: One device, without its memory.
        device_gib_usd_per_hour: One GiB of device memory.
        host_gib_usd_per_hour: One GiB of host memory.
        nvme_gib_usd_per_hour: One GiB of local NVMe.
        dated: Day the rates were read, as YYYY-MM-DD.
    """

    device_usd_per_hour: float
    device_gib_usd_per_hour: float
    host_gib_usd_per_hour: float
    nvme_gib_usd_per_hour: float
    dated: str

    def usd_per_hour(self, measurement: Measurement) -> float:
        """Return what an hour of a measured config occupies on all its devices, in US dollars."""
        assert measurement.memory is not None
        device_gib = measurement.memory.peak_device_bytes / GIB
        host_gib = measurement.memory.peak_host_bytes / GIB
        return measurement.num_ranks * (
            self.device_usd_per_hour
            + self.device_gib_usd_per_hour * device_gib
            + self.host_gib_usd_per_hour * host_gib
        )

    def usd_per_million_samples(self, measurement: Measurement) -> float:
        """Return the price of training a million samples, in US dollars.

        Source: price of an hour over samples of an hour; both from the measurement.
        """
        assert measurement.timing is not None
        seconds = 1e6 / measurement.timing.samples_per_second
        return self.usd_per_hour(measurement) * seconds / 3600


CORE_USD_PER_HOUR = 0.0160
"""Nebius, 2026: with ``HOST_GIB_USD_PER_HOUR`` it reproduces every CPU row of their price list."""
HOST_GIB_USD_PER_HOUR = 0.0022
DEVICE_GIB_USD_PER_HOUR = 0.0090
"""The price between a Nebius H200 and an H100, over the 61 GiB of memory between them."""
GPU_USD_PER_HOUR = 1.86
"""A Nebius H100 at 2.95, less its 80 GiB and a share of 168 GiB of host memory, as above."""
NVME_GIB_USD_PER_HOUR = 0.0001
DATED = "2026-06-30"


def default_rates(environment: Environment, num_devices: int = 1) -> Rates:
    """Return dated rates for a kind of device: a GPU, or the cores that a CPU trial has.

    On a CPU the device's memory is the host's, at the host's rate.

    Args:
        environment: Of a slot.
        num_devices: Of one trial; on CPU they share the slot's cores.
    """
    is_cpu = environment.device_kind == "cpu"
    return Rates(
        device_usd_per_hour=(
            CORE_USD_PER_HOUR * environment.num_threads / num_devices
            if is_cpu
            else GPU_USD_PER_HOUR
        ),
        device_gib_usd_per_hour=HOST_GIB_USD_PER_HOUR if is_cpu else DEVICE_GIB_USD_PER_HOUR,
        host_gib_usd_per_hour=HOST_GIB_USD_PER_HOUR,
        nvme_gib_usd_per_hour=NVME_GIB_USD_PER_HOUR,
        dated=DATED,
    )
