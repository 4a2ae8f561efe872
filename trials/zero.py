"""Training through DeepSpeed: ZeRO stages, and state offloaded to host memory or to disk.

The only door to deepspeed. Its C++ operators are compiled once per machine (minutes): see
``build_operators``. A trial never compiles them.
"""

import importlib.metadata
import importlib.util
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, is_tensor, nn
from torch.utils.cpp_extension import _get_build_directory

from search_spaces import OffloadTarget, TrainingConfig, too_much_for_disk
from search_spaces.deepspeed_document import (
    DeepSpeedDocument,
    deepspeed_document,
    steps_8bit_on_the_cpu,
)
from trials.engines import Engine
from trials.errors import TrialSetupError, WorkloadError
from trials.measurement import Place
from trials.optimizers import build_optimizer, state_tensors, tensor_bytes
from trials.swap_files import swapped_sizes

OPERATORS = {
    "cpu_adam": "CPUAdamBuilder",
    "pin_memory": "PinMemoryBuilder",
    "async_io": "AsyncIOBuilder",
    "deepspeed_shm_comm": "ShareMemCommBuilder",
}
"""Compiled operators and their builders in DeepSpeed, in the order in which they can be loaded.
The last one is for CPUs alone."""
_STAMP = "autotune-built"


class ZeroEngine(Engine):
    """DeepSpeed's engine around a model: stages 1 to 3, state here, in host memory or on disk."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        device: torch.device,
        *,
        learning_rate: float,
        nvme_folder: Path | None,
    ) -> None:
        """Take over a model that is on its device already.

        Args:
            model: Its parameters become DeepSpeed's.
            config: With ``zero_stage`` 1 or more.
            device: Where.
            learning_rate: As for AdamW.
            nvme_folder: For the files of an offload to disk; made if it is not there.

        Raises:
            TrialSetupError: DeepSpeed cannot be imported, or an operator is not built.
        """
        super().__init__(config, device)
        self._swap_folder = nvme_folder
        sizes = [parameter.numel() for parameter in model.parameters()]
        document = deepspeed_document(
            config,
            largest_parameter=max(sizes),
            num_parameters=sum(sizes),
            learning_rate=learning_rate,
            nvme_path=None if nvme_folder is None else str(nvme_folder),
            is_pinned=device.type == "cuda",
        )
        self._engine, self._optimizer = start_deepspeed(
            model, config, device, learning_rate, document=document, nvme_folder=nvme_folder
        )
        self.model = self._engine

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """See Engine."""
        self._engine.set_gradient_accumulation_boundary(is_last)
        self._engine.backward(loss, scale_wrt_gas=False)
        if not is_last:
            self._engine.step()

    def step(self) -> bool:
        """See Engine."""
        self._engine.step()
        self.optimizer_steps = self._engine.global_steps - self._engine.skipped_steps
        return bool(self._engine.was_step_applied() is False)

    def state_tensors(self) -> list[Tensor]:
        """See Engine. With the fp32 copies of parameters that DeepSpeed steps."""
        return self._here([*state_tensors(self._optimizer.optimizer), *self._copies()])

    def parameter_tensors(self) -> list[Tensor]:
        """See Engine. At stage 3 each parameter's own shard stands for it."""
        return self._here(self._shards())

    def gradient_tensors(self) -> list[Tensor]:
        """See Engine. DeepSpeed moves them into buffers of its own."""
        return self._here(self._gradients())

    def elsewhere(self) -> Iterator[tuple[str, Place, int]]:
        """See Engine."""
        yield from super().elsewhere()
        state = [*state_tensors(self._optimizer.optimizer), *self._copies()]
        kinds = ("parameters", "gradients", "optimizer_state")
        for kind, tensors in zip(kinds, (self._shards(), self._gradients(), state), strict=True):
            away = [tensor for tensor in tensors if tensor.device.type != self._device.type]
            pinned = [tensor for tensor in away if tensor.is_pinned()]
            yield kind, Place.PINNED_HOST, tensor_bytes(pinned)
            yield kind, Place.HOST, tensor_bytes(away) - tensor_bytes(pinned)
        if self._config.offload_target == OffloadTarget.NVME and self._swap_folder is not None:
            for kind, size in swapped_sizes(self._swap_folder):
                yield kind, Place.DISK, size

    def _gradients(self) -> list[Tensor]:
        averaged = getattr(self._optimizer, "averaged_gradients", None) or {}
        moved = [tensor for group in averaged.values() for tensor in group or ()]
        moved += [copy.grad for copy in self._copies() if copy.grad is not None]
        swapper = getattr(self._optimizer, "optimizer_swapper", None)
        for swapped in getattr(swapper, "swap_params_info", {}).values():
            moved += swapped.unswapped_gradients.values()  # too small to be worth a file
        return [*super().gradient_tensors(), *filter(is_tensor, moved)]

    def _copies(self) -> list[Tensor]:
        """Return the fp32 copies; at stage 3, weights in fp32 have one only where it is offloaded.

        Between steps stage 3 keeps it out of the optimizer's groups.
        """
        groups = self._optimizer.optimizer.param_groups
        copies = [tensor for group in groups for tensor in group["params"]]
        if self._config.offload_target != OffloadTarget.NONE:
            copies += getattr(self._optimizer, "fp32_partitioned_groups_flat", [])
        return copies

    def _shards(self) -> list[Tensor]:
        return [getattr(tensor, "ds_tensor", tensor) for tensor in super().parameter_tensors()]


