"""The command that says where a study's run should go. It runs and changes nothing."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from autotune.cli.files import require_place, write_file
from autotune.cli.options import Output
from autotune.cli.pricing import book_of, one_of, study_of
from autotune.cli.tables import write_documents, write_table
from autotune.errors import SettingsError
from autotune.exports.base import Handover
from autotune.exports.routes import (
    FORMS,
    route_document,
    time_text,
    to_json,
    to_ray,
    to_skypilot,
    window_text,
)
from autotune.figures import shown_number, shown_usd
from autotune.prices.placing import Placement, RunRequest
from autotune.prices.quotes import HEADROOM
from autotune.prices.routing import JobClass, Route, RoutePlan, plan_routes
from autotune.records import StudyRecord, TrialRecord
from autotune.settings import Settings
from search_spaces import did_you_mean

HOUR, MINUTE = 3600, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteWords:
    """What is to be written, and where, as it was typed.

    Attributes:
        form: Of the file; None for a table, or what ``--output`` says.
        job_class: Whose SkyPilot task; the cheapest one's if None.
        command: That a SkyPilot task runs.
        to: File; standard output if None.
        replaces: Whether it may exist.
        output: How to print where there is no form.
    """

    form: str | None
    job_class: str | None
    command: str | None
    to: Path | None
    replaces: bool
    output: Output


def run_request(
    samples: int,
    *,
    mtbf_hours: float | None,
    restart_seconds: float,
    storage_gb_per_second: float,
    headroom: float = HEADROOM,
    is_measured_only: bool = False,
) -> RunRequest:
    """Return a run that could start now, from people's units."""
    return RunRequest(
        samples=samples,
        begins_at=datetime.now(UTC),
        mtbf_seconds=None if mtbf_hours is None else mtbf_hours * HOUR,
        restart_seconds=restart_seconds,
        bytes_per_second=storage_gb_per_second * 1e9,
        headroom=headroom,
        is_measured_only=is_measured_only,
    )


def show_routes(settings: Settings, request: RunRequest, words: RouteWords) -> None:
    """Write where a run of a study's configs should go.

    Raises:
        PriceBookError: The book cannot be used, or holds no trial.
        NoMeasurementsError: The study has nothing to price.
        SettingsError: No such format or class, or a file that cannot be written.
    """
    _require_words(words)
    book = book_of(settings)
    study, trials = study_of(settings)
    plan = plan_routes(study, trials, book, request)
    for note in plan.notes:
        sys.stderr.write(f"note: {note}\n")
    if words.form is None:
        _show(plan, study, trials, words.output)
        return
    text = _text(plan, study, trials, words)
    if words.to is None:
        sys.stdout.write(text)
        return
    write_file(words.to, text)
    sys.stderr.write(f"wrote {words.to}\n")


def _require_words(words: RouteWords) -> None:
    if words.form is not None and words.form not in FORMS:
        raise SettingsError(f"--format {words.form!r}{did_you_mean(words.form, FORMS)}")
    if words.to is not None and words.form is None:
        raise SettingsError(f"--to {str(words.to)!r}: say in which --format: {', '.join(FORMS)}")
    one_of(JobClass, words.job_class, "--class")
    if words.to is not None:
        require_place(words.to, words.replaces)


def _text(
    plan: RoutePlan, study: StudyRecord, trials: Sequence[TrialRecord], words: RouteWords
) -> str:
    if words.form == "json":
        return to_json(plan, trials)
    if words.form == "ray":
        return to_ray(plan, study, trials)
    route = _route(plan, words.job_class)
    trial = next(each for each in trials if each.number == route.chosen.number)
    handover = Handover(trial=trial, study=study, now=datetime.now(UTC), steps=None)
    return to_skypilot(route, plan, handover, words.command)


def _route(plan: RoutePlan, job_class: str | None) -> Route:
    found = [route for route in plan.routes if job_class in (None, route.job_class)]
    if not found:
        raise SettingsError(f"--class {job_class}: no config of the study is of this class")
    return found[0]


def _show(
    plan: RoutePlan, study: StudyRecord, trials: Sequence[TrialRecord], output: Output
) -> None:
    if output != Output.TABLE:
        write_documents([route_document(route, plan, trials) for route in plan.routes], output)
        return
    configs = {trial.number: str(trial.config) for trial in trials}
    rows = [
        _row(route, placement, configs, is_first=placement is plan.routes[0].chosen)
        for route in plan.routes
        for placement in route.placements
    ]
    columns = ["", "class", "trial", "config", "paid", "where", "hours UTC", "save every"]
    columns += ["$ expected", "hours paid", "finish"]
    title = f"A run of {plan.request.samples} samples of {study.spec.name}, in USD"
    write_table(title, columns, rows)
    sys.stdout.write(f"Prices: {plan.book.dated} ({plan.book.name}).\n")
    sys.stdout.write(f"A config is {plan.rule}.\n")


def _row(
    route: Route, placement: Placement, configs: dict[int, str], *, is_first: bool
) -> list[str]:
    every = placement.interval_seconds
    return [
        "*" if is_first else "",
        str(route.job_class),
        str(placement.number),
        configs[placement.number],
        "spot" if placement.is_spot else "on demand",
        f"{placement.offer}, {placement.basis}",
        window_text(placement),
        "at its end" if every is None else f"{shown_number(every / MINUTE, 3)} min",
        shown_usd(float(placement.usd)),
        shown_number(placement.paid_seconds / HOUR),
        time_text(placement.finishes_at),
    ]
