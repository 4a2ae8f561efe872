"""Where a study's run should go: two classes of job, each with its cheapest machine. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum

from autotune.errors import NoOfferFitsError
from autotune.figures import shown_bytes
from autotune.front import as_good_in_quality
from autotune.prices.book import CPU, Offer, PriceBook
from autotune.prices.placing import Placement, RunRequest, place
from autotune.prices.quotes import countable, needs_of, shortfalls
from autotune.prices.repricing import nearest_miss, priceable
from autotune.records import StudyRecord, TrialRecord


class JobClass(StrEnum):
    """Which queue a job belongs to."""

    FRUGAL = "memory-frugal"
    INTENSIVE = "memory-intensive"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRule:
    """What tells the classes apart.

    A config is frugal when its measured peak, with headroom, fits the memory of the entry
    machine: the one whose hour is the cheapest per GPU. Without GPUs it is the cheapest machine,
    and its host memory.

    Attributes:
        entry: That machine.
        entry_bytes: Its memory.
        headroom: Share that must stay free.
        is_on_host: Whether the memory is the host's.
    """

    entry: Offer
    entry_bytes: int
    headroom: float
    is_on_host: bool

    def needed_bytes(self, trial: TrialRecord, study: StudyRecord) -> float:
        """Return a trial's measured peak with headroom."""
        needs = needs_of(trial, study.environment)
        peak = needs.host_bytes if self.is_on_host else needs.device_bytes
        return peak * (1 + self.headroom)

    def class_of(self, trial: TrialRecord, study: StudyRecord) -> JobClass:
        """Return the class of a measured trial."""
        is_frugal = self.needed_bytes(trial, study) <= self.entry_bytes
        return JobClass.FRUGAL if is_frugal else JobClass.INTENSIVE

    def __str__(self) -> str:
        """Say the rule in words, with its numbers."""
        kind = "host memory" if self.is_on_host else "memory per GPU"
        return (
            f"{JobClass.FRUGAL} when its measured peak and {self.headroom:.0%} fit the "
            f"{shown_bytes(self.entry_bytes)} of {kind} of {self.entry}, the cheapest of the book"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where the jobs of a class go.

    Attributes:
        job_class: Which.
        on_demand: Its cheapest run on demand; None where there is none.
        on_spot: Its cheapest run on the spot; None where there is none.
    """

    job_class: JobClass
    on_demand: Placement | None
    on_spot: Placement | None

    @property
    def placements(self) -> list[Placement]:
        """Both, the cheaper first."""
        found = [each for each in (self.on_demand, self.on_spot) if each is not None]
        return sorted(found, key=lambda each: each.usd)

    @property
    def chosen(self) -> Placement:
        """The cheaper."""
        return self.placements[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePlan:
    """Where a study's run should go.

    Attributes:
        book: The prices.
        request: What is to be run.
        rule: What tells the classes apart.
        routes: Of the classes that have a config, the cheapest first.
        notes: What a person should know: what was assumed, and left out.
    """

    book: PriceBook
    request: RunRequest
    rule: ClassRule
    routes: tuple[Route, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Where each trial's run costs least, by its number.

    Attributes:
        on_demand: On demand.
        on_spot: On the spot.
    """

    on_demand: Mapping[int, Placement]
    on_spot: Mapping[int, Placement]


def place_both(
    study: StudyRecord, trials: Sequence[TrialRecord], book: PriceBook, request: RunRequest
) -> Placements:
    """Return where each trial's run costs least, on demand and on the spot.

    Trials that train worse than the best, beyond the noise, are left out.

    Raises:
        NoMeasurementsError: The study has no feasible trial.
        NoOfferFitsError: No machine holds any; the message says which limit is missed, and by
            how much.
    """
    feasible = priceable(study, trials)
    candidates = as_good_in_quality(feasible, study.facts.quality_direction)
    offers = (*book.offers, *book.hourly)
    on_demand, on_spot = (
        place(study, candidates, offers, request, is_spot=is_spot) for is_spot in (False, True)
    )
    if not on_demand and not on_spot:
        raise NoOfferFitsError(_why_nowhere(study, candidates, book, request))
    return Placements(on_demand=on_demand, on_spot=on_spot)


def _why_nowhere(
    study: StudyRecord, trials: Sequence[TrialRecord], book: PriceBook, request: RunRequest
) -> str:
    every = replace(book, offers=(*book.offers, *book.hourly))
    on_demand, on_spot = (
        countable(every.offers, study.environment, request.pricing(is_spot=is_spot))
        for is_spot in (False, True)
    )
    needs = [needs_of(trial, study.environment) for trial in trials]
    holding = [
        offer
        for offer in (*on_demand, *on_spot)
        if any(not shortfalls(need, offer, request.headroom) for need in needs)
    ]
    if not holding:
        is_spot = not on_demand and bool(on_spot)
        return nearest_miss(study, trials, every, request.pricing(is_spot=is_spot))
    if not set(holding) & set(on_demand) and all(
        request.mtbf_on(each) is None for each in holding
    ):
        return (
            f"{holding[0]} has a spot price alone, and price book {book.name!r} does not say how "
            "often it is preempted; give --mtbf HOURS, or spot_mtbf_h"
        )
    return (
        f"no machine of price book {book.name!r} that holds a trial would finish a run of "
        f"{request.samples} samples within ten years; give a smaller --samples, a longer --mtbf, "
        "or offers with longer hours_utc"
    )


def plan_routes(
    study: StudyRecord, trials: Sequence[TrialRecord], book: PriceBook, request: RunRequest
) -> RoutePlan:
    """Return where the run of a study's best configs should go, by class of job.

    Raises:
        NoMeasurementsError: The study has no feasible trial.
        NoOfferFitsError: No machine holds any.
    """
    found = place_both(study, trials, book, request)
    rule = class_rule(study, book, request)
    by_class: dict[JobClass, set[int]] = {each: set() for each in JobClass}
    for trial in trials:
        if trial.number in found.on_demand or trial.number in found.on_spot:
            by_class[rule.class_of(trial, study)].add(trial.number)
    routes = [
        Route(
            job_class=each,
            on_demand=_cheapest_of(found.on_demand, numbers),
            on_spot=_cheapest_of(found.on_spot, numbers),
        )
        for each, numbers in by_class.items()
        if numbers
    ]
    routes.sort(key=lambda route: route.chosen.usd)
    missing = [each for each, numbers in by_class.items() if not numbers]
    return RoutePlan(
        book=book,
        request=request,
        rule=rule,
        routes=tuple(routes),
        notes=(*spot_notes(study, book, request, found), *map(_none_of, missing)),
    )


def class_rule(study: StudyRecord, book: PriceBook, request: RunRequest) -> ClassRule:
    """Return what tells the classes apart, from the machines whose speed and price are known."""
    offers = (*book.offers, *book.hourly)
    is_cpu = study.environment.device_kind == CPU
    priced = [
        (offer.price(is_spot=is_spot) or Decimal(0), offer)
        for is_spot in (False, True)
        for offer in countable(offers, study.environment, request.pricing(is_spot=is_spot))
    ]
    _, entry = min(
        priced,
        key=lambda pair: (pair[0] / (pair[1].num_gpus or Decimal(1)), str(pair[1])),
    )
    return ClassRule(
        entry=entry,
        entry_bytes=entry.host_memory_bytes if is_cpu else entry.gpu_memory_bytes,
        headroom=request.headroom,
        is_on_host=is_cpu,
    )


def _cheapest_of(placements: Mapping[int, Placement], numbers: set[int]) -> Placement | None:
    found = [placements[number] for number in numbers if number in placements]
    return min(found, key=lambda each: (each.usd, each.number), default=None)


def _none_of(job_class: JobClass) -> str:
    return f"no config of the study is {job_class}"


def spot_notes(
    study: StudyRecord, book: PriceBook, request: RunRequest, found: Placements
) -> list[str]:
    """Return what was assumed for spot, and why there is none where there is none."""
    offers = (*book.offers, *book.hourly)
    priced = countable(offers, study.environment, request.pricing(is_spot=True))
    unknown = [offer for offer in priced if request.mtbf_on(offer) is None]
    notes = []
    if unknown:
        notes.append(
            f"spot prices of {len(unknown)} instance(s), such as {unknown[0]}, are left out: the "
            "book does not say how often they are preempted; give --mtbf HOURS, or spot_mtbf_h"
        )
    if found.on_spot:
        source = "--mtbf" if request.mtbf_seconds is not None else "the book's spot_mtbf_h"
        notes.append(
            f"spot assumes preemptions at random, as often as {source} says, "
            f"{request.restart_seconds:g} s until another machine is there, and checkpoints at "
            f"{request.bytes_per_second / 1e9:g} GB/s"
        )
    return notes
