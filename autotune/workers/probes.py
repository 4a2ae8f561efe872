"""What a trial process answers when it is asked of its slot or of a workload."""

import uuid
from collections.abc import Mapping
from dataclasses import replace

from autotune.errors import WorkersError
from trials.environment import Environment
from trials.errors import TrialSetupError, WorkloadError
from trials.measurement import Measurement, Outcome, WorkloadFacts
from trials.spec import Task, TrialSpec


def probe_spec(nvme_path: str | None = None) -> TrialSpec:
    """Return a trial that says what it runs on, and whether it may offload to a folder."""
    return TrialSpec(
        workload="", task=Task.ENVIRONMENT, trial_id=uuid.uuid4().hex, nvme_path=nvme_path
    )


def probed_environment(slot: str, measurement: Measurement) -> Environment:
    """Return what a slot's probe found.

    Raises:
        WorkersError: It found that the slot cannot run trials.
    """
    if measurement.environment is not None:
        return measurement.environment
    log_tail = "" if measurement.failure is None else measurement.failure.log_tail
    last_line = log_tail.strip().rpartition("\n")[2]
    raise WorkersError(
        "; ".join(
            filter(None, [f"slot {slot} cannot run trials: {measurement.reason}", last_line])
        )
    )


def described_facts(workload: str, measurement: Measurement) -> WorkloadFacts:
    """Return what a description of a workload found.

    Raises:
        WorkloadError: It does not load, build or train; the message says which and why.
        TrialSetupError: The machine is at fault.
    """
    if measurement.facts is not None:
        return measurement.facts
    failure = measurement.failure
    assert failure is not None
    tail = f"\n{failure.log_tail}" if failure.log_tail else ""
    if measurement.outcome == Outcome.CRASHED:
        raise TrialSetupError(f"{workload}: {failure.reason}{tail}")
    if measurement.outcome == Outcome.INVALID:
        raise WorkloadError(
            f"workload {workload} does not {failure.phase}: {failure.reason}{tail}"
        )
    raise WorkloadError(f"{workload}: {measurement.outcome}, {failure.reason}{tail}")


def common_environment(environments: Mapping[str, Environment]) -> Environment:
    """Return the environment of every slot, by name.

    Raises:
        WorkersError: Slots differ; the message names two of them, and in what.
    """
    (first, common), *others = environments.items()
    for name, environment in others:
        differences = common.differences(environment)
        if differences:
            raise WorkersError(
                f"measurements of slots {first} and {name} could not be compared: "
                f"{'; '.join(differences)}; use machines of one kind for a study"
            )
    missing = {name: why for one in environments.values() for name, why in one.missing}
    return replace(common, missing=tuple(missing.items()))
