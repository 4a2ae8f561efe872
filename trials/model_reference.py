"""What ``huggingface:PATH?OPTION=VALUE`` names. No torch: it is refused before any is loaded."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from search_spaces import did_you_mean
from trials.errors import WorkloadError

HUGGINGFACE = "huggingface"
"""The built-in workload that names a model by a path in place of a size."""
LARGEST_TEXT_BYTES = 256 * 2**20
"""Of a text file: each trial reads it, and trains on little of it."""
OPTIONS = ("task", "sequence", "text", "packing")
_FORM = f"{HUGGINGFACE}:PATH, the path of a config.json or of its folder"
_PACKING = {"on": True, "off": False}


class ModelTask(StrEnum):
    """What a model is trained to do.

    causal    tells the next token from those before it, as GPT-2 and Llama do
    masked    tells tokens that were hidden, as BERT does
    seq2seq   reads a text and writes another one, as T5 and BART do
    vision    tells what an image shows, as ViT does
    """

    CAUSAL = "causal"
    MASKED = "masked"
    SEQ2SEQ = "seq2seq"
    VISION = "vision"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReference:
    """A model on this machine, and what it is trained on.

    Attributes:
        config_file: The model's config.
        folder: Where weights and tokenizer lie, if there are any; None for a config by itself,
            under a name that is not ``config.json``.
        task: What to train it for; None for what the config says.
        sequence: Tokens per sample at most; None for as many as the model allows, up to 1024.
        text: The file to train on; None for Python's own sources.
        is_packed: Samples are windows of the whole text; else each line is one, padded.
    """

    config_file: Path
    folder: Path | None
    task: ModelTask | None = None
    sequence: int | None = None
    text: Path | None = None
    is_packed: bool = True


def parse_model(place: str) -> ModelReference:
    """Return what follows ``huggingface:``, read.

    Raises:
        WorkloadError: No such path, no config in it, or an option that says nothing.
    """
    name, _, rest = place.partition("?")
    if not name:
        raise WorkloadError(f"{HUGGINGFACE} names no model; write {_FORM}")
    path = Path(name)
    if not path.exists():
        raise WorkloadError(
            f"no such path {name!r}: give {_FORM}, on this machine; nothing is downloaded"
        )
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise WorkloadError(f"the folder {name!r} has no config.json; give {_FORM}")
    options = _options(rest)
    return ModelReference(
        config_file=file,
        folder=file.parent if file.name == "config.json" else None,
        task=_task(options.get("task")),
        sequence=_sequence(options.get("sequence")),
        text=_text(options.get("text")),
        is_packed=_is_packed(options.get("packing")),
    )


def absolute_model(place: str) -> str:
    """Return what follows ``huggingface:`` so that it means the same in any working directory."""
    name, separator, rest = place.partition("?")
    pairs = [option.partition("=") for option in rest.split("&")]
    absolute = [
        f"{key}={Path(value).resolve()}" if key == "text" and value else f"{key}{equals}{value}"
        for key, equals, value in pairs
    ]
    return f"{Path(name).resolve()}{separator}{'&'.join(absolute)}"


def _options(rest: str) -> dict[str, str]:
    """Return options by name. Nothing is decoded: a path means what it says."""
    options: dict[str, str] = {}
    for option in rest.split("&") if rest else []:
        key, _, value = option.partition("=")
        if key not in OPTIONS:
            raise WorkloadError(
                f"{HUGGINGFACE} knows no option {key!r}{did_you_mean(key, OPTIONS)}; as in "
                f"{HUGGINGFACE}:PATH?sequence=512&text=FILE&packing=off"
            )
        if key in options or not value:
            trouble = "is given twice" if key in options else "has no value"
            raise WorkloadError(f"option {key!r} {trouble}; write {key}=VALUE once")
        options[key] = value
    return options


def _task(value: str | None) -> ModelTask | None:
    if value is None:
        return None
    if value not in list(ModelTask):
        raise WorkloadError(f"task={value!r}: must be one of {', '.join(ModelTask)}")
    return ModelTask(value)


def _sequence(value: str | None) -> int | None:
    if value is not None and not (value.isdecimal() and int(value) > 0):
        raise WorkloadError(f"sequence={value!r}: must be a whole number of tokens, 1 or more")
    return None if value is None else int(value)


def _is_packed(value: str | None) -> bool:
    if value is not None and value not in _PACKING:
        raise WorkloadError(
            f"packing={value!r}: must be on (windows of the whole text) or off (a sample a line)"
        )
    return value is None or _PACKING[value]


def _text(value: str | None) -> Path | None:
    if value is None:
        return None
    file = Path(value)
    if not file.is_file():
        trouble = "is a folder" if file.is_dir() else "does not exist"
        raise WorkloadError(f"text={value!r} {trouble}; give a text file, in UTF-8")
    size = file.stat().st_size
    if size == 0:
        raise WorkloadError(f"text={value!r} is empty; give a file with text in it")
    if size > LARGEST_TEXT_BYTES:
        raise WorkloadError(
            f"text={value!r} has {size / 2**20:.0f} MiB, the most is "
            f"{LARGEST_TEXT_BYTES // 2**20} MiB; give a part of it, with its longest lines"
        )
    return file
