"""A user's workload as people write them: dropout, tied weights and frozen layers."""

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from trials.workload import Workload

VOCABULARY, WIDTH, LENGTH = 64, 32, 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.2)) for _ in range(4)
        )
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.out = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens):
        hidden = self.frozen(self.embedding(tokens))
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return self.out(hidden)


class Small(Workload):
    unit = "tokens"
    quality_name = "accuracy"
    quality_direction = "maximize"
    quality_samples = 32

    def build(self):
        return Model()

    def blocks(self, model):
        return list(model.layers)

    def batches(self, micro_batch_size, seed):
        order = random.Random(seed)
        while True:
            yield torch.tensor(
                [[order.randrange(VOCABULARY)] * LENGTH for _ in range(micro_batch_size)]
            )

    def loss(self, model, batch):
        logits = model(batch)
        return functional.cross_entropy(logits.flatten(0, 1), batch.flatten(), reduction="sum")

    def count(self, batch):
        return batch.numel()

    def evaluate(self, model, device):
        tokens = torch.arange(VOCABULARY, device=device)[:, None]
        return float((model(tokens).argmax(-1) == tokens).float().mean())


class NoBlocks(Small):
    def blocks(self, model):
        return ()


class FindsBlocks(Small):
    blocks = Workload.blocks


class RaisesInBuild(Small):
    def build(self):
        raise ZeroDivisionError("no width given")


class LossIsNan(Small):
    def loss(self, model, batch):
        return super().loss(model, batch) * float("nan")


class WrongBatch(Small):
    def batches(self, micro_batch_size, seed):
        yield from super().batches(micro_batch_size + 1, seed)


class Frozen(Small):
    def build(self):
        return Model().requires_grad_(False)


class Prints(Small):
    def build(self):
        for stream in (sys.stdout, sys.stderr):
            print("RuntimeError: CUDA error: out of memory, only words here", file=stream)
        return super().build()


class Exits(Small):
    def build(self):
        raise SystemExit(3)


class EndsForMemory(Small):
    """Ended from within, as a library in C++ does that cannot allocate."""

    def loss(self, model, batch):
        os.write(2, b"Error out of memory at line 534 in file /src/pythonInterface.cpp\n")
        os._exit(1)


class Grows(Small):
    """Batches that are longer than what is said to be the worst."""

    def batches(self, micro_batch_size, seed):
        while True:
            yield torch.zeros(micro_batch_size, 64 * LENGTH, dtype=torch.long)

    def worst_batch(self, micro_batch_size):
        return next(super().batches(micro_batch_size, seed=0))


class NeedsMore(Small):
    """A worst-case batch far larger than a typical one."""

    def worst_batch(self, micro_batch_size):
        return torch.zeros(micro_batch_size, 64 * LENGTH, dtype=torch.long)


class Slow(Small):
    """Half a second for each micro-batch: long enough to be interrupted."""

    def loss(self, model, batch):
        time.sleep(0.5)
        return super().loss(model, batch)


class SlowLoader(Small):
    """0.217 s until each batch is there, 0.08 s of compute: a loader with too few workers."""

    def batches(self, micro_batch_size, seed):
        for batch in super().batches(micro_batch_size, seed):
            time.sleep(0.217)
            yield batch

    def loss(self, model, batch):
        time.sleep(0.08)
        return super().loss(model, batch)


class RefusesTheProfiler(Small):
    """Runs out of memory where it is profiled, and nowhere else."""

    def loss(self, model, batch):
        if torch.autograd._profiler_enabled():
            raise MemoryError("profiled")
        return super().loss(model, batch)


class SecondRankRunsOut(Small):
    """The second process of a group takes more memory than any budget, the others wait for it."""

    def loss(self, model, batch):
        if os.environ.get("RANK") == "1":
            torch.empty(2**36).fill_(1.0)
        return super().loss(model, batch)


class SecondRankDies(Small):
    def loss(self, model, batch):
        if os.environ.get("RANK") == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(model, batch)


class OnOneMachine(Small):
    """Needs no program of a cluster, and has its settings as they are."""

    def build(self):
        assert shutil.which("ssh") is None and shutil.which("pdsh") is None
        assert os.environ["NCCL_IB_DISABLE"] == "1", "a setting of the cluster is lost"
        assert not os.path.exists("/job/hostfile")
        return super().build()


class LossIsAFloat(Small):
    def loss(self, model, batch):
        return super().loss(model, batch).item()


class BreaksInTorch(Small):
    def loss(self, model, batch):
        return super().loss(model, batch.float())


class BreaksInBackward(Small):
    def loss(self, model, batch):
        hidden = model.embedding(batch).exp()
        loss = hidden.sum()
        hidden += 1
        return loss


class TooLargeToRehearse(LossIsAFloat):
    def build(self):
        model = Model()
        model.unused = nn.Parameter(torch.empty(50_000_000))
        return model


class EvaluatesToNothing(Small):
    def evaluate(self, model, device):
        return None


class EvaluatesInBatches(Small):
    """Takes 16 MiB for each sample that it evaluates at once."""

    evaluation_batch_size = 64

    def evaluate(self, model, device):
        torch.ones(self.evaluation_batch_size, 2**22)
        return super().evaluate(model, device)


class EvaluatesInTooMuch(EvaluatesInBatches):
    def evaluate(self, model, device):
        torch.ones(2**36)


class Halved(Small):
    """Holds its model in fp16, as a model that is loaded in its checkpoint's dtype."""

    def build(self):
        return super().build().half()


class NotAWorkload:
    pass


class LacksMethods(Workload):
    def build(self):
        return Model()


class RaisesInEvaluate(Small):
    def evaluate(self, model, device):
        raise KeyError("held out")


class RaisesOnceTrained(Small):
    """An evaluation whose fault a first look before the study does not show."""

    num_losses = 0

    def loss(self, model, batch):
        self.num_losses += 1
        return super().loss(model, batch)

    def evaluate(self, model, device):
        if self.num_losses > 1:
            raise KeyError("held out")
        return super().evaluate(model, device)


class EvaluatesForEver(Small):
    """An evaluation that no first look before the study can wait for."""

    def evaluate(self, model, device):
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                continue


class GrowsWhenRunAgain(Small):
    """The first config that is measured a second time needs far more than it did at first."""

    def worst_batch(self, micro_batch_size):
        folder = Path(os.environ["GROWS_FOLDER"])
        mark, grown = folder / str(micro_batch_size), folder / "grown"
        if mark.exists() and not grown.exists():
            grown.touch()
            self.held = torch.ones(2**23)
        mark.touch()
        return super().worst_batch(micro_batch_size)
