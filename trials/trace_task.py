"""The task that traces a workload without memory, in a trial process."""

import time

import torch

from trials.description import workload_facts
from trials.measurement import Measurement, Outcome
from trials.memory import CpuMeter
from trials.spec import TrialSpec
from trials.trace_facts import WorkloadTrace
from trials.tracing import explained, trace_graph
from trials.workload import load_workload


def trace_workload(spec: TrialSpec) -> Measurement:
    """Return what a workload is, and what its passes take under each config to trace.

    Raises:
        WorkloadError: It needs real values, or has nothing to train.
    """
    meter = CpuMeter()
    meter.start(None)
    workload = load_workload(spec.workload)
    started = time.perf_counter()
    torch.manual_seed(spec.seed)
    with explained():
        facts = workload_facts(spec.workload, workload, workload.outline())
    device = torch.device(spec.device if torch.cuda.is_available() else "cpu")
    graphs = tuple(trace_graph(workload, config, device) for config in spec.traced)
    trace = WorkloadTrace(
        graphs=graphs,
        host_bytes=meter.peak_host_bytes(),
        seconds=time.perf_counter() - started,
    )
    return Measurement(outcome=Outcome.COMPLETED, facts=facts, trace=trace)
