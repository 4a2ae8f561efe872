"""What slots run on, asked of a trial process of each, and whether it is the same for all."""

import uuid
from collections.abc import Mapping

from autotune.errors import WorkersError
from trials.environment import Environment
from trials.measurement import Measurement
from trials.spec import Task, TrialSpec


def probe_spec() -> TrialSpec:
    """Return a trial that says what it runs on."""
    return TrialSpec(workload="", task=Task.ENVIRONMENT, trial_id=uuid.uuid4().hex)


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
    return common
