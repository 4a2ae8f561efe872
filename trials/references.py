"""References to workloads, and which of them can be refused before anything is imported."""

import sys
from pathlib import Path

from search_spaces import did_you_mean
from trials.errors import WorkloadError
from trials.gpt_sizes import SIZES

BUILTIN_SIZES = {"byte-gpt": tuple(SIZES)}
"""The workloads that come with the program, with the sizes of each, smallest first."""
_FORMS = "path/to/file.py:Name or package.module:Name"


def is_users(reference: str) -> bool:
    """Tell whether a reference names a class of the user's, and no built-in."""
    is_builtin = reference.partition(":")[0] in BUILTIN_SIZES
    return not is_builtin and ("." in reference or "/" in reference)


def require_reference(reference: str) -> None:
    """Refuse a reference that can name no workload.

    Raises:
        WorkloadError: No such built-in, size or file, or no class is named; the message says
            what there is.
    """
    if not is_users(reference):
        _require_builtin(reference)
        return
    place, name = split_reference(reference)
    if is_file_reference(place):
        _require_file(place)
    if not name:
        raise WorkloadError(f"workload {reference!r} names no class; write {place}:Name")


def split_reference(reference: str) -> tuple[str, str]:
    """Return the file or module of a user's reference, and the class; empty if it names none."""
    place, separator, name = reference.rpartition(":")
    return (place, name) if separator else (reference, "")


def is_file_reference(place: str) -> bool:
    """Tell whether the place of a user's reference is a path, and no module."""
    return place.endswith(".py") or "/" in place or Path(place).exists()


def source_file(reference: str) -> str:
    """Return the file of a user's class; empty for a built-in, or a module not imported yet."""
    place, _ = split_reference(reference)
    if is_users(reference) and is_file_reference(place):
        return str(Path(place).resolve())
    file = getattr(sys.modules.get(place), "__file__", None)
    return str(Path(file).resolve()) if file else ""


def _require_builtin(reference: str) -> None:
    name, _, size = reference.partition(":")
    if Path(name).is_dir():
        raise WorkloadError(f"workload {name!r} is a folder; name a file in it, as {_FORMS}")
    if name not in BUILTIN_SIZES:
        hint = did_you_mean(name, BUILTIN_SIZES)
        raise WorkloadError(f"no workload {reference!r}{hint}; or give {_FORMS}")
    sizes = BUILTIN_SIZES[name]
    if size and size not in sizes:
        raise WorkloadError(f"{name} has no size {size!r}; its sizes are {', '.join(sizes)}")


def _require_file(place: str) -> None:
    path = Path(place)
    if path.is_dir():
        raise WorkloadError(f"workload {place!r} is a folder; name a file in it, as {_FORMS}")
    if not path.is_file():
        raise WorkloadError(f"no workload file {place!r}; check the path")
    if path.suffix != ".py":
        raise WorkloadError(f"workload {place!r} is no Python file; give {_FORMS}")
