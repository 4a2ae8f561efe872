"""Files that a file names: where they are looked for, and how they are read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import SettingsError


def document_beside(path: Path, name: str) -> Mapping[str, Any]:
    """Return the JSON object in a file that another names.

    Args:
        path: Of the file that names it.
        name: As it is written there: looked for from here, and then beside that file.

    Raises:
        SettingsError: No such file, or no JSON object.
    """
    places = [Path(name), path.parent / name, path.parent / Path(name).name]
    try:
        found = next((place for place in places if place.is_file()), None)
    except OSError as error:
        raise SettingsError(f"{name!r} is no path: {error.strerror}") from error
    if found is None:
        raise SettingsError(f"there is no {name!r}, neither here nor beside the file")
    try:
        document = json.loads(found.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{str(found)!r} cannot be read as JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise SettingsError(f"{str(found)!r} holds no JSON object")
    return document
