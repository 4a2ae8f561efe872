"""What a workload is, read from a model of it that may have no memory."""

from torch import nn

from trials.errors import WorkloadError
from trials.measurement import WorkloadFacts
from trials.workload import Workload, fingerprint


def workload_facts(reference: str, workload: Workload, model: nn.Module) -> WorkloadFacts:
    """Return what a workload is.

    Args:
        reference: That names it.
        workload: Itself.
        model: As it builds or outlines one.

    Raises:
        WorkloadError: There is nothing to train.
    """
    parameters = list(model.parameters())
    facts = WorkloadFacts(
        fingerprint=fingerprint(reference, workload),
        num_parameters=sum(p.numel() for p in parameters),
        num_trainable=sum(p.numel() for p in parameters if p.requires_grad),
        num_blocks=len(workload.blocks(model)),
        unit=workload.unit,
        quality_name=workload.quality_name,
        quality_direction=workload.quality_direction,
        global_batch_size=workload.global_batch_size,
        quality_samples=workload.quality_samples,
        largest_parameter=max((p.numel() for p in parameters), default=0),
        learning_rate=workload.learning_rate,
    )
    if facts.num_trainable == 0:
        raise WorkloadError(f"{reference} has no parameter that requires gradients")
    return facts
