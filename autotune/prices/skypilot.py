"""Rows of the SkyPilot catalogue: columns by name, and the quirks of five providers.

The catalogue's ``GpuInfo`` is a Python literal. Its total of memory is of all GPUs or of one,
so it is never read; ``SizeInMiB`` is of one GPU, and RunPod writes GiB there.
"""

import ast
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache

from autotune.prices.book import Offer, RowFault
from autotune.prices.gpus import Gpu
from autotune.prices.rows import (
    RowError,
    amount_of,
    bytes_of,
    checked_prices,
    known_or_stated,
    num_gpus_of,
    price_of,
    text_of,
)

COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "MemoryGiB", "Price", "Region")
PRICES = ("Price", "SpotPrice")
LEAST_MIB = 1024
"""A smaller ``SizeInMiB`` is one in GiB: no GPU for training has less than 1 GiB."""
PLAIN_GIB = {"A100": 40.0, "V100": 16.0}
"""Memory that the catalogue means by a plain name; the larger card is ``A100-80GB``."""
GCP_FAMILIES = {
    "a2-highgpu": "A100",
    "a2-megagpu": "A100",
    "a2-ultragpu": "A100-80GB",
    "a3-highgpu": "H100",
    "a3-ultragpu": "H200",
    "a4-highgpu": "B200",
}
"""GCP's machines that are made for one accelerator, whose price is in a row of its own."""
GCP_L4_COUNTS = {4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8}
"""L4 cards of ``g2-standard-N``."""
Row = Mapping[str, object]


def is_catalogue(columns: Sequence[str]) -> bool:
    """Tell whether a CSV is one of the catalogue's, by its header."""
    return set(COLUMNS) <= set(columns)


def read_offers(
    rows: Sequence[tuple[int, Row]], *, provider: str
) -> tuple[list[Offer], list[RowFault]]:
    """Return the offers of a catalogue's rows, and what was left out.

    Args:
        rows: With their line in the file.
        provider: Who rents them; the catalogue says it by its folder alone.
    """
    offers: list[Offer] = []
    faults: list[RowFault] = []
    hosts = _hosts(rows)
    for line, row in rows:
        is_accelerator = not text_of(row, "InstanceType")
        whole = hosts.get(_accelerator(row)) if is_accelerator else row
        try:
            if whole is None:
                raise RowError("an accelerator alone: its price leaves out the machine")
            offer, without = _offer(row, whole, provider, line)
        except RowError as error:
            faults.append(RowFault(line=line, reason=f"{error}; the row is left out"))
        else:
            offers.append(offer)
            faults += without
    return offers, faults


def _hosts(rows: Sequence[tuple[int, Row]]) -> dict[tuple[str, str, str], Row]:
    """Return GCP's machines by zone, name and number of the accelerators made for them."""
    found: dict[tuple[str, str, str], Row] = {}
    for _, row in rows:
        family, _, size = text_of(row, "InstanceType").rpartition("-")
        digits = "".join(filter(str.isdigit, size))
        name, number = GCP_FAMILIES.get(family, ""), digits
        if family == "g2-standard":
            name, number = "L4", str(GCP_L4_COUNTS.get(int(digits or 0), ""))
        if name and number:
            found.setdefault((_zone(row), name, number), row)
    return found


def _accelerator(row: Row) -> tuple[str, str, str]:
    number = text_of(row, "AcceleratorCount").removesuffix(".0")
    return _zone(row), text_of(row, "AcceleratorName"), number


def _zone(row: Row) -> str:
    return text_of(row, "AvailabilityZone") or text_of(row, "Region")


def _offer(row: Row, host: Row, provider: str, line: int) -> tuple[Offer, list[RowFault]]:
    number = num_gpus_of(row, "AcceleratorCount")
    prices = [price_of(row, name, number) for name in PRICES]
    if host is not row:
        prices = [
            _sum(each, price_of(host, n, number)) for each, n in zip(prices, PRICES, strict=True)
        ]
    price, spot, faults = checked_prices(prices[0], prices[1], line)
    memory = amount_of(host, "MemoryGiB")
    if memory is None:
        raise RowError("MemoryGiB is empty: what the host holds is not known")
    gpu, gpu_bytes = _gpu(row, number)
    offer = Offer(
        provider=provider,
        instance=text_of(host, "InstanceType"),
        region=_zone(row),
        gpu=gpu,
        num_gpus=number,
        gpu_memory_bytes=gpu_bytes,
        host_memory_bytes=bytes_of(memory),
        num_cores=amount_of(host, "vCPUs"),
        usd_per_hour=price,
        spot_usd_per_hour=spot,
        is_zone=bool(text_of(row, "AvailabilityZone")),
    )
    return offer, faults


def _sum(accelerator: Decimal | None, host: Decimal | None) -> Decimal | None:
    return None if accelerator is None or host is None else accelerator + host


def _gpu(row: Row, number: Decimal) -> tuple[Gpu | None, int]:
    """Return the model and the bytes of one card, or of a row's share of one."""
    name = text_of(row, "AcceleratorName")
    if not name:
        return None, 0
    if not number:
        raise RowError(f"AcceleratorCount is empty: how many {name} is not known")
    share = min(number, Decimal(1))
    stated = _stated_gib(text_of(row, "GpuInfo"))
    whole = PLAIN_GIB.get(name) if stated is None else float(stated / share)
    model = known_or_stated(name, whole)
    gib = Decimal(repr(model.memory_gib)) * share if stated is None else stated
    return model, bytes_of(gib)


@cache
def _stated_gib(text: str) -> Decimal | None:
    """Return the memory of one GPU in GiB; None where the row does not say.

    Raises:
        RowError: It says so in no way that is known.
    """
    if not text.startswith("{"):
        return None
    try:
        size = ast.literal_eval(text)["Gpus"][0]["MemoryInfo"]["SizeInMiB"]
        number = Decimal(str(size))
    except (ValueError, SyntaxError, ArithmeticError, LookupError, TypeError):
        raise RowError(f"GpuInfo cannot be read: {text[:40]!r}") from None
    if number <= 0:
        return None
    return number / 1024 if number >= LEAST_MIB else number
