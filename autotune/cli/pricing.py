"""Commands that count a study's measurements in other prices. They run and change nothing."""

import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from autotune.cli.files import require_place, write_file
from autotune.cli.options import Counting, Output
from autotune.cli.tables import write_documents, write_table
from autotune.documents import trial_document
from autotune.errors import PriceBookError, SettingsError
from autotune.exports.routes import exact_text
from autotune.front import pareto_front, recommend
from autotune.prices.book import PriceBook
from autotune.prices.flips_picture import draw_sensitivity, to_page
from autotune.prices.placing import RunRequest
from autotune.prices.quotes import Basis, Model, PriceRequest, Quote
from autotune.prices.repricing import Repriced, nearest_miss, priceable, reprice, usd_to_target
from autotune.prices.routing import Placements, place_both, spot_notes
from autotune.prices.savings import Savings, savings_document, savings_of
from autotune.prices.sensitivity import SPOT, Reign, Sensitivity, analyse, analyse_spot
from autotune.prices.warnings import book_warnings
from autotune.rates import Component, Rates
from autotune.records import StudyRecord, TrialRecord
from autotune.settings import Settings
from autotune.store.reader import StoreReader
from autotune.summary import baseline_of
from search_spaces import did_you_mean

NONE = "-"


def reprice_and_show(settings: Settings, counting: Counting, *, output: Output) -> None:
    """Write a study's front under other prices, beside what it cost at its own.

    Raises:
        PriceBookError: The book cannot be used, or holds no trial.
        NoMeasurementsError: The study has nothing to price.
        SettingsError: No such way to count.
    """
    request = PriceRequest(
        model=one_of(Model, counting.by, "--by"),
        is_spot=counting.is_spot,
        headroom=counting.headroom,
        is_measured_only=counting.is_measured_only,
    )
    book = book_of(settings)
    study, trials = study_of(settings)
    found = reprice(study, trials, book, request)
    if found.unheld:
        first = found.unheld[0]
        sys.stderr.write(
            f"note: the book holds {len(found.trials)} of {len(found.trials) + len(found.unheld)} "
            f"feasible trials; {nearest_miss(study, [first], book, request)}\n"
        )
    if output == Output.TABLE:
        _front_table(study, found, trials, counting)
        return
    documents = [_document(trial, study, found, trials, counting) for trial in found.front]
    write_documents(documents, output)


def show_sensitivity(
    settings: Settings,
    words: Sequence[str],
    run: RunRequest | None,
    *,
    plot: Path | None,
    replaces: bool,
    output: Output,
) -> None:
    """Write at which prices another trial is the cheapest.

    Args:
        settings: Of the command.
        words: Prices to multiply: components, or ``SPOT``; all of them if empty, the spot price
            where there is a run.
        run: Whose expected cost the spot price decides; None for none.
        plot: File to draw to; None for none.
        replaces: Whether that file may exist.
        output: How to print.

    Raises:
        PriceBookError: The book cannot be used.
        NoMeasurementsError: The study has nothing to price.
        SettingsError: No such price, or a file that cannot be drawn to.
    """
    names = _price_names(words, run)
    if plot is not None:
        _require_picture(plot, replaces)
    has_book = settings.prices is not None or SPOT in names
    book = book_of(settings) if has_book else None
    study, trials = study_of(settings)
    feasible = priceable(study, trials)
    found: list[Sensitivity] = []
    prices = study.spec.rates if book is None else _label_of(book)
    components = [Component(name) for name in names if name != SPOT]
    if components:
        prices = study.spec.rates if book is None else settings.rates(study.environment)
        found += analyse(feasible, prices, study.facts.quality_direction, components)
    if book is not None and run is not None and SPOT in names:
        found.append(analyse_spot(_on_spot_too(study, trials, book, run), run.samples))
    if output == Output.TABLE:
        _reigns_table(study, found, prices, feasible)
    else:
        documents = [
            _reign_document(study, each, reign, prices) for each in found for reign in each.reigns
        ]
        write_documents(documents, output)
    if plot is not None:
        _draw(plot, study, found, prices)


def _price_names(words: Sequence[str], run: RunRequest | None) -> list[str]:
    known = [*map(str, Component), SPOT]
    for word in words:
        if word not in known:
            raise SettingsError(f"--of {word!r}{did_you_mean(word, known)}")
    if SPOT in words and run is None:
        raise SettingsError(
            "--of spot: what a preemption costs depends on the run; give its --samples"
        )
    return list(words) or (known if run is not None else known[:-1])


def _on_spot_too(
    study: StudyRecord, trials: Sequence[TrialRecord], book: PriceBook, run: RunRequest
) -> Placements:
    found = place_both(study, trials, book, run)
    for note in spot_notes(study, book, run, found):
        sys.stderr.write(f"note: {note}\n")
    if not found.on_spot:
        raise PriceBookError(
            f"price book {book.name!r} has no spot price of a machine that holds a trial, with a "
            "known rate of preemption; give --mtbf HOURS, or spot_mtbf_h in the book"
        )
    return found


