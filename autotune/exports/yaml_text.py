"""YAML in and out. The only door to PyYAML."""

from collections.abc import Mapping
from typing import Any

import yaml

from autotune.errors import SettingsError


def to_yaml(document: Mapping[str, Any]) -> str:
    """Return a mapping as YAML, in its own order; floats get a dot, the word 'no' its quotes."""
    text: str = yaml.safe_dump(dict(document), sort_keys=False)
    return text


def from_yaml(text: str) -> Any:
    """Return what a YAML text holds, with every key as text.

    Raises:
        SettingsError: It is no YAML, or it holds itself.
    """
    try:
        return _with_text_keys(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError) as error:
        raise SettingsError(f"no YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise SettingsError("a YAML that is nested too deep, or holds itself") from error


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _with_text_keys(part) for key, part in value.items()}
    return [_with_text_keys(part) for part in value] if isinstance(value, list) else value
