"""When another trial is expected to gain less than it costs. Pure."""

from dataclasses import dataclass

from autotune.figures import shown_number

FEWEST_TRIALS = 6
"""Completed trials before what is expected is taken for true."""
PATIENCE = 3
"""Proposals in a row that must be worth less than they cost."""


@dataclass(slots=True, kw_only=True)
class Worth:
    """Watches what trials are expected to gain. Not frozen: it counts.

    A trial that is expected to let the front grow by a share saves that share of the training
    that the config is for; it costs the time that trials of the study take.

    Attributes:
        planned_seconds: Training that the config is for; None never ends a study.
        in_a_row: Proposals, up to the last, that were worth less than a trial costs.
        proposal: Number of the last one.
        reason: Why to stop, in words; empty while there is no reason to.
    """

    planned_seconds: float | None
    in_a_row: int = 0
    proposal: int = 0
    reason: str = ""

    def look(self, proposal: int, gain: float, trial_seconds: list[float]) -> None:
        """Take in the next proposal.

        Args:
            proposal: Its number; seen twice it counts once.
            gain: The most that a trial is expected to add to the front, relative to it.
            trial_seconds: What the completed trials so far took, each.
        """
        if self.planned_seconds is None or len(trial_seconds) < FEWEST_TRIALS:
            return
        saved, cost = gain * self.planned_seconds, sum(trial_seconds) / len(trial_seconds)
        if proposal != self.proposal:
            self.in_a_row = self.in_a_row + 1 if saved < cost else 0
        self.proposal, self.reason = proposal, ""
        if self.in_a_row >= PATIENCE:
            self.reason = (
                f"another trial takes {shown_number(cost, 2)} s and is expected to save "
                f"{shown_number(saved, 2)} s of {shown_number(self.planned_seconds / 3600)} h of "
                "training; --planned-hours says how long yours is"
            )
