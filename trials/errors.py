"""Faults that are no outcome of a trial: ours, the machine's or the user's.

TrialError
 +- SpecError         a trial spec that says nothing runnable
 +- WorkloadError     the workload cannot be imported, built or used as one
 +- TrialSetupError   the machine cannot run trials: no such device, device busy, broken driver
"""


class TrialError(Exception):
    """Base of the faults around trials. Takes one message, so that it survives pickling."""


class SpecError(TrialError, ValueError):
    """A trial spec that cannot be read; the message names the key."""


class WorkloadError(TrialError):
    """A workload that cannot be imported, built or used; the message names it and the remedy."""


class TrialSetupError(TrialError):
    """A machine that cannot run trials: stop the study."""
