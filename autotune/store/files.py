"""The folder of a SQLite file: where it may lie, and how it is locked."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.errors import StoreUnreachableError

NETWORK_FILESYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs"})
MOUNTS = Path("/proc/mounts")


def prepare_file(path: Path) -> None:
    """Make the folder of a SQLite file.

    Raises:
        StoreUnreachableError: The folder cannot be made, or lies on a network filesystem.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnreachableError(
            f"no folder for the store at {path}: {error.strerror}; choose another with --store"
        ) from error
    kind = filesystem_of(path.parent, MOUNTS.read_text()) if MOUNTS.exists() else ""
    if kind in NETWORK_FILESYSTEMS:
        raise StoreUnreachableError(
            f"the store {path} lies on a network filesystem ({kind}), where SQLite's locks and "
            "shared memory do not work between machines and a study can be lost; "
            "choose a local folder with --store, or a PostgreSQL database"
        )


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
