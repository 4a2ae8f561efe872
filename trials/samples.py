"""Samples of a text as ids: windows of all of it, or a line each."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import cycle, islice

import torch
from torch import Tensor

LEAST_TOKENS = 2
"""A sample has something to tell from, and something to tell."""


class Samples(ABC):
    """Samples by their places, which go from 0 to the length less 1."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many there are."""

    @abstractmethod
    def __getitem__(self, place: int) -> Tensor:
        """Return a sample's ids, int64, shape (length,)."""

    @abstractmethod
    def longest(self, count: int) -> list[int]:
        """Return the places of the longest; again from the first where there are too few."""


class Windows(Samples):
    """Every run of so many ids of one text."""

    def __init__(self, ids: Tensor, length: int) -> None:
        """Keep a text's ids, shape (at least length,)."""
        self.ids = ids
        self.length = length

    def __len__(self) -> int:
        """See Samples."""
        return max(0, len(self.ids) - self.length + 1)

    def __getitem__(self, place: int) -> Tensor:
        """See Samples."""
        return self.ids[place : place + self.length].long()

    def longest(self, count: int) -> list[int]:
        """See Samples. All are as long."""
        return list(islice(cycle(range(min(count, len(self)))), count))


class Lines(Samples):
    """Texts of lengths of their own, cut at the most that a sample may have."""

    def __init__(self, lines: Sequence[Tensor], length: int) -> None:
        """Keep the ids of each line, shape (its length,), those that are too short left out."""
        self.lines = [line[:length] for line in lines if len(line) >= LEAST_TOKENS]

    def __len__(self) -> int:
        """See Samples."""
        return len(self.lines)

    def __getitem__(self, place: int) -> Tensor:
        """See Samples."""
        return self.lines[place].long()

    def longest(self, count: int) -> list[int]:
        """See Samples."""
        places = sorted(range(len(self)), key=lambda place: -len(self.lines[place]))
        return list(islice(cycle(places[:count]), count))


def byte_ids(text: bytes) -> Tensor:
    """Return a text's bytes as ids, uint8, shape (length,)."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)
