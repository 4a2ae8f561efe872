"""Text that every machine has: the sources beside the interpreter, for the language workloads.

Every tenth file is held out for evaluation.
"""

import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trials.errors import WorkloadError

NUM_BYTES = 256
"""Ids of a byte: the vocabulary of text that no tokenizer has read."""
_SKIPPED_FOLDERS = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
_LIMIT_BYTES = 4 * 2**20
_LEAST_BYTES = 2**17


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Two texts as ids: what is trained on, and what is held out; shape (length,) each."""

    training: Tensor
    held_out: Tensor


def read_corpus() -> Corpus:
    """Return the bytes of Python's own standard library, as uint8.

    Raises:
        WorkloadError: Too few sources beside the interpreter.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    parts: tuple[bytearray, bytearray] = (bytearray(), bytearray())
    for index, path in enumerate(_sources(folder)):
        parts[index % 10 == 9].extend(path.read_bytes())
        if len(parts[0]) > _LIMIT_BYTES:
            break
    if min(len(part) for part in parts) < _LEAST_BYTES:
        raise WorkloadError(
            "language workloads train on Python's own sources, and "
            f"{str(folder)!r} holds too few; "
            "use an interpreter that ships its standard library as .py files"
        )
    training, held_out = (torch.frombuffer(part, dtype=torch.uint8) for part in parts)
    return Corpus(training=training, held_out=held_out)


def _sources(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        yield from (Path(parent, name) for name in sorted(files) if name.endswith(".py"))
