import uuid
from pathlib import Path

import pytest

from trials.host import TrialHost
from trials.spec import TimingPolicy, TrialSpec

SMALL = Path(__file__).parents[1] / "assets" / "workloads" / "small.py"
QUICK = TimingPolicy(min_steps=2, max_steps=3)


@pytest.fixture(scope="session")
def host():
    host = TrialHost()
    yield host
    host.close()


@pytest.fixture
def run(host):
    """Run one real trial of a workload of the tests, by class name, or of a reference."""

    def run_one(workload="Small", **fields):
        reference = workload if ":" in workload or "-" in workload else f"{SMALL}:{workload}"
        # Another test run on this machine ends the programs of trials that have its trial's id.
        usual = {"timing": QUICK, "trial_id": uuid.uuid4().hex}
        return host.run(TrialSpec(workload=reference, **{**usual, **fields}))

    return run_one
