"""Configs read from the files that people train with today."""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune.documents import read_exported_config
from autotune.errors import SettingsError
from autotune.exports.accelerate_reading import is_accelerate, read_accelerate
from autotune.exports.axolotl import is_axolotl, read_axolotl
from autotune.exports.base import COMMENT
from autotune.exports.deepspeed_reading import is_deepspeed, read_deepspeed
from autotune.exports.environment import knobs_of_environment, knobs_of_shell
from autotune.exports.findings import Findings, Reading
from autotune.exports.lightning import is_lightning, read_lightning
from autotune.exports.llama_factory import is_llama_factory, read_llama_factory
from autotune.exports.ray_train import is_ray_train, read_ray_train
from autotune.exports.torchtune import is_torchtune, read_torchtune
from autotune.exports.transformers_reading import is_transformers, read_transformers
from autotune.exports.yaml_text import from_yaml
from search_spaces import InvalidConfigError, TrainingConfig

YAML = (".yaml", ".yml")
LAUNCH: dict[str, Callable[[str], dict[str, str]]] = {
    ".env": knobs_of_environment,
    ".args": knobs_of_shell,
}
"""How files for launch scripts are read."""

FOREIGN: tuple[
    tuple[
        Callable[[Mapping[str, Any]], bool],
        Callable[[Mapping[str, Any], Findings], dict[str, object]],
    ],
    ...,
] = (
    (is_deepspeed, read_deepspeed),
    (is_accelerate, read_accelerate),
    (is_lightning, read_lightning),
    (is_ray_train, read_ray_train),
    (is_torchtune, read_torchtune),
    (is_axolotl, read_axolotl),
    (is_llama_factory, read_llama_factory),
    (is_transformers, read_transformers),
)
"""How documents of other programs are told apart, and read."""


def read_config(path: Path) -> Reading:
    """Read the config from a file: ours, or one of another program.

    Our own JSON and TOML, DeepSpeed's JSON, ``TrainingArguments`` as JSON or YAML, the YAML of
    Accelerate, Lightning, Ray Train, torchtune, axolotl and LLaMA-Factory, and what
    ``--format env`` and ``--format shell`` write.

    Raises:
        SettingsError: No such file, none of these, or one that its own program would refuse; the
            message says what is wrong and where.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""  # our own reader says why it cannot be read
    if path.suffix in LAUNCH and text:
        return Reading(path=path, knobs=_launch_knobs(path, text))
    document = _parsed(path, text)
    if not _is_foreign(document):
        if path.suffix in YAML and text:
            raise SettingsError(
                f"{str(path)!r} has none of the keys of accelerate, TrainingArguments, Lightning, "
                "Ray Train, torchtune, axolotl or LLaMA-Factory; our own are JSON or TOML"
            )
        return Reading(path=path, knobs=read_exported_config(path).as_dict())
    assert isinstance(document, Mapping)
    findings = Findings(path=path, own=_own_comment(path, text))
    knobs = _read(document, findings)
    try:
        TrainingConfig.from_mapping(knobs)
    except InvalidConfigError as error:
        findings.fault(str(error))
    return findings.reading(knobs)


def _launch_knobs(path: Path, text: str) -> dict[str, str]:
    try:
        return LAUNCH[path.suffix](text)
    except ValueError as error:
        raise SettingsError(f"{str(path)!r} is no text for a shell: {error}") from error


def _read(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    read = next(read for is_kind, read in FOREIGN if is_kind(document))
    return read(document, findings)


def _is_foreign(document: object) -> bool:
    return isinstance(document, Mapping) and any(is_kind(document) for is_kind, _ in FOREIGN)


def _parsed(path: Path, text: str) -> object:
    """Return a file's document; None for a text that is none.

    Raises:
        SettingsError: A YAML file that holds no YAML.
    """
    try:
        if path.suffix in YAML:
            return from_yaml(text)
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except SettingsError as error:
        raise SettingsError(f"{str(path)!r}: {error}") from error
    except ValueError:
        return None


def _own_comment(path: Path, text: str) -> Mapping[str, object]:
    """Return the config in the comment that our YAML begins with; nothing if there is none.

    Raises:
        SettingsError: The comment is no longer what we wrote.
    """
    if not text.startswith(COMMENT):
        return {}
    try:
        about = json.loads(text.partition("\n")[0].removeprefix(COMMENT))
        return TrainingConfig.from_mapping(about["config"]).as_dict()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"{str(path)!r}: the comment of its first line is no longer what autotune wrote: "
            f"{error}; restore it, or remove the line"
        ) from error
