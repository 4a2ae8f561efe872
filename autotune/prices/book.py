"""A price book: what machines and their parts cost, on which day. Pure; money is decimal."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from autotune.prices.gpus import Gpu, find_gpu
from autotune.rates import Rates
from trials.environment import Environment

FRESH_DAYS = 90
"""An older book warns."""
CURRENCY = "USD"
CPU = "cpu"
"""What a component's ``gpu`` says for a machine without one; its hour is that of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFault:
    """A row that was left out, or a price of one.

    Attributes:
        line: In the file.
        reason: Why.
    """

    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HourWindow:
    """Hours of every day in which a price holds, in UTC.

    Attributes:
        start_hour: First, 0 to 23.
        end_hour: Where it ends, 1 to 24; one of the next day where it is not after the start.
    """

    start_hour: int
    end_hour: int

    @property
    def num_hours(self) -> int:
        """How long it is."""
        return (self.end_hour - self.start_hour - 1) % 24 + 1

    def __str__(self) -> str:
        """Write it as a book does."""
        return f"{self.start_hour}-{self.end_hour}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A machine for rent.

    Attributes:
        provider: Who rents it.
        instance: What the provider calls it.
        region: Where; a zone of it where the price is a zone's.
        gpu: Model of its GPUs; None for a machine without.
        num_gpus: How many; less than 1 for a share of one.
        gpu_memory_bytes: Of one GPU, or of the share of one.
        host_memory_bytes: Of the machine.
        disk_bytes: Of its local NVMe; None where the book does not say.
        num_cores: Virtual; None where the book does not say.
        processor: As it names itself; empty where the book does not say.
        usd_per_hour: On demand; None where it is not to be had.
        spot_usd_per_hour: Until somebody pays more; None where there is no such price.
        spot_mtbf_hours: Mean time between preemptions; None where the book does not say.
        hours: When these prices hold; None for always.
        is_zone: Whether ``region`` is a zone.
    """

    provider: str
    instance: str
    region: str
    gpu: Gpu | None
    num_gpus: Decimal
    gpu_memory_bytes: int
    host_memory_bytes: int
    disk_bytes: int | None = None
    num_cores: Decimal | None = None
    processor: str = ""
    usd_per_hour: Decimal | None
    spot_usd_per_hour: Decimal | None = None
    spot_mtbf_hours: Decimal | None = None
    hours: HourWindow | None = None
    is_zone: bool = False

    def price(self, *, is_spot: bool) -> Decimal | None:
        """Return the hour's price in US dollars."""
        return self.spot_usd_per_hour if is_spot else self.usd_per_hour

    def __str__(self) -> str:
        """Name the machine and where it stands."""
        return f"{self.provider} {self.instance} {self.region}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRates:
    """What the parts of a machine cost, in US dollars.

    Attributes:
        gpu: Model that they are of; empty for any GPU, ``cpu`` for machines without.
        device_usd_per_hour: One GPU without its memory; without GPUs, one core.
        device_gib_usd_per_hour: One GiB of device memory.
        host_gib_usd_per_hour: One GiB of host memory.
        nvme_gib_usd_per_hour: One GiB of local NVMe.
    """

    gpu: str = ""
    device_usd_per_hour: Decimal
    device_gib_usd_per_hour: Decimal
    host_gib_usd_per_hour: Decimal
    nvme_gib_usd_per_hour: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBook:
    """Prices of one day, in US dollars.

    Attributes:
        name: For people; a file's, if it gives none.
        dated: Day of the prices.
        is_date_stated: Whether the book says so itself; else it is the day its file changed.
        source: Where the prices are from.
        offers: Machines whose price holds at all hours, in the book's order.
        hourly: Machines whose price holds at some hours of a day.
        components: Parts.
        faults: What was left out.
    """

    name: str
    dated: date
    is_date_stated: bool = True
    source: str = ""
    offers: tuple[Offer, ...] = ()
    hourly: tuple[Offer, ...] = ()
    components: tuple[ComponentRates, ...] = ()
    faults: tuple[RowFault, ...] = ()

    def age_days(self, today: date) -> int:
        """Return how old the prices are."""
        return (today - self.dated).days

    def components_for(self, environment: Environment) -> ComponentRates | None:
        """Return the rates of a device's parts: of its model, else of any; None if neither."""
        by_gpu = {rates.gpu: rates for rates in self.components}
        if environment.device_kind == CPU:
            return by_gpu.get(CPU)
        model = gpu_of(environment)
        named = [r for name, r in by_gpu.items() if name not in ("", CPU) and find_gpu(name)]
        own = next((r for r in named if find_gpu(r.gpu) == model), None)
        return own or by_gpu.get("")

    def rates(self, environment: Environment, num_devices: int = 1) -> Rates | None:
        """Return what a device and its memory cost.

        Where the book has no parts, the cheapest machine with that device is paid whole, and
        memory costs nothing more.

        Args:
            environment: Of a slot.
            num_devices: Of one trial; on CPU they share the slot's cores.

        Returns:
            The rates; None where the book has neither.
        """
        parts = self.components_for(environment)
        if parts is None:
            parts = self._whole_machine(environment, num_devices)
        if parts is None:
            return None
        device = parts.device_usd_per_hour
        if environment.device_kind == CPU:
            device = device * environment.num_threads / num_devices
        return Rates(
            device_usd_per_hour=float(device),
            device_gib_usd_per_hour=float(parts.device_gib_usd_per_hour),
            host_gib_usd_per_hour=float(parts.host_gib_usd_per_hour),
            nvme_gib_usd_per_hour=float(parts.nvme_gib_usd_per_hour),
            dated=self.dated.isoformat(),
            book=self.name,
        )

    def _whole_machine(self, environment: Environment, num_devices: int) -> ComponentRates | None:
        model = gpu_of(environment)
        prices = [
            offer.usd_per_hour / num_devices
            for offer in self.offers
            if offer.usd_per_hour is not None
            and model is not None
            and offer.gpu == model
            and offer.num_gpus >= num_devices
        ]
        if not prices:
            return None
        nothing = Decimal(0)
        return ComponentRates(
            device_usd_per_hour=min(prices),
            device_gib_usd_per_hour=nothing,
            host_gib_usd_per_hour=nothing,
            nvme_gib_usd_per_hour=nothing,
        )


def gpu_of(environment: Environment) -> Gpu | None:
    """Return the model that trials ran on; None on CPU, and for one that is not known."""
    if environment.device_kind == CPU:
        return None
    return find_gpu(environment.device_name, environment.device_memory_bytes / 2**30)
