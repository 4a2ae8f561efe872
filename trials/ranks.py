"""Processes that train one model together, a device each, and the group that they form."""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The group that this process trains in; a group of one talks to nobody.

    Attributes:
        rank: Of this process, from 0.
        count: Processes of the group.
        device: Of this process.
    """

    rank: int
    count: int
    device: torch.device

    def total(self, number: int) -> int:
        """Return the sum of a number over all ranks."""
        if self.count == 1:
            return number
        tensor = torch.tensor(number, device=self.device)
        dist.all_reduce(tensor)
        return int(tensor)

    def agree(self, is_so: bool) -> bool:
        """Return what the first rank says: all must take as many steps as it does."""
        if self.count == 1:
            return is_so
        tensor = torch.tensor(int(is_so), device=self.device)
        dist.broadcast(tensor, src=0)
        return bool(tensor)


def join_ranks(
    rank: int, count: int, device: torch.device, rendezvous: str | None, deadline_seconds: float
) -> Ranks:
    """Join the group that a trial's processes train in, without opening a port of our own.

    Args:
        rank: Of this process.
        count: Processes of the group.
        device: Of this process.
        rendezvous: File by which they find each other; None for a group of one.
        deadline_seconds: Nobody waits longer for another.
    """
    index = device.index or 0  # which GPU DeepSpeed takes
    variables = {"RANK": rank, "LOCAL_RANK": index, "WORLD_SIZE": count, "MASTER_PORT": 0}
    os.environ.update({name: str(value) for name, value in variables.items()})
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    store = (
        dist.HashStore()  # type: ignore[attr-defined]
        if rendezvous is None
        else dist.FileStore(rendezvous, count)  # type: ignore[attr-defined]
    )
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        rank=rank,
        world_size=count,
        store=store,
        timeout=timedelta(seconds=deadline_seconds),
    )
    return Ranks(rank=rank, count=count, device=device)


class Replica(DistributedDataParallel):
    """A model whose gradients are averaged over the ranks; its other attributes show through."""

    def __getattr__(self, name: str) -> Any:
        """Return the wrapper's attribute, or the model's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def replicated(model: nn.Module, device: torch.device) -> Replica:
    """Return a model that averages its gradients over the ranks after a window's last backward."""
    on_gpu = [device] if device.type == "cuda" else None
    return Replica(model, device_ids=on_gpu, gradient_as_bucket_view=True)
