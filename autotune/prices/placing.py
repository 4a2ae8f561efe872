"""A run of a given size on the machines of a book: the cheapest on demand, and on the spot."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from autotune.prices.book import Offer
from autotune.prices.quotes import (
    HEADROOM,
    Basis,
    Needs,
    PriceRequest,
    basis_of,
    countable,
    needs_of,
    shortfalls,
    slowdown_on,
)
from autotune.prices.spot import (
    SECONDS_PER_HOUR,
    Preemption,
    expect_on_spot,
    money_of,
    state_bytes,
)
from autotune.prices.windows import stay_in
from autotune.records import StudyRecord, TrialRecord
from search_spaces import AmpDtype

RESTART_SECONDS = 300.0
"""Assumed from a preemption until another machine is there."""
STORAGE_BYTES_PER_SECOND = 1e9
"""Assumed bandwidth of the storage that checkpoints go to, as clouds' object stores give."""
ROUNDING = 1e-9
"""By which a float may differ from the money that it stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run to be placed, and what is known of preemption.

    Attributes:
        samples: To train.
        begins_at: When it could start, in UTC.
        mtbf_seconds: Mean time between preemptions; None for what the book says of each machine.
        restart_seconds: Until another machine is there.
        bytes_per_second: Of the storage that checkpoints go to.
        headroom: Share of memory and disk that a machine must have to spare.
        is_measured_only: Whether only machines with the device measured on count.
    """

    samples: int
    begins_at: datetime
    mtbf_seconds: float | None = None
    restart_seconds: float = RESTART_SECONDS
    bytes_per_second: float = STORAGE_BYTES_PER_SECOND
    headroom: float = HEADROOM
    is_measured_only: bool = False

    def pricing(self, *, is_spot: bool) -> PriceRequest:
        """Return how machines are counted."""
        return PriceRequest(
            is_spot=is_spot, is_measured_only=self.is_measured_only, headroom=self.headroom
        )

    def mtbf_on(self, offer: Offer) -> float | None:
        """Return the mean seconds between preemptions on a machine; None if nobody says."""
        if self.mtbf_seconds is not None:
            return self.mtbf_seconds
        hours = offer.spot_mtbf_hours
        return None if hours is None else float(hours) * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A run of a trial's config on a machine, as it is expected to go.

    Attributes:
        number: Of the trial.
        offer: The machine.
        is_spot: Whether it is paid at the spot price, and may be preempted.
        basis: Whether the config was measured on such a device.
        work_seconds: Training alone; an estimate is the slower end of its roofline.
        checkpoint_seconds: Of saving once.
        interval_seconds: Training between two checkpoints; None where it saves at its end alone.
        mtbf_seconds: Mean time between preemptions; None on demand.
        paid_seconds: All that is paid: lost work, checkpoints and restarts too.
        usd: Money for them.
        starts_at: In UTC.
        finishes_at: In UTC; pauses between the hours of a price are in between.
    """

    number: int
    offer: Offer
    is_spot: bool
    basis: Basis
    work_seconds: float
    checkpoint_seconds: float
    interval_seconds: float | None
    mtbf_seconds: float | None
    paid_seconds: float
    usd: Decimal
    starts_at: datetime
    finishes_at: datetime

    @property
    def exact_usd(self) -> Fraction:
        """The same money as a fraction, which compares without rounding."""
        return Fraction(self.usd)


def place(
    study: StudyRecord,
    trials: Sequence[TrialRecord],
    offers: Sequence[Offer],
    request: RunRequest,
    *,
    is_spot: bool,
) -> dict[int, Placement]:
    """Return for each trial, by number, where its run costs least.

    A trial that no machine holds, or whose run would hardly end on any, has none. Machines whose
    preemption rate nobody says are left out of spot.

    Args:
        study: Where they were measured.
        trials: Measured ones.
        offers: Machines.
        request: What is to be run.
        is_spot: Whether spot prices are paid, else those on demand.
    """
    priced = countable(offers, study.environment, request.pricing(is_spot=is_spot))
    if is_spot:
        priced = [offer for offer in priced if request.mtbf_on(offer) is not None]
    ranked = {dtype: _ranked(study, priced, dtype, is_spot) for dtype in AmpDtype}
    found = {}
    for trial in trials:
        needs = needs_of(trial, study.environment)
        best = _cheapest(study, trial, needs, ranked[needs.dtype], request, is_spot)
        if best is not None:
            found[trial.number] = best
    return found


def _ranked(
    study: StudyRecord, offers: Sequence[Offer], dtype: AmpDtype, is_spot: bool
) -> list[tuple[float, float, Offer]]:
    """Return offers with the price of an hour's measured work and their slowdown, in order."""
    found = []
    for offer in offers:
        slowdown, hour = slowdown_on(study.environment, offer, dtype), offer.price(is_spot=is_spot)
        if slowdown is not None and hour is not None:
            found.append((float(hour) * slowdown, slowdown, offer))
    return sorted(found, key=lambda each: (each[0], str(each[2])))


def _cheapest(
    study: StudyRecord,
    trial: TrialRecord,
    needs: Needs,
    ranked: Sequence[tuple[float, float, Offer]],
    request: RunRequest,
    is_spot: bool,
) -> Placement | None:
    """Return the cheapest placement of a trial.

    Work alone is never dearer than a run, so the search ends where it costs more than the best.
    """
    measured = work_seconds(trial, request.samples)
    best: Placement | None = None
    for usd_per_hour, slowdown, offer in ranked:
        at_least = usd_per_hour * measured / SECONDS_PER_HOUR
        if best is not None and at_least > float(best.usd) * (1 + ROUNDING):
            break
        if shortfalls(needs, offer, request.headroom):
            continue
        basis = basis_of(study.environment, offer)
        found = _placement(trial, offer, basis, measured * slowdown, request, is_spot)
        if found is not None and (best is None or found.usd < best.usd):
            best = found
    return best


def work_seconds(trial: TrialRecord, samples: int) -> float:
    """Return how long a trial's config trains so many samples where it was measured."""
    assert trial.measurement is not None and trial.measurement.timing is not None
    return samples / trial.measurement.timing.samples_per_second


def _placement(
    trial: TrialRecord, offer: Offer, basis: Basis, work: float, request: RunRequest, is_spot: bool
) -> Placement | None:
    """Return how a run goes on a machine; None where it would hardly ever end."""
    measurement, hour = trial.measurement, offer.price(is_spot=is_spot)
    assert measurement is not None and measurement.timing is not None and hour is not None
    save = state_bytes(trial.config, measurement) / request.bytes_per_second
    begin = measurement.start_seconds + measurement.timing.warm_up_seconds
    restart = request.restart_seconds + begin + save
    seconds, interval = work + save, None
    mtbf = request.mtbf_on(offer) if is_spot else None
    if mtbf is not None:
        risk = Preemption(mtbf_seconds=mtbf, restart_seconds=restart, checkpoint_seconds=save)
        run = expect_on_spot(work, risk)
        seconds, interval = run.wall_seconds, run.interval_seconds
    stay = stay_in(offer.hours, request.begins_at, seconds, pause_seconds=restart + save)
    if stay is None:
        return None
    return Placement(
        number=trial.number,
        offer=offer,
        is_spot=is_spot,
        basis=basis,
        work_seconds=work,
        checkpoint_seconds=save,
        interval_seconds=interval,
        mtbf_seconds=mtbf,
        paid_seconds=stay.paid_seconds,
        usd=money_of(stay.paid_seconds, hour),
        starts_at=stay.starts_at,
        finishes_at=stay.finishes_at,
    )
