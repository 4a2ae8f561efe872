"""How a training step is taken: forward, backward, optimizer step. Plain PyTorch, or another."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu

from search_spaces import ActivationOffload, AmpDtype, Switch, TrainingConfig
from trials.low_bit import host_copies
from trials.measurement import Place
from trials.optimizers import build_optimizer, state_tensors, tensor_bytes
from trials.ranks import Replica

AUTOCAST_DTYPES = {AmpDtype.BF16: torch.bfloat16, AmpDtype.FP16: torch.float16}


class Engine(ABC):
    """A model and its optimizer in training.

    Attributes:
        model: Called by the workload's loss.
        optimizer_steps: Steps that the optimizer really took.
    """

    model: nn.Module
    optimizer_steps: int = 0
    _offloaded: "_OffloadedActivations | None" = None

    def __init__(self, config: TrainingConfig, device: torch.device) -> None:
        """Take steps under a config on a device."""
        self._config = config
        self._device = device

    @contextmanager
    def forward(self, *, is_last: bool = True) -> Iterator[None]:
        """Compute a forward pass as the config says: its data type, and where activations go.

        Args:
            is_last: Whether it is the accumulation window's last: ranks then exchange gradients.
        """
        if isinstance(self.model, Replica):
            self.model.require_backward_grad_sync = is_last
        dtype = AUTOCAST_DTYPES.get(self._config.amp_dtype)
        with ExitStack() as contexts:
            if self._config.activation_offload == ActivationOffload.CPU:
                self._offloaded = _OffloadedActivations(is_pinned=self._device.type == "cuda")
                contexts.enter_context(self._offloaded)
            contexts.enter_context(
                torch.autocast(self._device.type, dtype=dtype, enabled=dtype is not None)
            )
            yield

    @abstractmethod
    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """Add a micro-batch's gradients.

        Args:
            loss: Its share of the window's mean loss: a scalar.
            is_last: Whether it is the accumulation window's last.
        """

    @abstractmethod
    def step(self) -> bool:
        """Apply the gradients; returns whether a gradient scaler skipped the step."""

    @abstractmethod
    def state_tensors(self) -> list[Tensor]:
        """Return the tensors of optimizer state in the device's memory."""

    def state_bytes(self) -> int:
        """Return their bytes."""
        return tensor_bytes(self.state_tensors())

    def parameter_tensors(self) -> list[Tensor]:
        """Return the tensors that hold this process's parameters and buffers."""
        return [*self.model.parameters(), *self.model.buffers()]

    def gradient_tensors(self) -> list[Tensor]:
        """Return the gradients that this process holds."""
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    def gathered_tensors(self) -> list[Tensor]:
        """Return copies of parameters that other processes hold, as far as they are alive."""
        return []

    def elsewhere(self) -> Iterator[tuple[str, Place, int]]:
        """Yield kind, place and bytes of what lies outside the device's memory."""
        if self._offloaded is not None and self._device.type != "cpu":
            yield "activations", Place.PINNED_HOST, self._offloaded.kept_bytes

    def _here(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return those in the device's memory; others are offloaded."""
        return [tensor for tensor in tensors if tensor.device.type == self._device.type]

    def _away(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return those in another memory than the device's."""
        return [tensor for tensor in tensors if tensor.device.type != self._device.type]


class _OffloadedActivations(save_on_cpu):
    """Moves what a forward pass saves to the host, and counts it."""

    def __init__(self, *, is_pinned: bool) -> None:
        super().__init__(pin_memory=is_pinned)
        self.kept_bytes = 0
        pack = self.pack_hook

        def pack_and_count(tensor: Tensor) -> Any:
            self.kept_bytes += tensor.nbytes
            return pack(tensor)

        self.pack_hook = pack_and_count


class PlainEngine(Engine):
    """PyTorch alone: autocast, a gradient scaler under fp16, an optimizer."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        device: torch.device,
        learning_rate: float,
    ) -> None:
        """Take over a model that is on its device already.

        Raises:
            TrialSetupError: The optimizer's package cannot be imported.
        """
        super().__init__(config, device)
        self.model = model
        if config.compile == Switch.ON:
            model.compile()
        self.optimizer = build_optimizer(model.parameters(), config, device, learning_rate)
        is_scaled = config.amp_dtype == AmpDtype.FP16
        self._scaler = torch.amp.GradScaler(device.type, enabled=is_scaled)
        after_step(self.optimizer, self._count_step)

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """See Engine."""
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(self) -> bool:
        """See Engine."""
        before = self.optimizer_steps
        self._scaler.step(self.optimizer)
        self._scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return self.optimizer_steps == before

    def unscale(self) -> None:
        """Bring gradients to their own size before a step, where a scaler made them larger."""
        self._scaler.unscale_(self.optimizer)

    def state_tensors(self) -> list[Tensor]:
        """See Engine."""
        return self._here(state_tensors(self.optimizer))

    def elsewhere(self) -> Iterator[tuple[str, Place, int]]:
        """See Engine."""
        yield from super().elsewhere()
        away = self._away(state_tensors(self.optimizer))
        yield "optimizer_state", Place.HOST, tensor_bytes(away)
        for kind, tensors in host_copies(self.optimizer).items():
            yield kind, Place.PINNED_HOST, tensor_bytes(tensors)

    def _count_step(self) -> None:
        self.optimizer_steps += 1


class BackwardEngine(Engine):
    """Steps each parameter within the backward pass, and frees its gradient at once."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        device: torch.device,
        learning_rate: float,
    ) -> None:
        """Take over a model that is on its device already.

        Raises:
            TrialSetupError: The optimizer's package cannot be imported.
        """
        super().__init__(config, device)
        self.model = model
        if config.compile == Switch.ON:
            model.compile()
        self._optimizers = {
            parameter: build_optimizer([parameter], config, device, learning_rate)
            for parameter in model.parameters()
            if parameter.requires_grad
        }
        self._has_stepped = False
        for parameter in self._optimizers:
            parameter.register_post_accumulate_grad_hook(self._step_parameter)  # type: ignore[no-untyped-call]

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """See Engine."""
        assert is_last, "the gradients of an earlier micro-batch are used up"
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> bool:
        """See Engine."""
        has_stepped, self._has_stepped = self._has_stepped, False
        self.optimizer_steps += has_stepped
        return not has_stepped

    def state_tensors(self) -> list[Tensor]:
        """See Engine."""
        each = self._optimizers.values()
        return self._here([tensor for one in each for tensor in state_tensors(one)])

    def _step_parameter(self, parameter: Tensor) -> None:
        optimizer = self._optimizers[parameter]  # type: ignore[index]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self._has_stepped = True


def after_step(optimizer: torch.optim.Optimizer, call: Callable[[], None]) -> None:
    """Have a function called after each step; not all optimizers keep torch's hooks."""
    step = optimizer.step

    def counted(_: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        call()
        return result

    # A method, since a learning rate scheduler asks for its function.
    optimizer.step = MethodType(counted, optimizer)  # type: ignore[method-assign]


def set_matmul_precision(config: TrainingConfig) -> None:
    """Make fp32 on CUDA what the config says: full, or TensorFloat-32. Once per process."""
    is_tf32 = config.amp_dtype == AmpDtype.TF32
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = is_tf32
