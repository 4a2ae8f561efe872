"""A study's front under other prices: a view beside the old one. Nothing is run or written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from autotune.errors import NoMeasurementsError, NoOfferFitsError, PriceBookError
from autotune.front import Recommendation, pareto_front, recommend
from autotune.prices.book import CPU, PriceBook, gpu_of
from autotune.prices.quotes import (
    LIMITS,
    Model,
    PriceRequest,
    Quote,
    countable,
    needs_of,
    quote_machines,
    quote_parts,
    shortfalls,
)
from autotune.records import StudyRecord, TrialRecord
from trials.measurement import Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Repriced:
    """A study under other prices.

    Attributes:
        book: The prices.
        model: How they were counted.
        trials: The feasible ones that have a quote, with its cost and throughput as scores.
        quotes: By number of the trial.
        front: Of these trials.
        recommendation: The front's point to train with.
        unheld: Feasible trials that no machine of the book holds.
    """

    book: PriceBook
    model: Model
    trials: tuple[TrialRecord, ...]
    quotes: Mapping[int, Quote]
    front: tuple[TrialRecord, ...]
    recommendation: Recommendation | None
    unheld: tuple[TrialRecord, ...]


def reprice(
    study: StudyRecord, trials: Sequence[TrialRecord], book: PriceBook, request: PriceRequest
) -> Repriced:
    """Return a study's front under a book's prices.

    Args:
        study: Whose.
        trials: All of its trials.
        book: The prices.
        request: How to count.

    Raises:
        NoMeasurementsError: The study has no feasible trial.
        NoOfferFitsError: No machine holds any; the message says which limit is missed, and by
            how much.
        PriceBookError: The book has no price of what is asked.
    """
    feasible = priceable(study, trials)
    model = request.model or _model_of(book, study)
    quotes = _quotes(study, feasible, book, model, request)
    found = [
        _rescored(trial, quotes[trial.number]) for trial in feasible if trial.number in quotes
    ]
    objectives, direction = study.spec.objectives, study.facts.quality_direction
    front = pareto_front(found, objectives, direction)
    return Repriced(
        book=book,
        model=model,
        trials=tuple(found),
        quotes=quotes,
        front=tuple(front),
        recommendation=recommend(front, objectives, direction),
        unheld=tuple(trial for trial in feasible if trial.number not in quotes),
    )


def priceable(study: StudyRecord, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the feasible trials, each with its measurement.

    Raises:
        NoMeasurementsError: There is none.
    """
    found = [trial for trial in trials if trial.is_feasible and trial.measurement is not None]
    if not found:
        name = study.spec.name
        raise NoMeasurementsError(
            f"study {name!r} has no trial that completed and was scored, so there is nothing to "
            f"price; see autotune trials {name}"
        )
    return found


def _model_of(book: PriceBook, study: StudyRecord) -> Model:
    has_parts = book.components_for(study.environment) is not None
    return Model.COMPONENT if has_parts else Model.INSTANCE


def _quotes(
    study: StudyRecord,
    trials: Sequence[TrialRecord],
    book: PriceBook,
    model: Model,
    request: PriceRequest,
) -> dict[int, Quote]:
    if model == Model.COMPONENT:
        return _quotes_of_parts(study, trials, book)
    quotes = quote_machines(trials, study.environment, book.offers, request)
    if not quotes:
        raise NoOfferFitsError(nearest_miss(study, trials, book, request))
    return quotes


def _quotes_of_parts(
    study: StudyRecord, trials: Sequence[TrialRecord], book: PriceBook
) -> dict[int, Quote]:
    is_known = book.components_for(study.environment) is not None
    rates = book.rates(study.environment, study.spec.num_ranks) if is_known else None
    if rates is None:
        raise PriceBookError(
            f"price book {book.name!r} has no rates of parts for {study.environment.device_name}; "
            "add them, or count by machine: --by instance"
        )
    return {
        trial.number: quote_parts(trial.measurement, rates)
        for trial in trials
        if trial.measurement is not None
    }


def _rescored(trial: TrialRecord, quote: Quote) -> TrialRecord:
    measurement = trial.measurement
    assert measurement is not None and measurement.timing is not None
    relative = measurement.timing.relative_half_width
    cost = float(quote.usd_per_million_samples)
    throughput = measurement.timing.samples_per_second / quote.slowdown
    scores = replace(
        trial.scores,
        cost_usd_per_million_samples=cost,
        cost_half_width=cost * relative,
        throughput_samples_per_second=throughput,
        throughput_half_width=throughput * relative,
    )
    return replace(trial, scores=scores)


def usd_to_target(
    study: StudyRecord, trial: TrialRecord, quote: Quote, target: float
) -> Decimal | None:
    """Return what training to a quality costs at most; None where the trial was not that good.

    Quality is measured once, after the workload's ``quality_samples``: the config may have been
    there earlier.

    Args:
        study: Of the trial.
        trial: Scored.
        quote: Of the trial.
        target: Value of the workload's metric.
    """
    quality = trial.scores.quality
    if quality is None:
        return None
    is_lower_better = study.facts.quality_direction == Direction.MINIMIZE
    is_reached = quality <= target if is_lower_better else quality >= target
    return quote.usd_for(study.facts.quality_samples) if is_reached else None


def nearest_miss(
    study: StudyRecord,
    trials: Sequence[TrialRecord],
    book: PriceBook,
    request: PriceRequest,
) -> str:
    """Return why no machine holds any of some trials: which limit is missed, and by how much."""
    environment = study.environment
    is_cpu = environment.device_kind == CPU
    offers = [offer for offer in book.offers if (offer.gpu is None) == is_cpu]
    offers = [offer for offer in offers if offer.price(is_spot=request.is_spot) is not None]
    if not offers:
        kind = "spot prices" if request.is_spot else "prices on demand"
        what = "instances without GPUs" if is_cpu else "instances with GPUs"
        return (
            f"price book {book.name!r} has no {kind} of {what}, and the study ran on "
            f"{environment.device_name}"
        )
    comparable = countable(offers, environment, request)
    if not comparable:
        return _why_not_told(study, book, request)
    largest = dict.fromkeys(max(comparable, key=limit.offered) for limit in LIMITS)
    pairs = [
        (shortfalls(needs_of(trial, environment), offer, request.headroom), trial, offer)
        for trial in trials
        for offer in largest
    ]
    missed, trial, offer = min(pairs, key=lambda pair: (len(pair[0]), sum(pair[0].values())))
    return (
        f"no instance of price book {book.name!r} holds trial {trial.number} ({trial.config}) "
        f"with {request.headroom:.0%} to spare; nearest: {offer}, which misses "
        f"{'; '.join(missed)}"
    )


def _why_not_told(study: StudyRecord, book: PriceBook, request: PriceRequest) -> str:
    environment = study.environment
    if environment.device_kind == CPU:
        why = "an instance without GPUs counts where the book gives its processor that name"
    elif gpu_of(environment) is None:
        why = "that is no model that is known here"
    elif request.is_measured_only:
        why = "the book has no instance with it"
    else:
        why = "no model of the book has the figures that an estimate needs"
    return (
        f"nothing was measured on an instance of price book {book.name!r}: the study ran on "
        f"{environment.device_name}, and {why}"
    )
