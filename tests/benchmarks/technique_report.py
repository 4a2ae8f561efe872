"""How the benchmark of techniques is written down: as a table, JSON or Markdown."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from search_spaces import KnobValue
from tests.benchmarks.technique_list import PLAIN
from trials.codec import to_plain
from trials.environment import Environment

MIB = 2**20
PACKAGES = ("deepspeed", "bitsandbytes", "torchao", "peft")
HEADINGS = ("technique", "allocated MiB", "of fp32", "reserved MiB", "step ms", "of fp32", "loss")
LACKING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Repeats of a number.

    Attributes:
        median: Of them.
        least: Of them.
        most: Of them.
        count: How many.
    """

    median: float
    least: float
    most: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Return the spread of values; None of none."""
        if not values:
            return None
        return cls(
            median=statistics.median(values),
            least=min(values),
            most=max(values),
            count=len(values),
        )

    def shown(self, unit: float) -> str:
        """Return the median in a unit, and what it lies between where that is not the same."""
        median, least, most = (f"{v / unit:,.4g}" for v in (self.median, self.least, self.most))
        return median if least == most else f"{median} ({least}-{most})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One technique.

    Attributes:
        name: Of it.
        is_stacked: Whether it is several.
        config: Every knob.
        is_tried: Whether the rules and the machine allow it.
        reason: Why there are no numbers; empty where there are.
        peak_allocated_bytes: On the device, over what was there before the model.
        peak_reserved_bytes: By the allocator; None on a CPU.
        step_seconds: Of an optimizer step, the mean of each trial.
        loss: On held-out data after training.
    """

    name: str
    is_stacked: bool
    config: dict[str, KnobValue]
    is_tried: bool
    reason: str
    peak_allocated_bytes: Spread | None
    peak_reserved_bytes: Spread | None
    step_seconds: Spread | None
    loss: float | None

    def brief(self) -> str:
        """Return peak and step time in a few words."""
        assert self.peak_allocated_bytes is not None and self.step_seconds is not None
        peak, step = self.peak_allocated_bytes.shown(MIB), self.step_seconds.shown(1e-3)
        return f"{peak} MiB, {step} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All techniques on one device.

    Attributes:
        date: Of the measurement.
        workload: Reference.
        num_parameters: Of its model.
        micro_batch_size: Samples of a forward pass on a device.
        accumulation_steps: Of them to an optimizer step.
        num_ranks: Devices that train together.
        loss_name: What the workload calls its quality.
        loss_samples: Trained before it is taken.
        environment: Device, driver and versions.
        rows: In order.
    """

    date: str
    workload: str
    num_parameters: int
    micro_batch_size: int
    accumulation_steps: int
    num_ranks: int
    loss_name: str
    loss_samples: int
    environment: Environment
    rows: tuple[Row, ...]

    @property
    def plain(self) -> Row | None:
        """The technique that is none; None where it has no numbers."""
        return next((row for row in self.rows if row.name == PLAIN and not row.reason), None)

    def ratios(self, row: Row) -> tuple[float | None, float | None]:
        """Return a row's peak and step time over those of plain fp32 in this run."""
        if self.plain is None:
            return None, None
        return (
            _ratio(row.peak_allocated_bytes, self.plain.peak_allocated_bytes),
            _ratio(row.step_seconds, self.plain.step_seconds),
        )

    def introduction(self) -> list[str]:
        """Return on what, when and how this was measured."""
        on = self.environment
        names = ("python", "torch", *PACKAGES)
        names = names if on.device_kind == "cpu" else ("driver", "cuda", *names)
        known = [f"{name} {getattr(on, name) or 'not there'}" for name in names]
        threads = f", {on.num_threads} thread(s)" if on.device_kind == "cpu" else ""
        ranks = f" on {self.num_ranks} devices" if self.num_ranks > 1 else ""
        return [
            f"{self.workload}, {self.num_parameters / 1e6:.1f} M parameters, batch "
            f"{self.micro_batch_size}x{self.accumulation_steps}{ranks}, on {self.date}",
            f"{on.device_name} ({on.device_kind}{threads}), {', '.join(known)}",
            f"median of the trials (least-most); loss: {self.loss_name} after "
            f"{self.loss_samples} samples",
        ]

    def cells(self, row: Row) -> list[str]:
        """Return a row of the table; of one without numbers, its name and the reason."""
        if row.reason:
            return [row.name, f"{'failed' if row.is_tried else 'not tried'}: {row.reason}"]
        spreads = (
            _shown(row.peak_allocated_bytes, MIB),
            _shown(row.peak_reserved_bytes, MIB),
            _shown(row.step_seconds, 1e-3),
        )
        peak, step = (LACKING if r is None else f"x{r:.2f}" for r in self.ratios(row))
        loss = LACKING if row.loss is None else f"{row.loss:.4f}"
        return [row.name, spreads[0], peak, spreads[1], spreads[2], step, loss]


def _ratio(one: Spread | None, other: Spread | None) -> float | None:
    return None if one is None or other is None else one.median / other.median


def _shown(spread: Spread | None, unit: float) -> str:
    return LACKING if spread is None else spread.shown(unit)


def as_table(report: Report) -> str:
    """Return aligned columns."""
    whole = [report.cells(row) for row in report.rows]
    measured = [list(HEADINGS), *(cells for cells in whole if len(cells) == len(HEADINGS))]
    widths = [max(map(len, column)) for column in zip(*measured, strict=True)]
    widths[0] = max(len(cells[0]) for cells in whole)
    lines = [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=False))
        ).rstrip()
        if len(cells) == len(HEADINGS)
        else "  ".join([cells[0].ljust(widths[0]), *cells[1:]])
        for cells in [list(HEADINGS), *whole]
    ]
    return "\n".join([*report.introduction(), "", *lines])


def as_markdown(report: Report) -> str:
    """Return a table of Markdown; what has no numbers is a list below it."""
    whole = [report.cells(row) for row in report.rows]
    measured = [cells for cells in whole if len(cells) == len(HEADINGS)]
    rows = [list(HEADINGS), ["---", *["---:"] * (len(HEADINGS) - 1)], *measured]
    table = [f"| {' | '.join(cells)} |" for cells in rows]
    rest = [f"- {': '.join(cells)}" for cells in whole if len(cells) != len(HEADINGS)]
    parts = ("  \n".join(report.introduction()), "\n".join(table), "\n".join(rest))
    return "\n\n".join(filter(None, parts))


def as_json(report: Report) -> str:
    """Return one document, with the ratios to plain fp32."""
    document = to_plain(report)
    for row, plain in zip(report.rows, document["rows"], strict=True):
        peak, step = report.ratios(row)
        plain["ratio_to_fp32"] = {"peak_allocated_bytes": peak, "step_seconds": step}
    return json.dumps(document, indent=1)


FORMATS: dict[str, Callable[[Report], str]] = {
    "table": as_table,
    "json": as_json,
    "markdown": as_markdown,
}