def start_deepspeed(
    model: nn.Module,
    config: TrainingConfig,
    device: torch.device,
    learning_rate: float,
    *,
    document: DeepSpeedDocument | Path,
    nvme_folder: Path | None,
) -> tuple[Any, Any]:
    """Hand a model over to DeepSpeed; returns its engine and its optimizer.

    The process is in a group already, even of one: see ``join_ranks``.

    Args:
        model: On its device; its parameters become DeepSpeed's.
        config: Whose optimizer is built here, where DeepSpeed does not build its own.
        device: Where.
        learning_rate: As for AdamW.
        document: What DeepSpeed is told, or the file that says it.
        nvme_folder: Where the document has an offload to disk go; made if it is not there.

    Raises:
        TrialSetupError: DeepSpeed cannot be imported, or an operator is not built.
        WorkloadError: There is no room on that disk.
    """
    missing = missing_offload(config.offload_target) or missing_zero(device.type)
    if missing is not None:
        raise TrialSetupError(missing)
    if config.offload_target == OffloadTarget.NVME:
        _prepare_swap_folder(nvme_folder, sum(each.numel() for each in model.parameters()))
    _choose_accelerator(device.type)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    own = None
    if config.offload_target == OffloadTarget.NONE or steps_8bit_on_the_cpu(config):
        own = build_optimizer(trained, config, device, learning_rate)
    _load_operators()
    import deepspeed

    engine, optimizer, _, _ = deepspeed.initialize(
        model=model,
        optimizer=own,
        model_parameters=trained if own is None else None,
        config=str(document) if isinstance(document, Path) else document,
        dist_init_required=False,
    )
    return engine, optimizer


def autocast_of(engine: Any) -> AbstractContextManager[None]:
    """Return the precision under which an engine runs its model."""
    from deepspeed.runtime.torch_autocast import autocast_if_enabled

    found: AbstractContextManager[None] = autocast_if_enabled(engine)
    return found


def _prepare_swap_folder(folder: Path | None, num_parameters: int) -> None:
    """Make the folder that a trial swaps to.

    Raises:
        WorkloadError: It cannot be made, or its disk is too small.
    """
    trouble = missing_nvme_folder(None if folder is None else folder.parent)
    if trouble is None and folder is not None:
        free = shutil.disk_usage(folder.parent).free
        trouble = too_much_for_disk(num_parameters, free_bytes=free)
    if trouble is not None:
        raise WorkloadError(trouble)
    assert folder is not None
    folder.mkdir(exist_ok=True)


def watch_disk(watched: Callable[[], AbstractContextManager[object]]) -> None:
    """Have every wait for a disk in this process happen within a context of its own.

    DeepSpeed reads and writes in threads of its own; ``wait`` is where training stops for them.
    """
    from deepspeed.ops.op_builder.builder import OpBuilder

    kind = OpBuilder._loaded_ops["async_io"].aio_handle
    wait = kind.wait

    def wait_watched(handle: Any) -> Any:
        with watched():
            return wait(handle)

    kind.wait = wait_watched


def missing_zero(device_kind: str = "cpu", what: str = "zero_stage") -> str | None:
    """Return why DeepSpeed cannot train on a kind of device; None if it can. Imports nothing.

    Args:
        device_kind: ``cpu`` or ``cuda``.
        what: Needs it, for people.
    """
    if not _is_installed():
        return f"{what} needs deepspeed, which is not installed here; pip install deepspeed"
    if device_kind == "cuda":
        return None
    return _why_not_built(["deepspeed_shm_comm"], f"{what} on a CPU")


