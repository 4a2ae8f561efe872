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
        return host.run(TrialSpec(workload=reference, **{"timing": QUICK, **fields}))

    return run_one
