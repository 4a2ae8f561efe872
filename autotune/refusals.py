"""What a study did not run because it was predicted not to fit, and how that was checked. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.figures import shown_count
from autotune.records import Source, TrialRecord
from search_spaces import TrainingConfig
from trials.measurement import Direction, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Configs that a study refused to run.

    Attributes:
        refused: All of them.
        checked: Those that a real trial was run of all the same.
        false: Those of the checked that fitted.
    """

    refused: frozenset[TrainingConfig]
    checked: frozenset[TrainingConfig]
    false: frozenset[TrainingConfig]


def refusals_of(trials: Iterable[TrialRecord]) -> Refusals:
    """Return what a study refused, by its trials."""
    told = list(trials)
    refused = frozenset(trial.config for trial in told if trial.source == Source.PREDICTED)
    again = [t for t in told if t.source != Source.PREDICTED and t.config in refused]
    return Refusals(
        refused=refused,
        checked=frozenset(trial.config for trial in again),
        false=frozenset(t.config for t in again if t.outcome == Outcome.COMPLETED),
    )


def hoped_quality(
    of_class: Sequence[TrialRecord], front: Sequence[TrialRecord], direction: Direction
) -> float | None:
    """Return the quality that a config would have; the best of the front where it is not known.

    Args:
        of_class: Trials of the config's numerics class.
        front: The front.
        direction: Which way quality is better.
    """
    known = [t.scores.quality for t in of_class if t.is_feasible]
    found = known or [trial.scores.quality for trial in front]
    pick = min if direction == Direction.MINIMIZE else max
    return pick((quality for quality in found if quality is not None), default=None)


def refusals_text(refusals: Refusals) -> str:
    """Return what was refused and what came of checking it, a line; empty where nothing was."""
    if not refusals.refused:
        return ""
    refused = shown_count(len(refusals.refused), "config")
    head = f"Not run, since they cannot fit or are predicted not to: {refused}"
    if not refusals.checked:
        return f"{head}; none of them would be on the front.\n"
    checked = len(refusals.checked)
    return (
        f"{head}; of {checked} that would be on the front, run to check, {len(refusals.false)} "
        f"fitted ({len(refusals.false)} refused wrongly).\n"
    )
