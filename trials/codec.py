"""Frozen dataclasses to plain JSON values and back, by their field types."""

import dataclasses
import types
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from search_spaces import InvalidConfigError, SearchSpace, TrainingConfig
from trials.errors import SpecError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Return a value made of dicts, lists, strings, numbers, booleans and None."""
    if isinstance(value, TrainingConfig | SearchSpace):
        return value.as_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[T], document: object) -> T:
    """Build a dataclass from what ``to_plain`` made of one; missing keys keep their default.

    Raises:
        SpecError: The document is no object, has unknown keys, lacks one, or holds a bad value.
    """
    if not isinstance(document, Mapping):
        raise SpecError(f"a {kind.__name__} must be a JSON object, got {document!r}")
    hints = _hints(kind)  # type: ignore[arg-type]
    unknown = [key for key in document if key not in hints]
    if unknown:
        known = ", ".join(hints)
        raise SpecError(f"unknown key {unknown[0]!r} in a {kind.__name__}; known: {known}")
    values = {key: _read(hints[key], item, key) for key, item in document.items()}
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise SpecError(f"not a {kind.__name__}: {error}") from error


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def _read(hint: Any, value: object, key: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        return None if value is None else _read(arguments[0], value, key)
    if hint in (TrainingConfig, SearchSpace):
        return _by_itself(hint, value, key)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_plain(hint, value)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise SpecError(f"{key} must be a list, got {value!r}")
        return tuple(_read(arguments[0], item, key) for item in value)
    if origin in (dict, Mapping):
        return value
    return _scalar(hint, value, key)


def _by_itself(hint: Any, value: object, key: str) -> Any:
    if not isinstance(value, Mapping):
        raise SpecError(f"{key} must be a JSON object, got {value!r}")
    try:
        return hint.from_mapping(value)
    except InvalidConfigError as error:
        raise SpecError(f"{key}: {error}") from error


def _scalar(hint: Any, value: object, key: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        try:
            return hint(str(value))
        except ValueError as error:
            raise SpecError(f"{key}={value!r}: must be one of {', '.join(hint)}") from error
    is_bool_for_number = isinstance(value, bool) and hint is not bool
    if isinstance(hint, type) and (not isinstance(value, hint) or is_bool_for_number):
        raise SpecError(f"{key}={value!r}: must be {hint.__name__}")
    return value
