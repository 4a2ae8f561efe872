"""At which price the cheapest trial is another one: exactly, since cost is linear in a price."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from autotune.front import as_good_in_quality
from autotune.prices.routing import Placements
from autotune.rates import MILLION, Component, Rates
from autotune.records import TrialRecord
from trials.measurement import Direction, Measurement

SPOT = "spot"
"""The price of machines that may be preempted, beside those of the components."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a million samples cost, as one price is multiplied: fixed + slope x multiplier.

    Of the spot price, a run on the spot is all slope, and one on demand all fixed.

    Attributes:
        number: Of the trial.
        fixed: US dollars that do not change.
        slope: US dollars that do, at a multiplier of 1.
    """

    number: int
    fixed: Fraction
    slope: Fraction

    def at(self, multiplier: Fraction) -> Fraction:
        """Return the cost at a multiplier, in US dollars."""
        return self.fixed + self.slope * multiplier


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """Over which multipliers a trial is the cheapest.

    Attributes:
        line: The trial's.
        start: From here; 0 for the first.
        end: To here; None for the last, which has no end.
    """

    line: Line
    start: Fraction
    end: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Who wins as one price is multiplied.

    Attributes:
        component: Whose price: a ``Component``, or ``SPOT``.
        lines: Of every trial that may win.
        reigns: In order of the multiplier, without gap; a flip lies between two of them.
    """

    component: str
    lines: tuple[Line, ...]
    reigns: tuple[Reign, ...]

    @property
    def flips(self) -> list[Fraction]:
        """The multipliers at which the winner changes."""
        return [reign.start for reign in self.reigns[1:]]

    def paid(self, line: Line) -> str | None:
        """Return how a run is paid, where the spot price is multiplied; None elsewhere."""
        if self.component != SPOT:
            return None
        return "on the spot" if line.slope else "on demand"

    def winner_at(self, multiplier: Fraction) -> Line:
        """Return the cheapest trial's line; where two cost the same, the one from there on."""
        return [reign for reign in self.reigns if reign.start <= multiplier][-1].line


def analyse(
    trials: Sequence[TrialRecord],
    rates: Rates,
    quality_direction: Direction,
    components: Sequence[Component] = tuple(Component),
) -> list[Sensitivity]:
    """Return for each component who wins as its price is multiplied.

    Trials that train worse than the best, beyond the noise, cannot win.

    Args:
        trials: Feasible ones, with their measurements.
        rates: Prices at a multiplier of 1.
        quality_direction: Of the quality objective.
        components: Whose prices to multiply, one at a time.
    """
    candidates = as_good_in_quality(trials, quality_direction)
    costs = {
        trial.number: _cost_parts(trial.measurement, rates)
        for trial in candidates
        if trial.measurement is not None
    }
    return [_of_component(costs, component) for component in components]


def analyse_spot(placements: Placements, samples: int) -> Sensitivity:
    """Return which trial's run is the cheapest as every spot price is multiplied, and where.

    A multiplier changes neither how often machines are preempted nor which of them is the
    cheapest on the spot, so each trial has two lines: its best run on demand, and on the spot.

    Args:
        placements: At least one, of runs of one size.
        samples: Of such a run.
    """
    share = Fraction(MILLION, samples)
    on_demand = (
        Line(number=number, fixed=each.exact_usd * share, slope=Fraction(0))
        for number, each in placements.on_demand.items()
    )
    on_spot = (
        Line(number=number, fixed=Fraction(0), slope=each.exact_usd * share)
        for number, each in placements.on_spot.items()
    )
    lines = (*on_demand, *on_spot)
    return Sensitivity(component=SPOT, lines=lines, reigns=lower_envelope(lines))


def lower_envelope(lines: Sequence[Line]) -> tuple[Reign, ...]:
    """Return which line is lowest over the multipliers from 0 on, with exact ends.

    Of lines that are the same, the one with the smallest number stands for all.
    """
    lowest = min(lines, key=lambda line: (line.fixed, line.slope, line.number))
    start = Fraction(0)
    reigns: list[Reign] = []
    while True:
        crossings = [
            ((line.fixed - lowest.fixed) / (lowest.slope - line.slope), line)
            for line in lines
            if line.slope < lowest.slope
        ]
        if not crossings:
            return (*reigns, Reign(line=lowest, start=start, end=None))
        end, following = min(crossings, key=lambda pair: (pair[0], pair[1].slope, pair[1].number))
        reigns.append(Reign(line=lowest, start=start, end=end))
        lowest, start = following, end


def _of_component(
    costs: Mapping[int, Mapping[Component, Fraction]], component: Component
) -> Sensitivity:
    lines = tuple(
        Line(
            number=number,
            fixed=sum((p for c, p in parts.items() if c != component), start=Fraction(0)),
            slope=parts[component],
        )
        for number, parts in costs.items()
    )
    return Sensitivity(component=component, lines=lines, reigns=lower_envelope(lines))


def _cost_parts(measurement: Measurement, rates: Rates) -> dict[Component, Fraction]:
    """Return what a million samples cost by component, in US dollars."""
    timing = measurement.timing
    assert timing is not None
    hours = Fraction(timing.mean_seconds) / timing.samples_per_step * MILLION / 3600
    return {c: Fraction(part) * hours for c, part in rates.parts_per_hour(measurement).items()}
