"""Names of the workloads that come with the program."""

from collections.abc import Callable

from trials.byte_gpt import ByteGpt
from trials.workload import Workload

BUILTIN_WORKLOADS: dict[str, Callable[[str], Workload]] = {"byte-gpt": ByteGpt}
