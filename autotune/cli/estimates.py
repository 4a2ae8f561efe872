"""The command that predicts every config of a space."""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from autotune.cli.options import Output
from autotune.cli.tables import mib, write_documents, write_table
from autotune.estimating import Estimate, estimate
from autotune.figures import shown_parameters
from autotune.predict.calibration import COVERAGE, Interval
from autotune.predict.predictor import Prediction
from autotune.settings import Settings
from search_spaces import Exclusion

SHOWN = 20
"""Configs of a table; JSON and CSV have all."""
PHASES = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "step": "in the optimizer step",
}


def show_estimate(settings: Settings, pins: Mapping[str, object], output: Output) -> None:
    """Predict a space and show it, fastest first."""
    found = estimate(settings, pins)
    if output == Output.TABLE:
        _tables(found)
        return
    configs = [_document(found, prediction) for prediction in _ordered(found)]
    configs += [_refused(exclusion) for exclusion in found.exclusions]
    if output == Output.CSV:
        write_documents(configs, output)
        return
    document = {
        "parameters": found.facts.num_parameters,
        "largest_parameter": found.facts.largest_parameter,
        "traces_seconds": found.traces_seconds,
        "trials": found.num_trials,
        "device": found.environment.device_name,
        "memory_budget_bytes": found.memory_budget_bytes,
        "coverage": COVERAGE,
        "configs": configs,
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def _ordered(found: Estimate) -> list[Prediction]:
    """Return the configs that fit, fastest first, then the others, smallest first."""

    def place(prediction: Prediction) -> tuple[bool, float]:
        if _fits(found, prediction):
            return False, prediction.step_seconds.mean / prediction.config.effective_batch_size()
        return True, prediction.peak_device_bytes.mean

    return sorted(found.predictions, key=place)


def _fits(found: Estimate, prediction: Prediction) -> bool:
    return prediction.peak_device_bytes.mean <= found.memory_budget_bytes


def _document(found: Estimate, prediction: Prediction) -> dict[str, Any]:
    peak, seconds = prediction.peak_device_bytes, prediction.step_seconds
    return {
        "config": prediction.config.as_dict(),
        "fits": _fits(found, prediction),
        "probability_fits": prediction.probability_fits,
        "peak_device_bytes": {
            "low": int(peak.low),
            "mean": int(peak.mean),
            "high": int(peak.high),
        },
        "peak_host_bytes": prediction.peak_host_bytes,
        "memory": prediction.memory,
        "step_seconds": {"low": seconds.low, "mean": seconds.mean, "high": seconds.high},
        "reason": _reason(found, prediction),
    }


def _refused(exclusion: Exclusion) -> dict[str, Any]:
    return {
        "config": exclusion.config.as_dict(),
        "fits": False,
        "probability_fits": None,
        "peak_device_bytes": None,
        "peak_host_bytes": None,
        "memory": {},
        "step_seconds": None,
        "reason": exclusion.reason,
    }


def _reason(found: Estimate, prediction: Prediction) -> str:
    if _fits(found, prediction):
        return ""
    return (
        f"needs about {mib(int(prediction.peak_device_bytes.mean))} MiB, most of it "
        f"{PHASES[prediction.phase]}; the budget is {mib(found.memory_budget_bytes)} MiB"
    )


def _tables(found: Estimate) -> None:
    ordered = _ordered(found)
    fitting = [prediction for prediction in ordered if _fits(found, prediction)]
    rows = [_row(found, prediction) for prediction in (fitting or ordered)[:SHOWN]]
    columns = ["config", "fits", "peak MiB", "from", "to", "host MiB", "step ms", "from", "to"]
    write_table(_title(found), columns, rows)
    sys.stdout.write("\n".join(_closing(found, ordered, fitting)) + "\n")


def _title(found: Estimate) -> str:
    where = f"{found.environment.device_name} ({found.environment.device_kind})"
    return (
        f"{shown_parameters(found.facts.num_parameters)} on {where}, "
        f"{mib(found.memory_budget_bytes)} MiB: predicted, nothing was trained"
    )


def _row(found: Estimate, prediction: Prediction) -> list[str]:
    chance = prediction.probability_fits
    return [
        str(prediction.config),
        "-" if chance is None else f"{chance:.0%}",
        *_numbers(prediction.peak_device_bytes, 2**-20),
        mib(prediction.peak_host_bytes),
        *_numbers(prediction.step_seconds, 1e3),
    ]


def _numbers(interval: Interval, factor: float) -> list[str]:
    return [f"{value * factor:,.4g}" for value in (interval.mean, interval.low, interval.high)]


def _closing(found: Estimate, ordered: list[Prediction], fitting: list[Prediction]) -> list[str]:
    total = len(ordered)
    lines = [f"{len(fitting)} of {total} configs fit, {total - len(fitting)} do not"]
    if len(fitting) > SHOWN:
        lines[0] += f"; the {SHOWN} fastest are shown, --output json has all"
    if fitting:
        largest = max(fitting, key=lambda p: p.config.micro_batch_size)
        size = largest.config.micro_batch_size
        lines.append(f"the largest micro-batch that fits is {size}: {largest.config}")
    elif ordered:
        lines.append(f"the nearest {_reason(found, ordered[0])}")
    reasons = Counter(exclusion.reason for exclusion in found.exclusions)
    lines += [f"{count} refused: {reason}" for reason, count in reasons.most_common()]
    if found.is_assumed:
        lines.append(f"no GPU is here: predicted as for an {found.environment.device_name}")
    lines.append(
        f"each range holds {COVERAGE:.0%} of trials by what {found.num_trials} measured trials "
        "of this workload here taught"
        if found.num_trials
        else "no trial of this workload here is in the store yet; a few make the ranges narrow"
    )
    return lines
