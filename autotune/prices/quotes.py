"""What a trial costs: by its parts, or on the cheapest machine that holds it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from autotune.prices.book import CPU, Offer, gpu_of
from autotune.prices.gpus import bounds_of_slowdown
from autotune.rates import DIGITS, GIB, MILLION, Rates
from autotune.records import TrialRecord
from search_spaces import AmpDtype
from trials.environment import Environment
from trials.measurement import Measurement

HEADROOM = 0.05
"""Share of memory and disk that a machine must have beyond what was measured."""
NEW_DTYPES = (AmpDtype.BF16, AmpDtype.TF32)
NEW_CAPABILITY = 8.0
ANY = "any"
"""Processor of an offer whose cores the book holds to be as fast as those measured on."""
ROWS_AT_ONCE = 1000
Floats = NDArray[np.float64]


class Basis(StrEnum):
    """Where the time of a quote is from."""

    MEASURED = "measured"
    ESTIMATED = "estimated"


class Model(StrEnum):
    """How prices are counted."""

    COMPONENT = "component"
    INSTANCE = "instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRequest:
    """How to count.

    Attributes:
        model: By parts or by machine; None for parts where the book has them, else machines.
        is_spot: Whether machines are paid at the spot price.
        is_measured_only: Whether only machines with the device measured on count.
        headroom: Share of memory and disk that a machine must have to spare.
    """

    model: Model | None = None
    is_spot: bool = False
    is_measured_only: bool = False
    headroom: float = HEADROOM


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a measured trial needs of a machine, all its processes together where not said.

    Attributes:
        number: Of the trial.
        dtype: Under autocast.
        num_gpus: Devices.
        num_cores: Cores; 0 for a trial on GPUs.
        device_bytes: Of one GPU's memory; 0 on CPU, where the host's holds it.
        host_bytes: Of host memory.
        disk_bytes: Of local NVMe.
    """

    number: int
    dtype: AmpDtype
    num_gpus: int
    num_cores: int
    device_bytes: int
    host_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What a trial costs, in US dollars.

    Attributes:
        offer: The machine; None where its parts are paid.
        basis: Whether it was measured on such a device.
        slowdown: Factor on the measured time; 1 where it was measured there. An estimate takes
            the slower end of its roofline.
        usd_per_hour: Of the machine, or of the parts.
        usd_per_million_samples: Money for training a million samples.
        least_usd_per_million_samples: The same at the faster end of an estimate.
        usd_per_million_units: Money for a million tokens, where the workload counts those.
    """

    offer: Offer | None
    basis: Basis
    slowdown: float
    usd_per_hour: Decimal
    usd_per_million_samples: Decimal
    least_usd_per_million_samples: Decimal
    usd_per_million_units: Decimal

    def usd_for(self, samples: int) -> Decimal:
        """Return the price of training so many samples, such as an epoch's."""
        with localcontext(prec=DIGITS):
            return self.usd_per_million_samples * samples / MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One thing that a machine must have enough of.

    Attributes:
        name: For people.
        needed: Of a trial.
        offered: By a machine.
        unit: Of both, for people.
        scale: What one unit is.
        is_spare: Whether some of it must stay free.
    """

    name: str
    needed: Callable[[Needs], float]
    offered: Callable[[Offer], float]
    unit: str
    scale: float = 1.0
    is_spare: bool = False


LIMITS = (
    Limit(
        name="device memory",
        needed=lambda needs: needs.device_bytes,
        offered=lambda offer: offer.gpu_memory_bytes,
        unit="GiB",
        scale=GIB,
        is_spare=True,
    ),
    Limit(
        name="host memory",
        needed=lambda needs: needs.host_bytes,
        offered=lambda offer: offer.host_memory_bytes,
        unit="GiB",
        scale=GIB,
        is_spare=True,
    ),
    Limit(
        name="local disk",
        needed=lambda needs: needs.disk_bytes,
        offered=lambda offer: offer.disk_bytes or 0,
        unit="GiB",
        scale=GIB,
        is_spare=True,
    ),
    Limit(
        name="compute capability",
        needed=lambda needs: NEW_CAPABILITY if needs.dtype in NEW_DTYPES else 0.0,
        offered=lambda offer: _capability(offer),
        unit="",
    ),
    Limit(
        name="GPUs",
        needed=lambda needs: needs.num_gpus,
        offered=lambda offer: float(offer.num_gpus),
        unit="",
    ),
    Limit(
        name="cores",
        needed=lambda needs: needs.num_cores,
        offered=lambda offer: float(offer.num_cores or 0),
        unit="",
    ),
)


def needs_of(trial: TrialRecord, environment: Environment) -> Needs:
    """Return what a measured trial needs of a machine."""
    measurement = trial.measurement
    assert measurement is not None and measurement.memory is not None
    memory, ranks = measurement.memory, measurement.num_ranks
    is_cpu = environment.device_kind == CPU
    on_host = memory.peak_host_bytes + (memory.peak_device_bytes if is_cpu else 0)
    return Needs(
        number=trial.number,
        dtype=trial.config.amp_dtype if not is_cpu else AmpDtype.FP32,
        num_gpus=0 if is_cpu else ranks,
        num_cores=environment.num_threads if is_cpu else 0,
        device_bytes=0 if is_cpu else memory.peak_device_bytes,
        host_bytes=ranks * on_host,
        disk_bytes=ranks * memory.disk_bytes,
    )


def quote_parts(measurement: Measurement, rates: Rates) -> Quote:
    """Return what a measurement costs where its parts are paid, on the device it ran on."""
    with localcontext(prec=DIGITS):
        hour = sum(rates.parts_per_hour(measurement).values(), start=Decimal(0))
    return _quote(measurement, hour, None, Basis.MEASURED, (1.0, 1.0))


def quote_machines(
    trials: Sequence[TrialRecord],
    environment: Environment,
    offers: Sequence[Offer],
    request: PriceRequest,
) -> dict[int, Quote]:
    """Return the quote of each trial on the cheapest machine that holds it, by its number.

    A trial that no machine holds has none.

    Args:
        trials: Measured ones.
        environment: Where they ran.
        offers: Machines.
        request: How to count.
    """
    priced = countable(offers, environment, request)
    if not priced:
        return {}
    hours = [offer.price(is_spot=request.is_spot) or Decimal(0) for offer in priced]
    bounds = {
        dtype: [_bounds(environment, offer, dtype) for offer in priced] for dtype in AmpDtype
    }
    costs = {
        dtype: np.array(
            [float(hour) * (np.inf if pair is None else pair[1]) for hour, pair in each]
        )
        for dtype, each in ((d, zip(hours, pairs, strict=True)) for d, pairs in bounds.items())
    }
    needs = [needs_of(trial, environment) for trial in trials]
    quotes = {}
    for trial, need, index in zip(
        trials, needs, _cheapest(needs, priced, costs, request.headroom), strict=True
    ):
        if index is None:
            continue
        pair, offer = bounds[need.dtype][index], priced[index]
        assert pair is not None and trial.measurement is not None
        basis = basis_of(environment, offer)
        quotes[trial.number] = _quote(trial.measurement, hours[index], offer, basis, pair)
    return quotes


def countable(
    offers: Sequence[Offer], environment: Environment, request: PriceRequest
) -> list[Offer]:
    """Return the offers that have a price and a speed, the cheapest hour first.

    The speed follows from measurements made on such a device, or from data sheets of both.
    """
    found: list[tuple[Decimal, str, int, Offer]] = []
    for offer in offers:
        price = offer.price(is_spot=request.is_spot)
        is_known = _is_same_device(environment, offer) or (
            not request.is_measured_only
            and any(_bounds(environment, offer, dtype) is not None for dtype in AmpDtype)
        )
        if price is not None and is_known:
            found.append((price, str(offer), len(found), offer))
    return [offer for *_, offer in sorted(found)]


def basis_of(environment: Environment, offer: Offer) -> Basis:
    """Return whether a measurement was made on a device such as a machine has."""
    return Basis.MEASURED if _is_same_device(environment, offer) else Basis.ESTIMATED


def slowdown_on(environment: Environment, offer: Offer, dtype: AmpDtype) -> float | None:
    """Return the factor on a measured time there, of an estimate the larger; None if unknown."""
    bounds = _bounds(environment, offer, dtype)
    return None if bounds is None else bounds[1]


def shortfalls(needs: Needs, offer: Offer, headroom: float = HEADROOM) -> dict[str, float]:
    """Return the limits of a machine that a trial misses, in words, and by which factor each."""
    missed = {}
    for limit in LIMITS:
        needed = limit.needed(needs) * (1 + headroom * limit.is_spare)
        offered = limit.offered(offer)
        if needed > offered:
            words = ", ".join(
                f"{amount / limit.scale:.4g} {limit.unit}".strip() + suffix
                for amount, suffix in (
                    (needed, " needed"),
                    (offered, " there"),
                    (needed - offered, " short"),
                )
            )
            missed[f"{limit.name} ({words})"] = needed / offered if offered else np.inf
    return missed


def _cheapest(
    needs: Sequence[Needs],
    offers: Sequence[Offer],
    costs: dict[AmpDtype, Floats],
    headroom: float,
) -> list[int | None]:
    """Return for each trial the index of the offer that costs least of those that hold it.

    Args:
        needs: Of the trials.
        offers: Cheapest hour first, so that equal costs go to the cheaper hour.
        costs: Of each offer, by dtype, for the same work; infinite where it is not known.
        headroom: Share to keep free.
    """
    offered = [np.array([limit.offered(offer) for offer in offers]) for limit in LIMITS]
    found: list[int | None] = []
    for start in range(0, len(needs), ROWS_AT_ONCE):
        part = needs[start : start + ROWS_AT_ONCE]
        cost = np.array([costs[need.dtype] for need in part])
        for limit, has in zip(LIMITS, offered, strict=True):
            share = 1 + headroom * limit.is_spare
            needed = np.array([limit.needed(need) * share for need in part])
            cost[needed[:, None] > has[None, :]] = np.inf
        best = cost.argmin(axis=1)
        is_held = np.isfinite(cost[np.arange(len(part)), best])
        found += [int(b) if held else None for b, held in zip(best, is_held, strict=True)]
    return found


def _is_same_device(environment: Environment, offer: Offer) -> bool:
    if environment.device_kind == CPU:
        return offer.gpu is None and offer.processor == environment.device_name
    return offer.gpu is not None and offer.gpu == gpu_of(environment)


def _bounds(environment: Environment, offer: Offer, dtype: AmpDtype) -> tuple[float, float] | None:
    """Return between which factors a measured time changes there; None where nobody knows."""
    if _is_same_device(environment, offer):
        return 1.0, 1.0
    if environment.device_kind == CPU and offer.gpu is None and offer.processor == ANY:
        return 1.0, 1.0
    here = gpu_of(environment)
    if offer.gpu is None or here is None:
        return None
    return bounds_of_slowdown(here, offer.gpu, dtype)


def _quote(
    measurement: Measurement,
    hour: Decimal,
    offer: Offer | None,
    basis: Basis,
    bounds: tuple[float, float],
) -> Quote:
    timing = measurement.timing
    assert timing is not None
    with localcontext(prec=DIGITS):
        samples_of_hour = 3600 * timing.samples_per_step / Decimal(timing.mean_seconds)
        fast, slow = (hour * MILLION / samples_of_hour * Decimal(bound) for bound in bounds)
        per_unit = slow * timing.samples_per_step / Decimal(timing.units_per_step)
    return Quote(
        offer=offer,
        basis=basis,
        slowdown=bounds[1],
        usd_per_hour=hour,
        usd_per_million_samples=slow,
        least_usd_per_million_samples=fast,
        usd_per_million_units=per_unit,
    )


def _capability(offer: Offer) -> float:
    if offer.gpu is None or offer.gpu.capability is None:
        return 0.0
    major, minor = offer.gpu.capability
    return major + minor / 10
