"""Frozen dataclasses to plain JSON values and back, by their field types."""

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from search_spaces import InvalidConfigError, SearchSpace, TrainingConfig
from trials.errors import SpecError

T = TypeVar("T")
Reader = Callable[[object, str], Any]


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
    readers = _readers(kind)  # type: ignore[arg-type]
    unknown = [key for key in document if key not in readers]
    if unknown:
        known = ", ".join(readers)
        raise SpecError(f"unknown key {unknown[0]!r} in a {kind.__name__}; known: {known}")
    values = {key: readers[key](item, key) for key, item in document.items()}
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise SpecError(f"not a {kind.__name__}: {error}") from error


@lru_cache
def _readers(kind: type) -> dict[str, Reader]:
    hints = get_type_hints(kind)
    return {f.name: _reader(hints[f.name]) for f in dataclasses.fields(kind)}


def _reader(hint: Any) -> Reader:
    """Return how a value of a field type is read; found once, since reading is frequent."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        read = _reader(arguments[0])
        return lambda value, key: None if value is None else read(value, key)
    if hint in (TrainingConfig, SearchSpace):
        return lambda value, key: _by_itself(hint, value, key)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return lambda value, key: from_plain(hint, value)
    if origin is tuple:
        return _tuple_reader(_reader(arguments[0]))
    if origin in (dict, Mapping):
        return lambda value, key: value
    return lambda value, key: _scalar(hint, value, key)


def _tuple_reader(read: Reader) -> Reader:
    def read_all(value: object, key: str) -> Any:
        if not isinstance(value, list | tuple):
            raise SpecError(f"{key} must be a list, got {value!r}")
        return tuple([read(item, key) for item in value])

    return read_all


def _by_itself(hint: Any, value: object, key: str) -> Any:
    if not isinstance(value, Mapping):
        raise SpecError(f"{key} must be a JSON object, got {value!r}")
    try:
        return hint.from_mapping(value)
    except InvalidConfigError as error:
        raise SpecError(f"{key}: {error}") from error


def _scalar(hint: Any, value: object, key: str) -> Any:
    if type(value) is hint:
        return value
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