def _label_of(book: PriceBook) -> Rates:
    """Return a book's name and day where none of its rates of parts are asked for."""
    return Rates(
        device_usd_per_hour=0.0,
        device_gib_usd_per_hour=0.0,
        host_gib_usd_per_hour=0.0,
        nvme_gib_usd_per_hour=0.0,
        dated=book.dated.isoformat(),
        book=book.name,
    )


def one_of(kind: Any, word: str | None, flag: str) -> Any:
    """Return the member of an enum that a flag's word means; None for none.

    Raises:
        SettingsError: There is no such word.
    """
    if word is None:
        return None
    known = [str(member) for member in kind]
    if word not in known:
        raise SettingsError(f"{flag} {word!r}{did_you_mean(word, known)}")
    return kind(word)


def book_of(settings: Settings) -> PriceBook:
    """Return the price book, once what is wrong with it is told."""
    book = settings.price_book()
    for warning in book_warnings(book, date.today()):
        sys.stderr.write(f"warning: {warning}\n")
    return book


def study_of(settings: Settings) -> tuple[StudyRecord, list[TrialRecord]]:
    """Return the study and its trials."""
    name = settings.study
    assert name is not None
    with closing(StoreReader.open(settings.store)) as store:
        return store.study(name), store.trials(name)


def _front_table(
    study: StudyRecord, found: Repriced, trials: Sequence[TrialRecord], counting: Counting
) -> None:
    costs = {trial.number: trial.scores.cost_usd_per_million_samples for trial in trials}
    chosen = found.recommendation
    goal = counting.target
    has_units, has_epoch = study.facts.unit != "samples", counting.samples is not None
    rows = []
    for trial in found.front:
        quote = found.quotes[trial.number]
        rows.append(
            [
                "*" if chosen is not None and trial.number == chosen.number else "",
                str(trial.number),
                str(trial.config),
                _plain(costs[trial.number]),
                _cost(quote),
                *([_plain(quote.usd_per_million_units)] if has_units else []),
                *([_plain(quote.usd_for(counting.samples))] if counting.samples else []),
                *([] if goal is None else [_plain(usd_to_target(study, trial, quote, goal))]),
                _plain(trial.scores.throughput_samples_per_second),
                _plain(quote.usd_per_hour),
                _place(quote),
            ]
        )
    columns = ["", "trial", "config", "$/M samples then", "$/M samples now"]
    columns += [f"$/M {study.facts.unit} now"] if has_units else []
    columns += ["$/epoch now"] if has_epoch else []
    columns += [] if goal is None else [f"$ to {study.facts.quality_name} {goal:g}"]
    columns += ["samples/s", "$/hour", "where"]
    kind = "spot, " if counting.is_spot and found.model == Model.INSTANCE else ""
    write_table(f"Front of {study.spec.name} in USD, {kind}by {found.model}", columns, rows)
    _tell_then_and_now(study, found, trials)


def _tell_then_and_now(study: StudyRecord, found: Repriced, trials: Sequence[TrialRecord]) -> None:
    objectives, direction = study.spec.objectives, study.facts.quality_direction
    before = recommend(pareto_front(trials, objectives, direction), objectives, direction)
    now = found.recommendation
    assert before is not None and now is not None
    sys.stdout.write(
        f"Prices then: {study.spec.rates.label}; now: {found.book.dated} ({found.book.name}).\n"
        f"Recommended then: trial {before.number}; now: trial {now.number}, {now.reason}.\n"
    )
    savings = _savings(study, found)
    if savings is not None:
        sys.stdout.write(f"Now, trial {now.number} {savings}.\n")


def _savings(study: StudyRecord, found: Repriced) -> Savings | None:
    """Return what the recommended trial saves now; None without a scored baseline."""
    baseline, chosen = baseline_of(found.trials, study), found.recommendation
    if baseline is None or chosen is None:
        return None
    trial = next(each for each in found.trials if each.number == chosen.number)
    return savings_of(trial, baseline)


def _cost(quote: Quote) -> str:
    if quote.basis == Basis.MEASURED:
        return _plain(quote.usd_per_million_samples)
    least, most = quote.least_usd_per_million_samples, quote.usd_per_million_samples
    return f"{_plain(least)} to {_plain(most)}"


def _place(quote: Quote) -> str:
    return "its parts" if quote.offer is None else f"{quote.offer}, {quote.basis}"


def _plain(value: float | Decimal | None) -> str:
    return NONE if value is None else f"{float(value):.4g}"


