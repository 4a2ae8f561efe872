"""Models of published figures whose weights are 16 bits wide: workloads for ``estimate`` alone."""

from pathlib import Path

import torch
from torch import nn

from trials.huggingface import CausalModel, SequenceToSequenceModel
from trials.model_reference import parse_model
from trials.pretrained import Pretrained

HERE = Path(__file__).parent
ASSETS = HERE.parents[1] / "assets" / "models"
T5_3B = f"{HERE / 't5_3b.json'}?sequence=64"
LLAMA2_7B = f"{ASSETS / 'llama2_7b.json'}?sequence=512"
VIT_H = str(HERE / "vit_huge_patch14_224.json")


class T5In16Bits(SequenceToSequenceModel):
    """T5-3B in bf16, as DeepSpeed's own 16-bit modes keep it."""

    def __init__(self) -> None:
        reference = parse_model(T5_3B)
        super().__init__(Pretrained(reference), reference)

    def build(self) -> nn.Module:
        return super().build().to(torch.bfloat16)

    def outline(self) -> nn.Module:
        return super().outline().to(torch.bfloat16)


class Llama2In16Bits(CausalModel):
    """Llama2-7B in bf16, as torchtune's full bf16 has it."""

    def __init__(self) -> None:
        reference = parse_model(LLAMA2_7B)
        super().__init__(Pretrained(reference), reference)

    def build(self) -> nn.Module:
        return super().build().to(torch.bfloat16)

    def outline(self) -> nn.Module:
        return super().outline().to(torch.bfloat16)
