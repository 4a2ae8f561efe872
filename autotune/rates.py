"""What a measurement costs by its parts: four rates of one day. Money is decimal."""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from enum import StrEnum

from trials.measurement import Measurement

GIB = 1024**3
DIGITS = 60
"""Of sums of money: enough for bytes as GiB, times a rate, without rounding."""
MILLION = 1_000_000


class Component(StrEnum):
    """What has a price of its own."""

    DEVICE = "device"
    DEVICE_MEMORY = "device-memory"
    HOST_MEMORY = "host-memory"
    NVME = "nvme"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Prices of the components that a trial occupies, in US dollars.

    Attributes:
        device_usd_per_hour: One device, without its memory.
        device_gib_usd_per_hour: One GiB of device memory.
        host_gib_usd_per_hour: One GiB of host memory.
        nvme_gib_usd_per_hour: One GiB of local NVMe.
        dated: Day the rates were read, as YYYY-MM-DD.
        book: Name of the price book that they are from; empty where they are from none.
    """

    device_usd_per_hour: float
    device_gib_usd_per_hour: float
    host_gib_usd_per_hour: float
    nvme_gib_usd_per_hour: float
    dated: str
    book: str = ""

    @property
    def label(self) -> str:
        """Their day, and the book that they are from."""
        return f"{self.dated} ({self.book})" if self.book else self.dated

    def parts_per_hour(self, measurement: Measurement) -> dict[Component, Decimal]:
        """Return what an hour of a measured config costs on all its devices, by component.

        Returns:
            US dollars, exactly: rates as they are written, bytes as they were measured.
        """
        memory = measurement.memory
        assert memory is not None
        with localcontext(prec=DIGITS):
            amounts = {
                Component.DEVICE: (self.device_usd_per_hour, Decimal(1)),
                Component.DEVICE_MEMORY: (
                    self.device_gib_usd_per_hour,
                    Decimal(memory.peak_device_bytes) / GIB,
                ),
                Component.HOST_MEMORY: (
                    self.host_gib_usd_per_hour,
                    Decimal(memory.peak_host_bytes) / GIB,
                ),
                Component.NVME: (self.nvme_gib_usd_per_hour, Decimal(memory.disk_bytes) / GIB),
            }
            return {
                component: measurement.num_ranks * Decimal(repr(rate)) * amount
                for component, (rate, amount) in amounts.items()
            }

    def usd_per_hour(self, measurement: Measurement) -> float:
        """Return what an hour of a measured config occupies on all its devices, in US dollars."""
        with localcontext(prec=DIGITS):
            return float(sum(self.parts_per_hour(measurement).values()))

    def usd_per_million_samples(self, measurement: Measurement) -> float:
        """Return the price of training a million samples, in US dollars.

        Source: price of an hour over samples of an hour; both from the measurement.
        """
        assert measurement.timing is not None
        seconds = MILLION / measurement.timing.samples_per_second
        return self.usd_per_hour(measurement) * seconds / 3600
