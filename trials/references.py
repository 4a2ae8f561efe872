"""References to workloads, and which of them can be refused before anything is imported."""

import sys
from pathlib import Path

from search_spaces import did_you_mean
from trials import gpt_sizes, vision_sizes
from trials.command_line import absolute_command, is_command, require_program
from trials.errors import WorkloadError
from trials.model_reference import HUGGINGFACE, absolute_model, parse_model

BUILTIN_SIZES = {"byte-gpt": tuple(gpt_sizes.SIZES), "vision": tuple(vision_sizes.SIZES)}
"""The workloads that come with the program, with the sizes of each, smallest first."""
_BUILTINS = {*BUILTIN_SIZES, HUGGINGFACE}
_FORMS = "path/to/file.py:Name or package.module:Name"


def is_users(reference: str) -> bool:
    """Tell whether a reference names a class of the user's, and no built-in."""
    is_builtin = reference.partition(":")[0] in _BUILTINS
    return not is_builtin and ("." in reference or "/" in reference)


def require_reference(reference: str) -> None:
    """Refuse a reference that can name no workload.

    Raises:
        WorkloadError: No such built-in, size or file, or no class is named; the message says
            what there is.
    """
    if is_command(reference):
        require_program(reference)
        return
    if not is_users(reference):
        _require_builtin(reference)
        return
    place, name = split_reference(reference)
    if is_file_reference(place):
        _require_file(place)
    if not name:
        raise WorkloadError(f"workload {reference!r} names no class; write {place}:Name")


def preloads(reference: str) -> tuple[str, ...]:
    """Return the modules that a host should import before it starts trials of a workload."""
    is_model = reference.partition(":")[0] == HUGGINGFACE
    return ("trials.preload_transformers",) if is_model else ()


def split_reference(reference: str) -> tuple[str, str]:
    """Return the file or module of a user's reference, and the class; empty if it names none."""
    place, separator, name = reference.rpartition(":")
    return (place, name) if separator else (reference, "")


def absolute_reference(reference: str) -> str:
    """Return a reference that means the same in any working directory."""
    if is_command(reference):
        return absolute_command(reference)
    name, _, rest = reference.partition(":")
    if name == HUGGINGFACE and rest:
        return f"{HUGGINGFACE}:{absolute_model(rest)}"
    place, name = split_reference(reference)
    is_file = is_users(reference) and place.endswith(".py")
    return f"{Path(place).resolve()}:{name}" if is_file else reference


def is_file_reference(place: str) -> bool:
    """Tell whether the place of a user's reference is a path, and no module."""
    return place.endswith(".py") or "/" in place or Path(place).exists()


def source_file(reference: str) -> str:
    """Return the file of a user's class; empty without one, or for a module not imported yet."""
    if is_command(reference):
        return ""
    place, _ = split_reference(reference)
    if is_users(reference) and is_file_reference(place):
        return str(Path(place).resolve())
    file = getattr(sys.modules.get(place), "__file__", None)
    return str(Path(file).resolve()) if file else ""


def _require_builtin(reference: str) -> None:
    name, _, size = reference.partition(":")
    if Path(name).is_dir():
        raise WorkloadError(f"workload {name!r} is a folder; name a file in it, as {_FORMS}")
    if name not in _BUILTINS:
        hint = did_you_mean(name, _BUILTINS)
        raise WorkloadError(f"no workload {reference!r}{hint}; or give {_FORMS}")
    if name == HUGGINGFACE:
        parse_model(size)
        return
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
