"""Traces of workloads for tests of predictions."""

import torch

from search_spaces import TrainingConfig
from trials.trace_facts import WorkloadTrace
from trials.tracing import trace_graph
from trials.workload import load_workload

HOST_BYTES = 300 * 2**20


def traced(reference, *knobs):
    """Trace a workload in each way to compute that knobs ask for."""
    configs = [TrainingConfig.from_mapping({"checkpoint_interval": 1, **k}) for k in knobs]
    workload = load_workload(reference)
    graphs = tuple(trace_graph(workload, config, torch.device("cpu")) for config in configs)
    return WorkloadTrace(graphs=graphs, host_bytes=HOST_BYTES, seconds=0.0)