def missing_offload(target: OffloadTarget) -> str | None:
    """Return why state cannot be offloaded to a target from here; None if it can."""
    if target == OffloadTarget.NONE:
        return None
    if not _is_installed():
        return (
            f"offload_target={target} needs deepspeed, which is not installed here; "
            "pip install deepspeed"
        )
    disk = ["pin_memory", "async_io"] if target == OffloadTarget.NVME else []
    operators = ["cpu_adam", *disk]
    return _why_not_built(operators, f"offload_target={target}")


def missing_nvme_folder(folder: Path | None) -> str | None:
    """Return what is wrong with a folder to swap to; None if nothing is."""
    if folder is None:
        return "offload_target=nvme needs a folder on a fast local disk; give --nvme-path FOLDER"
    if not folder.exists():
        return f"--nvme-path {folder} does not exist; make it, or give another"
    if not folder.is_dir():
        return f"--nvme-path {folder} is no folder; give one"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"--nvme-path {folder} cannot be written; give another, or change its permissions"
    return None


def build_operators(report: Callable[[str], None]) -> list[str]:
    """Compile what DeepSpeed needs, once; returns what went wrong, one line per operator.

    Args:
        report: Told each operator before it is compiled, which takes minutes.
    """
    names = [n for n in OPERATORS if n != "deepspeed_shm_comm" or not torch.cuda.is_available()]
    return [trouble for name in names if (trouble := _build(name, report)) is not None]


def _build(name: str, report: Callable[[str], None]) -> str | None:
    if _is_built(name):
        return None
    report(name)
    _choose_accelerator("cuda" if torch.cuda.is_available() else "cpu")
    try:
        folder = _folder_of(name)
        lock = folder / "lock"
        if lock.exists():  # torch would wait for it without end and without a word
            return f"{name} is being built elsewhere, or its building was killed: remove {lock}"
        from deepspeed.accelerator import get_accelerator

        get_accelerator().create_op_builder(OPERATORS[name]).load(verbose=False)
        if not (folder / f"{name}.so").is_file():
            return f"{name} came with DeepSpeed, compiled for another place: install it without"
        (folder / _STAMP).write_text(_versions())
    except Exception as error:  # whatever a compiler, ninja or DeepSpeed's own checks raise
        return f"{name} cannot be built: {_first_line(error)}"
    return None


def _load_operators() -> None:
    """Give DeepSpeed the operators that are built, before it looks for them itself.

    It would run ninja, compile test programs and take a lock file for each, in every trial; a
    trial that is killed then leaves the lock, and all later ones wait for it until their deadline.
    """
    from deepspeed.ops.op_builder.builder import OpBuilder
    from deepspeed.ops.op_builder.pin_memory import PinMemoryBuilder

    for name in filter(_is_built, OPERATORS):
        place = _folder_of(name) / f"{name}.so"
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        OpBuilder._loaded_ops[name] = module
        if name == "pin_memory":
            PinMemoryBuilder().load()  # makes its symbols known to async_io


def _first_line(error: BaseException) -> str:
    """Return the line of the first fault; what it led to says nothing of the cause."""
    while error.__context__ is not None:
        error = error.__context__
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _why_not_built(names: Sequence[str], what: str) -> str | None:
    if all(_is_built(name) for name in names):
        return None
    return (
        f"{what} needs DeepSpeed's operators, which are not built here yet; build them with "
        "autotune doctor --build (minutes, once)"
    )


def _is_built(name: str) -> bool:
    try:
        folder = _folder_of(name)
    except OSError:  # torch makes the folder, and may not be allowed to
        return False
    stamp = folder / _STAMP
    is_there = (folder / f"{name}.so").is_file() and stamp.is_file()
    return is_there and stamp.read_text() == _versions()


def _folder_of(name: str) -> Path:
    return Path(_get_build_directory(name, False))


def _versions() -> str:
    return f"deepspeed {importlib.metadata.version('deepspeed')}, torch {torch.__version__}"


def _is_installed() -> bool:
    return importlib.util.find_spec("deepspeed") is not None


def _choose_accelerator(device_kind: str) -> None:
    """Settle before DeepSpeed is imported what it would else guess, and keep it quiet."""
    # Loading an operator looks for ninja, which lies beside a Python that may not be on the PATH.
    programs = str(Path(sys.executable).parent)
    if programs not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([programs, os.environ.get("PATH", "")])
    os.environ["DS_ACCELERATOR"] = device_kind
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
