"""A SQLite file and its folder: where they may lie, how they are read and locked."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from autotune.errors import StoreUnreachableError

NETWORK_FILESYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs"})
MOUNTS = Path("/proc/mounts")


def prepare_file(path: Path) -> None:
    """Make the folder of a SQLite file.

    Raises:
        StoreUnreachableError: The folder cannot be made, something else is in the place of the
            file, or the folder lies on a network filesystem.
    """
    _refuse_obstacle(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnreachableError(
            f"no folder for the store at {path}: {error.strerror}; choose another with --store"
        ) from error
    _refuse_network(path)


def require_file(path: Path) -> None:
    """Let a SQLite file be read that is there; nothing is made.

    Raises:
        StoreUnreachableError: No such file, something else in its place, or a network filesystem.
    """
    _refuse_obstacle(path)
    if not os.path.isfile(path):  # False, too, where a folder may not be entered
        raise StoreUnreachableError(f"no store at {path}; autotune run makes one")
    _refuse_network(path)


def reading_address(path: Path) -> str:
    """Return the URI of a SQLite file for connections that only read, also where none may write.

    A connection that may write is asked for where it can be had: closing it removes the files
    that SQLite makes beside the database, which one that may not write leaves there. Where
    SQLite cannot make them, it reads a file that has no write-ahead log without any.
    """
    may_write = all(os.access(place, os.W_OK, effective_ids=True) for place in (path, path.parent))
    has_log = path.with_name(f"{path.name}-wal").exists()
    mode = "mode=rw" if may_write else "mode=ro" if has_log else "mode=ro&immutable=1"
    return f"file:{quote(str(path))}?{mode}"


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep out the other processes that lock the same folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def filesystem_of(folder: Path, mounts: str) -> str:
    """Return the type of the filesystem that holds a folder.

    Args:
        folder: May be reached over symbolic links.
        mounts: Text of ``/proc/mounts``; of two mounts on one place the later is seen.
    """
    resolved = folder.resolve()
    longest, found = -1, ""
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split(" ")
        mount_point = Path(place.replace(r"\040", " "))
        depth = len(mount_point.parts)
        if depth >= longest and resolved.is_relative_to(mount_point):
            longest, found = depth, kind
    return found


def _refuse_obstacle(path: Path) -> None:
    if os.path.isdir(path):
        raise StoreUnreachableError(f"{path} is a folder; give a file in it, like studies.db")
    obstacle = next((parent for parent in path.parents if os.path.isfile(parent)), None)
    if obstacle is not None:
        raise StoreUnreachableError(
            f"no folder for the store at {path}: {obstacle} is a file, not a folder; "
            "choose another with --store"
        )


def _refuse_network(path: Path) -> None:
    kind = filesystem_of(path.parent, MOUNTS.read_text()) if MOUNTS.exists() else ""
    if kind in NETWORK_FILESYSTEMS:
        raise StoreUnreachableError(
            f"the store {path} lies on a network filesystem ({kind}), where SQLite's locks and "
            "shared memory do not work between machines and a study can be lost; "
            "choose a local folder with --store, or a PostgreSQL database"
        )
