"""Names of the workloads that come with the program."""

from collections.abc import Callable

from trials.byte_gpt import ByteGpt
from trials.errors import WorkloadError
from trials.model_reference import HUGGINGFACE
from trials.vision import Vision
from trials.workload import Workload


def _huggingface(place: str) -> Workload:
    """Import transformers, which takes seconds, for the trials that need it alone."""
    try:
        from trials.huggingface import load_model
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise WorkloadError(
            f"{HUGGINGFACE}:PATH needs transformers, which is not installed here; "
            "install it with: pip install 'autotune[huggingface]'"
        ) from error
    return load_model(place)


BUILTIN_WORKLOADS: dict[str, Callable[[str], Workload]] = {
    "byte-gpt": ByteGpt,
    "vision": Vision,
    HUGGINGFACE: _huggingface,
}
