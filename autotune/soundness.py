"""When it is the workload that is broken, and not its configs."""

from collections import Counter

from autotune.ledger import Ledger
from autotune.quality import QualityDesk, QualityJob
from autotune.records import TrialState
from search_spaces import AmpDtype
from trials.errors import WorkloadError
from trials.measurement import Measurement, Outcome

MAX_SAME_FAULT = 3
"""So many first trials that all fail alike show that the workload is broken, not the configs."""


def require_sound_workload(workload: str, ledger: Ledger, desk: QualityDesk) -> None:
    """Stop when nothing works and most fails alike.

    One that runs out of memory instead has not come as far as the fault. One that completes
    works, unless its quality was lost, and not for want of memory.

    Raises:
        WorkloadError: It is broken; the message says how.
    """
    trials = ledger.trials.values()
    if any(t.state == TrialState.MEASURED or t.is_feasible for t in trials):
        return
    at_fault = [t for t in trials if t.outcome in (Outcome.INVALID, Outcome.COMPLETED)]
    faults = Counter(t.reason for t in at_fault if not desk.has_no_room(t.config))
    for reason, count in faults.most_common(1):
        if count >= (MAX_SAME_FAULT if len(trials) == count else 2 * MAX_SAME_FAULT):
            raise WorkloadError(
                f"{count} of {len(trials)} trials of {workload} fail the same "
                f"way, and none succeeds: {reason}"
            )


def require_sound_evaluation(
    workload: str, ledger: Ledger, desk: QualityDesk, job: QualityJob, measurement: Measurement
) -> None:
    """Stop when the workload's own code fails in plain fp32, before any quality is known.

    In another dtype it says nothing of fp32: such as NumPy's lack of bf16.

    Raises:
        WorkloadError: It fails; what waits for its quality is told without.
    """
    failure = measurement.failure
    if failure is None or not failure.is_users_fault:
        return
    if job.config.amp_dtype == AmpDtype.FP32 and not desk.knows_any:
        lost = desk.lost_quality(measurement)
        for trial in ledger.unscored:
            ledger.tell(trial, lost)
        raise WorkloadError(
            f"workload {workload} trains, and then does not {failure.phase}: "
            f"{failure.reason}; mend it, or leave quality out with "
            "--objectives cost,throughput"
        )
