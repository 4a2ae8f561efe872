"""A vision transformer on scikit-learn's digits: 1797 real images of 8 x 8 pixels.

Only the file of the images is read. Importing scikit-learn for it would take seconds, and each
trial is a process of its own. Every fifth image is held out for evaluation.
"""

import csv
import gzip
import importlib.metadata
import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.errors import WorkloadError
from trials.measurement import Direction
from trials.transformer import Block
from trials.vision_sizes import SIZES, VitSize
from trials.workload import Batch, Workload

SIDE = 8
NUM_CLASSES = 10
MEAN, DEVIATION = 4.9, 6.0
"""Of the pixels, which go from 0 to 16; unlike raw ones, normalised images are learned soon."""
_FILE = "digits.csv.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """Images (number, 8, 8), normalised, and what digit each shows (number,)."""

    images: Tensor
    labels: Tensor

    def at(self, places: slice | list[int] | Tensor) -> "Digits":
        """Return some of them."""
        return Digits(images=self.images[places], labels=self.labels[places])


class Vit(nn.Module):
    """Vision transformer; the class is read from the mean of the patches.

    Initialised as torch does: positions of unit size are learned from several times sooner than
    the small ones that are usual.
    """

    def __init__(self, size: VitSize) -> None:
        """Make embeddings, blocks and the classifier."""
        super().__init__()
        self.patch = size.patch
        self.patch_embedding = nn.Linear(size.patch**2, size.width)
        self.position_embedding = nn.Embedding((SIDE // size.patch) ** 2, size.width)
        self.blocks = nn.ModuleList(
            Block(size.width, size.num_heads, is_causal=False) for _ in range(size.num_blocks)
        )
        self.norm = nn.LayerNorm(size.width)
        self.classifier = nn.Linear(size.width, NUM_CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 8, 8) to logits (batch, 10)."""
        patches = functional.unfold(images[:, None], self.patch, stride=self.patch)
        hidden = self.patch_embedding(patches.transpose(1, 2)) + self.position_embedding.weight
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.classifier(self.norm(hidden).mean(1))
        return logits


class DigitsWorkload(Workload):
    """Which digit an image shows.

    Attributes:
        training: What is trained on.
        held_out: What is evaluated on.
    """

    def __init__(self) -> None:
        """Read the images.

        Raises:
            WorkloadError: scikit-learn, which ships them, is not installed.
        """
        digits = _read_digits()
        is_held_out = torch.arange(len(digits.labels)) % 5 == 4
        self.training, self.held_out = digits.at(~is_held_out), digits.at(is_held_out)

    @abstractmethod
    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """Map prepared images to logits (batch, classes)."""

    def prepared(self, digits: Digits) -> tuple[Tensor, Tensor]:
        """Return images as the model takes them, and their classes (batch,)."""
        return digits.images, digits.labels

    def batches(self, micro_batch_size: int, seed: int) -> Iterator[Batch]:
        """See Workload. Each epoch has every image once, in an order of its own."""
        places = self._shuffled(seed)
        while True:
            yield self.prepared(self.training.at(list(islice(places, micro_batch_size))))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """See Workload."""
        images, labels = batch
        return functional.cross_entropy(
            self.logits(model, images).float(), labels, reduction="sum"
        )

    def _shuffled(self, seed: int) -> Iterator[int]:
        order = random.Random(seed)
        places = list(range(len(self.training.labels)))
        while True:
            order.shuffle(places)
            yield from places


class Vision(DigitsWorkload):
    """The digits as they are; quality is the share of held-out images told right."""

    quality_name = "accuracy"
    quality_direction = Direction.MAXIMIZE
    quality_samples = 1024
    learning_rate = 2e-3
    evaluation_batch_size: int = 512

    def __init__(self, size_name: str = "") -> None:
        """Read the images for a size, tiny unless named.

        Raises:
            WorkloadError: scikit-learn, which ships them, is not installed.
        """
        super().__init__()
        self.size = SIZES[size_name or "tiny"]

    def build(self) -> nn.Module:
        """See Workload."""
        return Vit(self.size)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """See Workload."""
        assert isinstance(model, Vit)
        return list(model.blocks)

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """See DigitsWorkload."""
        logits: Tensor = model(images)
        return logits

    def evaluate(self, model: nn.Module, device: torch.device) -> float:
        """See Workload."""
        parts = torch.split(self.held_out.images, self.evaluation_batch_size)
        answers = torch.cat([model(images.to(device)).argmax(-1).cpu() for images in parts])
        return float((answers == self.held_out.labels).float().mean())


def _read_digits() -> Digits:
    with gzip.open(_digits_file(), "rt") as text:
        rows = torch.tensor([[float(value) for value in row] for row in csv.reader(text)])
    images = rows[:, :-1].reshape(-1, SIDE, SIDE)
    return Digits(images=(images - MEAN) / DEVIATION, labels=rows[:, -1].long())


def _digits_file() -> Path:
    try:
        files = importlib.metadata.files("scikit-learn") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == _FILE:
            return Path(str(file.locate()))
    raise WorkloadError(
        "images to train on are those that scikit-learn ships, and it is not installed here; "
        "install it with: pip install 'autotune[vision]'"
    )