def _document(
    trial: TrialRecord,
    study: StudyRecord,
    found: Repriced,
    trials: Sequence[TrialRecord],
    counting: Counting,
) -> dict[str, Any]:
    quote, chosen = found.quotes[trial.number], found.recommendation
    before = next(t.scores for t in trials if t.number == trial.number)
    epoch = None if counting.samples is None else exact_text(quote.usd_for(counting.samples))
    goal = counting.target
    to_target = None if goal is None else usd_to_target(study, trial, quote, goal)
    measured, savings = trial_document(trial, study), _savings(study, found)
    return {
        **measured,
        "throughput_samples_per_second": trial.scores.throughput_samples_per_second,
        "is_recommended": chosen is not None and chosen.number == trial.number,
        "quote": {
            "model": str(found.model),
            "basis": str(quote.basis),
            "usd_per_hour": exact_text(quote.usd_per_hour),
            "usd_per_million_samples": exact_text(quote.usd_per_million_samples),
            "least_usd_per_million_samples": exact_text(quote.least_usd_per_million_samples),
            f"usd_per_million_{study.facts.unit}": exact_text(quote.usd_per_million_units),
            "usd_per_epoch": epoch,
            "epoch_samples": counting.samples,
            "usd_to_target": None if to_target is None else exact_text(to_target),
            "target": goal,
            "provider": None if quote.offer is None else quote.offer.provider,
            "instance": None if quote.offer is None else quote.offer.instance,
            "region": None if quote.offer is None else quote.offer.region,
            "is_spot": counting.is_spot and quote.offer is not None,
        },
        "prices": {"book": found.book.name, "dated": str(found.book.dated), "currency": "USD"},
        "saved_by_recommended": None if savings is None else savings_document(savings),
        "before": {
            "cost_usd_per_million_samples": before.cost_usd_per_million_samples,
            "book": study.spec.rates.book,
            "dated": study.spec.rates.dated,
        },
    }


def _reigns_table(
    study: StudyRecord,
    found: Sequence[Sensitivity],
    rates: Rates,
    trials: Sequence[TrialRecord],
) -> None:
    configs = {trial.number: str(trial.config) for trial in trials}
    rows = [
        [
            str(each.component),
            f"{float(reign.start):.6g}",
            "any" if reign.end is None else f"{float(reign.end):.6g}",
            str(reign.line.number),
            configs[reign.line.number] + _paid(each, reign),
            f"{float(reign.line.at(reign.start)):.4g}",
        ]
        for each in found
        for reign in each.reigns
    ]
    columns = ["kind", "from x", "to x", "trial", "config", "$/M samples at from"]
    write_table(f"Cheapest config of {study.spec.name}, in USD, by price", columns, rows)
    sys.stdout.write(f"Prices at x1: {rates.label}.\n")
    for each in found:
        sys.stdout.write(f"{_in_words(each)}\n")


def _paid(found: Sensitivity, reign: Reign) -> str:
    paid = found.paid(reign.line)
    return "" if paid is None else f", {paid}"


def _in_words(found: Sensitivity) -> str:
    if not found.flips:
        first = found.reigns[0]
        return f"{found.component}: trial {first.line.number}{_paid(found, first)} at any price."
    changes = [
        f"x{float(reign.start):.6g} to trial {reign.line.number}{_paid(found, reign)}"
        for reign in found.reigns[1:]
    ]
    return f"{found.component}: the winner changes at {', at '.join(changes)}."


def _reign_document(
    study: StudyRecord, found: Sensitivity, reign: Reign, rates: Rates
) -> dict[str, Any]:
    return {
        "study": study.spec.name,
        "component": str(found.component),
        "from_multiplier": float(reign.start),
        "from_multiplier_exact": str(reign.start),
        "to_multiplier": None if reign.end is None else float(reign.end),
        "to_multiplier_exact": None if reign.end is None else str(reign.end),
        "trial": reign.line.number,
        "is_spot": bool(reign.line.slope) if found.component == SPOT else None,
        "usd_per_million_samples_at_from": float(reign.line.at(reign.start)),
        "fixed_usd_per_million_samples": float(reign.line.fixed),
        "slope_usd_per_million_samples": float(reign.line.slope),
        "currency": "USD",
        "prices": {"book": rates.book, "dated": rates.dated},
    }


def _require_picture(path: Path, replaces: bool) -> None:
    if path.suffix not in (".svg", ".html"):
        raise SettingsError(f"--plot {str(path)!r}: name it .svg or .html")
    require_place(path, replaces)


def _draw(path: Path, study: StudyRecord, found: Sequence[Sensitivity], rates: Rates) -> None:
    title = f"Which config of {study.spec.name} is the cheapest, by price"
    picture = draw_sensitivity(found, title=title, subtitle=f"prices at x1: {rates.label}, USD")
    write_file(path, to_page(picture, title) if path.suffix == ".html" else picture)
    sys.stderr.write(f"wrote {path}\n")
