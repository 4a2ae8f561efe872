"""References to programs: ``command:PROGRAM ARGS...``, split as a shell would, run without one."""

import hashlib
import shlex
import shutil
from pathlib import Path

from search_spaces import stable_hash
from trials.errors import WorkloadError

_PREFIX = "command:"


def is_command(reference: str) -> bool:
    """Tell whether a reference is a program of the user's with its arguments."""
    return reference.startswith(_PREFIX)


def command_words(reference: str) -> list[str]:
    """Return the program of a command and its arguments.

    Raises:
        WorkloadError: There is no program, or a quotation does not end.
    """
    text = reference.removeprefix(_PREFIX)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise WorkloadError(f"command {text!r} cannot be split: {error}") from error
    if not words:
        raise WorkloadError(f"workload {reference!r} names no program; write {_PREFIX}PROGRAM")
    return words


def require_program(reference: str) -> None:
    """Refuse a command whose program is not there.

    Raises:
        WorkloadError: With the remedy.
    """
    program = command_words(reference)[0]
    if shutil.which(program) is None:
        remedy = "check the path" if "/" in program else "install it, or give its path"
        raise WorkloadError(f"no program {program!r} that could be run; {remedy}")


def absolute_command(reference: str) -> str:
    """Return a command that means the same in any directory.

    An argument that is a file becomes absolute, and so does a path with a slash that is there.
    A program without a slash stays what the PATH finds.
    """
    first, *arguments = command_words(reference)
    program = str(Path(first).absolute()) if "/" in first else first
    return _PREFIX + shlex.join([program, *map(_absolute, arguments)])


def command_fingerprint(reference: str) -> str:
    """Return a hash that changes with a command's text or a file among its words."""
    files = [Path(word) for word in command_words(reference) if Path(word).is_file()]
    return stable_hash([reference, *map(_hash, files)])


def _absolute(argument: str) -> str:
    path = Path(argument)
    is_path = path.is_file() or ("/" in argument and path.exists())
    return str(path.absolute()) if is_path else argument


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
