"""A real PostgreSQL server for tests: its own folder, port, password and end."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

PASSWORD = "S3cret@x"  # in a URL its @ is %40
DEBIAN_FOLDER = Path("/usr/lib/postgresql")
START_SECONDS = 30.0


def find_binaries() -> Path | None:
    """Return the folder of the newest server, on the PATH or where Debian keeps them."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).parent
    installed = [p for p in DEBIAN_FOLDER.glob("*/bin") if (p / "initdb").exists()]
    return max(installed, key=lambda p: float(p.parent.name), default=None)


@contextmanager
def running_server(binaries: Path) -> Iterator[str]:
    """Yield the URL of a server that has one database, ``postgres``, and a password."""
    folder = Path(tempfile.mkdtemp(prefix="autotune-pg-", dir="/tmp"))  # short, for its socket
    as_user = _unprivileged(folder)
    try:
        port = _initialise(binaries, folder, as_user)
        command = [binaries / "postgres", "-D", folder / "data", "-F", "-k", folder]
        options = ["-p", str(port), "-c", "listen_addresses=127.0.0.1"]
        with open(folder / "log", "wb") as log:
            server = subprocess.Popen(
                [*command, *options], cwd=folder, stdout=log, stderr=log, **as_user
            )
        try:
            url = f"postgresql://autotune:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"
            _wait_until_ready(server, url, folder / "log")
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # the server's fast way to stop
            server.wait(START_SECONDS)
    finally:
        shutil.rmtree(folder)


def _unprivileged(folder: Path) -> dict[str, Any]:
    """Return how to start a process that is not root, which the server refuses to be."""
    if os.geteuid() != 0:
        return {}
    shutil.chown(folder, "postgres", "postgres")
    return {"user": "postgres", "group": "postgres", "extra_groups": []}


def _initialise(binaries: Path, folder: Path, as_user: dict[str, Any]) -> int:
    """Make the server's files, and return a free port."""
    password_file = folder / "password"
    password_file.write_text(PASSWORD)
    options = ["-U", "autotune", "--auth=scram-sha-256", f"--pwfile={password_file}"]
    files = ["-D", folder / "data", "--no-sync", "--encoding=UTF8", "--locale=C"]
    subprocess.run(
        [binaries / "initdb", *files, *options],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        check=True,
        **as_user,
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server does not start: {log.read_text()}") from None
            time.sleep(0.05)
