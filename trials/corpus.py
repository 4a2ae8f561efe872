"""Text for the language workloads: Python's own sources, which every machine has, or a file.

A tenth is held out for evaluation: every tenth of the sources, the end of a file.
"""

import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trials.errors import WorkloadError

NUM_BYTES = 256
"""Ids of a byte: the vocabulary of text that no tokenizer has read."""
_SKIPPED_FOLDERS = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
_LIMIT_BYTES = 4 * 2**20
_LEAST_BYTES = 2**17


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Two texts: what is trained on, and what is held out."""

    training: bytes
    held_out: bytes


def read_corpus() -> Corpus:
    """Return the sources of Python's own standard library.

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
    return Corpus(training=bytes(parts[0]), held_out=bytes(parts[1]))


def read_text(file: Path) -> Corpus:
    """Return a file's text, about the last tenth of it held out, in whole lines if it has some.

    Raises:
        WorkloadError: It is no text in UTF-8.
    """
    content = file.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise WorkloadError(
            f"text={str(file)!r} is not in UTF-8: byte {error.start} is "
            f"0x{content[error.start]:02x}; convert it, as with iconv -t utf-8"
        ) from error
    tenth = len(content) * 9 // 10
    cut = content.find(b"\n", tenth) + 1
    if cut in (0, len(content)):
        cut = content.rfind(b"\n", 0, tenth) + 1 or tenth
    return Corpus(training=content[:cut], held_out=content[cut:])


def _sources(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        yield from (Path(parent, name) for name in sorted(files) if name.endswith(".py"))
