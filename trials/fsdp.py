"""Sharding by PyTorch alone: ``fully_shard``, for who has no DeepSpeed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard

from search_spaces import OffloadTarget, TrainingConfig
from trials.engines import PlainEngine
from trials.measurement import Place
from trials.optimizers import tensor_bytes
from trials.ranks import Ranks


class FsdpEngine(PlainEngine):
    """``fully_shard`` over each block and what is left: stage 2 keeps parameters, 3 frees them.

    Weights and the reduction of gradients stay fp32, as in the other engines; autocast chooses
    the data type within.
    """

    def __init__(
        self,
        model: nn.Module,
        blocks: Sequence[nn.Module],
        config: TrainingConfig,
        ranks: Ranks,
        learning_rate: float,
    ) -> None:
        """Take over a model that is on its device already.

        Args:
            model: Its parameters become shards.
            blocks: Gathered one at a time.
            config: With ``zero_stage`` 2 or 3.
            ranks: The group that shards.
            learning_rate: As for AdamW.
        """
        device = ranks.device
        mesh = DeviceMesh(device.type, torch.arange(ranks.count))
        policy = OffloadPolicy()
        if config.offload_target == OffloadTarget.CPU:
            policy = CPUOffloadPolicy(pin_memory=device.type == "cuda")
        for module in (*blocks, model):
            fully_shard(
                module,
                mesh=mesh,
                reshard_after_forward=config.zero_stage == 3,
                offload_policy=policy,
            )
        super().__init__(model, config, device, learning_rate)

    def parameter_tensors(self) -> list[Tensor]:
        """See Engine. Each rank holds its shards."""
        return self._here(super().parameter_tensors())

    def gradient_tensors(self) -> list[Tensor]:
        """See Engine. Whole ones are held by ``fully_shard`` until ranks exchange them."""
        held: list[Tensor | None] = [*super().gradient_tensors()]
        for parameter in self._sharded_parameters():
            whole = getattr(parameter, "_unsharded_param", None)
            held += [parameter.unsharded_accumulated_grad, None if whole is None else whole.grad]
        return self._here(tensor for tensor in held if tensor is not None)

    def gathered_tensors(self) -> list[Tensor]:
        """See Engine. Those that are freed have no storage."""
        each = self._sharded_parameters()
        return [tensor for parameter in each for tensor in parameter.all_gather_outputs]

    def elsewhere(self) -> Iterator[tuple[str, Place, int]]:
        """See Engine."""
        yield from super().elsewhere()
        held = {
            "parameters": super().parameter_tensors(),
            "gradients": super().gradient_tensors(),
        }
        for kind, tensors in held.items():
            yield kind, Place.PINNED_HOST, tensor_bytes(self._away(tensors))

    def _sharded_parameters(self) -> Iterator[Any]:
        """Yield what ``fully_shard`` keeps of each parameter; it has no public way to ask."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                group = module._get_fsdp_state()._fsdp_param_group
                yield from () if group is None else group.fsdp_params

    @contextmanager
    def forward(self, *, is_last: bool = True) -> Iterator[None]:
        """See Engine."""
        assert isinstance(self.model, FSDPModule)
        self.model.set_requires_gradient_sync(is_last)
        with super().forward(is_last=is_last):
            yield
