"""A workload whose gradients overflow fp16 at a gradient scaler's first scale."""

from tests.assets.workloads.small import Small


class Steep(Small):
    def loss(self, model, batch):
        return super().loss(model, batch) * 300.0
