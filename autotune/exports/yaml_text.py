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
    """Return what a YAML text holds.

    Raises:
        SettingsError: It is no YAML.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"no YAML: {' '.join(str(error).split())}") from error
