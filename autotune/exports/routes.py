"""A plan of routes for others to read: JSON, a SkyPilot task, queues of Ray. Pure."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from autotune.errors import SettingsError
from autotune.exports.base import Handover
from autotune.exports.environment import variables_of
from autotune.exports.yaml_text import to_yaml
from autotune.prices.placing import Placement
from autotune.prices.quotes import needs_of
from autotune.prices.routing import Route, RoutePlan
from autotune.records import StudyRecord, TrialRecord
from search_spaces import did_you_mean

FORMS = ("json", "skypilot", "ray")
CLOUDS = ("aws", "azure", "gcp", "lambda", "nebius", "runpod")
"""Providers whose name SkyPilot knows."""
LABEL = "autotune.io/job-class"
CHECKPOINT_VARIABLE = "TRAIN_CHECKPOINT_SECONDS"
CENT = Decimal("0.01")
DOLLARS = Decimal("1e-12")
"""To which money is rounded where it is written."""


def exact_text(usd: Decimal) -> str:
    """Return dollars as decimal text, which no reader rounds to binary."""
    return f"{usd.quantize(DOLLARS).normalize():f}"


def route_document(route: Route, plan: RoutePlan, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    """Return where the jobs of a class go, as a document.

    Args:
        route: One of the plan's.
        plan: All of it.
        trials: The study's.
    """
    chosen = route.chosen
    trial = next(each for each in trials if each.number == chosen.number)
    return {
        "study": trial.study,
        "job_class": str(route.job_class),
        "is_cheapest": route is plan.routes[0],
        "samples": plan.request.samples,
        "chosen": _placement(chosen, trials),
        "on_demand": None if route.on_demand is None else _placement(route.on_demand, trials),
        "spot": None if route.on_spot is None else _placement(route.on_spot, trials),
        "rule": str(plan.rule),
        "class_limit_bytes": plan.rule.entry_bytes,
        "prices": {"book": plan.book.name, "dated": str(plan.book.dated), "currency": "USD"},
        "notes": list(plan.notes),
    }


def to_json(plan: RoutePlan, trials: Sequence[TrialRecord]) -> str:
    """Return a plan as JSON: a document for each class, the cheapest first."""
    documents = [route_document(route, plan, trials) for route in plan.routes]
    return json.dumps(documents, indent=2) + "\n"


def to_skypilot(route: Route, plan: RoutePlan, handover: Handover, command: str | None) -> str:
    """Return the task file that starts a class's run with ``sky jobs launch``.

    Args:
        route: Of the class.
        plan: All of it.
        handover: The trial that it chose.
        command: That trains; it finds the config in its environment.

    Raises:
        SettingsError: There is no command, or SkyPilot does not know the provider.
    """
    chosen = route.chosen
    if not command:
        raise SettingsError("a SkyPilot task needs what to run; give --run 'python train.py'")
    cloud = chosen.offer.provider.lower()
    if cloud not in CLOUDS:
        raise SettingsError(
            f"SkyPilot knows no provider {cloud!r}{did_you_mean(cloud, CLOUDS)}; the plan is in "
            "--format json too"
        )
    resources: dict[str, Any] = {"cloud": cloud, "instance_type": chosen.offer.instance}
    if chosen.offer.region:
        resources["zone" if chosen.offer.is_zone else "region"] = chosen.offer.region
    resources["use_spot"] = chosen.is_spot
    variables = variables_of(handover)
    if chosen.interval_seconds is not None:
        variables[CHECKPOINT_VARIABLE] = f"{chosen.interval_seconds:.0f}"
    task = {
        "name": f"{route.job_class}-trial-{chosen.number}",
        "resources": resources,
        "envs": variables,
        "run": command,
    }
    return "".join(f"# {line}\n" for line in _in_words(route, plan, handover)) + to_yaml(task)


def to_ray(plan: RoutePlan, study: StudyRecord, trials: Sequence[TrialRecord]) -> str:
    """Return two queues for Ray, by job class: how nodes and tasks are labelled, as JSON."""
    by_number = {trial.number: trial for trial in trials}
    queues = {
        str(route.job_class): _queue(route, study, by_number[route.chosen.number])
        for route in plan.routes
    }
    prices = {"book": plan.book.name, "dated": str(plan.book.dated), "currency": "USD"}
    return (
        json.dumps({"queues": queues, "rule": str(plan.rule), "prices": prices}, indent=2) + "\n"
    )


def window_text(placement: Placement) -> str:
    """Return the hours of a price."""
    hours = placement.offer.hours
    return "all" if hours is None else f"{hours}"


def time_text(moment: datetime) -> str:
    """Return a time as people write it, to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _placement(placement: Placement, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    offer = placement.offer
    trial = next(each for each in trials if each.number == placement.number)
    return {
        "trial": placement.number,
        "config": trial.config.as_dict(),
        "provider": offer.provider,
        "instance": offer.instance,
        "zone" if offer.is_zone else "region": offer.region,
        "hours_utc": window_text(placement),
        "is_spot": placement.is_spot,
        "basis": str(placement.basis),
        "checkpoint_interval_seconds": placement.interval_seconds,
        "checkpoint_seconds": placement.checkpoint_seconds,
        "mtbf_seconds": placement.mtbf_seconds,
        "work_seconds": placement.work_seconds,
        "paid_seconds": placement.paid_seconds,
        "usd_per_hour": exact_text(offer.price(is_spot=placement.is_spot) or Decimal(0)),
        "expected_usd": exact_text(placement.usd),
        "starts_at": placement.starts_at.isoformat(),
        "finishes_at": placement.finishes_at.isoformat(),
    }


def _queue(route: Route, study: StudyRecord, trial: TrialRecord) -> dict[str, Any]:
    chosen, name = route.chosen, str(route.job_class)
    needs = needs_of(trial, study.environment)
    labels: Mapping[str, str] = {LABEL: name}
    return {
        "node": {
            "labels": labels,
            "resources": {name: 1},
            "start": f"ray start --labels={LABEL}={name} --resources='{{\"{name}\": 1}}'",
            "instance": str(chosen.offer),
        },
        "task": {
            "num_gpus": needs.num_gpus,
            "num_cpus": needs.num_cores or 1,
            "memory": needs.host_bytes,
            "label_selector": labels,
            "resources": {name: 1},
        },
    }


def _in_words(route: Route, plan: RoutePlan, handover: Handover) -> list[str]:
    chosen = route.chosen
    kind = "on the spot" if chosen.is_spot else "on demand"
    lines = [
        handover.title,
        f"{route.job_class}: {plan.request.samples} samples for USD "
        f"{chosen.usd.quantize(CENT)} {kind}, expected to finish {time_text(chosen.finishes_at)}",
        f"prices of {plan.book.dated} ({plan.book.name})",
    ]
    if chosen.offer.hours is not None:
        lines.append(f"the price holds at {chosen.offer.hours} UTC: start it then, stop it after")
    if chosen.interval_seconds is not None:
        lines.append(f"save every {chosen.interval_seconds:.0f} s of training")
    return lines
