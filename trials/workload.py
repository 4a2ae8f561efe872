"""What is trained: the protocol of a workload, and how a reference becomes one.

A user's workload is a class in a file of theirs, made without arguments::

    from trials.workload import Workload

    class Mine(Workload):
        def build(self): ...                            # a torch module, on CPU, fp32
        def batches(self, micro_batch_size, seed): ...  # endless, any nesting of tensors
        def loss(self, model, batch): ...               # summed over what is trained
        def evaluate(self, model, device): ...          # one number

and is named ``path/to/file.py:Mine`` or ``package.module:Mine``.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from search_spaces import did_you_mean, stable_hash
from trials.blocks import find_blocks
from trials.errors import WorkloadError
from trials.measurement import Direction
from trials.model_reference import HUGGINGFACE
from trials.references import (
    is_file_reference,
    is_users,
    require_reference,
    split_reference,
)

Batch = Any
"""Tensors, or tuples, lists and dicts of them; the first tensor's first dimension is samples."""


class Workload(ABC):
    """A training job, reduced to what measuring its memory, time and quality needs.

    Attributes:
        unit: What ``count`` counts: ``samples`` or ``tokens``.
        quality_name: Of what ``evaluate`` returns.
        quality_direction: Which way that gets better.
        learning_rate: Of AdamW.
        global_batch_size: Samples per optimizer step, unless the study says otherwise.
        quality_samples: Samples to train before ``evaluate``, once per numerics class.
        evaluation_batch_size: Samples that ``evaluate`` takes at once. A trial that runs out of
            memory there halves it and evaluates again; None where ``evaluate`` does not ask.
    """

    unit: str = "samples"
    quality_name: str = "loss"
    quality_direction: Direction = Direction.MINIMIZE
    learning_rate: float = 1e-3
    global_batch_size: int = 8
    quality_samples: int = 64
    evaluation_batch_size: int | None = None

    @abstractmethod
    def build(self) -> nn.Module:
        """Return the model on CPU in fp32, its trained parameters requiring gradients.

        Torch's random state is seeded before, so equal seeds give equal weights.
        """

    @abstractmethod
    def batches(self, micro_batch_size: int, seed: int) -> Iterator[Batch]:
        """Yield micro-batches without end, on CPU.

        Equal seeds must give the same samples in the same order, however they are split.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss summed over the batch's trained units: a scalar.

        A sum, not a mean: the trial divides by ``count`` over the whole accumulation window, so
        that the split into micro-batches leaves the gradients unchanged.
        """

    @abstractmethod
    def evaluate(self, model: nn.Module, device: torch.device) -> float:
        """Return the metric on held-out data; called without gradients, in eval mode."""

    def outline(self) -> nn.Module:
        """Return the model with shapes and without memory: what ``build`` makes on no device."""
        with torch.device("meta"):
            return self.build()

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the repeated blocks, in order of the forward, that checkpointing may recompute.

        Found by ``trials.blocks.find_blocks`` unless overridden; return ``()`` for none.
        """
        return find_blocks(model)

    def worst_batch(self, micro_batch_size: int) -> Batch:
        """Return the batch that takes the most memory: the longest samples there are."""
        return next(iter(self.batches(micro_batch_size, seed=0)))

    def count(self, batch: Batch) -> int:
        """Return the trained units in a batch: what the loss was summed over."""
        return first_tensor(batch).shape[0]

    def identity(self) -> object:
        """Return what measurements depend on beside the reference and the class's source.

        Plain JSON; such as the hash of a file that ``build`` reads.
        """
        return None


def first_tensor(batch: Batch) -> Tensor:
    """Return the first tensor of a batch.

    Raises:
        WorkloadError: There is none.
    """
    tensor = next(_tensors(batch), None)
    if tensor is None:
        raise WorkloadError(f"a batch must hold tensors, got {type(batch).__name__}")
    return tensor


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Return a batch with every tensor on a device, other values as they are."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: to_device(item, device) for key, item in batch.items()}
    if isinstance(batch, list | tuple):
        items = [to_device(item, device) for item in batch]
        is_named = hasattr(batch, "_fields")
        return type(batch)(*items) if is_named else type(batch)(items)
    return batch


def _tensors(batch: Batch) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping | list | tuple):
        for item in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors(item)


def load_workload(reference: str) -> Workload:
    """Return the workload that a reference names.

    Raises:
        WorkloadError: No such built-in, file, module or class, or one that raises when made.
    """
    require_reference(reference)
    if is_users(reference):
        return _users_workload(reference)
    from trials.builtin_workloads import BUILTIN_WORKLOADS

    name, _, size = reference.partition(":")
    return BUILTIN_WORKLOADS[name](size)


def fingerprint(reference: str, workload: Workload) -> str:
    """Return a hash of what a workload is, wherever its files lie.

    It changes with the name, with the source of the class and of the workloads that it derives
    from, and with ``identity()``.
    """
    name = reference.rpartition(":")[2] if ".py:" in reference else reference
    if reference.startswith(f"{HUGGINGFACE}:"):
        name = HUGGINGFACE
    parts: list[object] = [name, hashlib.sha256(_source(type(workload))).hexdigest()]
    identity = workload.identity()
    return stable_hash(parts if identity is None else [*parts, identity])


def _source(kind: type[Workload]) -> bytes:
    bases = [base for base in kind.__mro__ if issubclass(base, Workload) and base is not Workload]
    files = dict.fromkeys(inspect.getsourcefile(base) for base in bases)
    return b"".join(Path(file).read_bytes() for file in files if file and Path(file).is_file())


def _users_workload(reference: str) -> Workload:
    place, name = split_reference(reference)
    module = _module_from_file(Path(place)) if is_file_reference(place) else _module(place)
    if not hasattr(module, name):
        raise WorkloadError(f"no class {name!r} in {place}{_hint(name, module)}")
    found = getattr(module, name)
    if not isinstance(found, type) or not issubclass(found, Workload):
        kind = "another class" if isinstance(found, type) else f"of type {type(found).__name__}"
        raise WorkloadError(
            f"{reference} is {kind}; it must derive from trials.workload.Workload"
            f"{_hint(name, module)}"
        )
    missing = sorted(found.__abstractmethods__)
    if missing:
        raise WorkloadError(f"{reference} lacks the method(s) {', '.join(missing)}")
    return found()


def _hint(name: str, module: ModuleType) -> str:
    """Return what to say of the workloads that a module has under other names."""
    workloads = [
        public
        for public, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Workload) and value is not Workload
        if not public.startswith("_")
    ]
    return did_you_mean(name, workloads) if workloads else "; it has no workload"


def _module_from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"autotune_workload_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise WorkloadError(f"no module {name!r}; install it or check the name") from error
        raise
