"""Ray clusters to put slots on: one of our own on this machine, or one that runs already.

Ray reads much of its environment once, when it is imported or its servers start. So it is set
here, and nothing else may import Ray before.
"""

import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from autotune.errors import WorkersError
from autotune.workers.base import Workers, WorkersRequest
from autotune.workers.janitor import CLUSTER_VARIABLE, clean_up
from autotune.workers.slots import SlotPlan, plan_cluster_slots, plan_slots, this_machine
from trials.folders import PrivateFolder, short_temporary_folder

FOLDER_PREFIX = "autotune-ray-"
TOKEN_FILE = "token"
WORKER_VARIABLES: Mapping[str, str] = {
    # Else a slot without a GPU sees all of them.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    # Else a slot that exits takes its trial along before that can end what it started.
    "RAY_kill_child_processes_on_worker_exit": "0",
}
"""What the process of a slot needs."""
OWN_CLUSTER_VARIABLES: Mapping[str, str | None] = {
    **WORKER_VARIABLES,
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": None,
    # Despite its name: 0 makes every server listen on loopback alone, on Linux too.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Ray's 15 slows trials down whenever anything else runs.
    "RAY_worker_niceness": "0",
    # Ray would kill slots for what other programs use; the kernel has been told to take trials.
    "RAY_memory_monitor_refresh_ms": "0",
    # One idle process per core, when only slots are wanted.
    "RAY_prestart_worker_first_driver": "0",
    # Else their titles overwrite the environment by which they are found.
    "SPT_NOENV": "1",
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": None,
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""What a cluster of ours starts with; None takes a variable away."""
JOIN_VARIABLES: Mapping[str, str | None] = {
    # Attempts of half a minute each; by default Ray makes twenty.
    "RAY_gcs_server_port_wait_time_s": "1",
}
"""What a running cluster is joined with."""
_OBJECT_STORE_BYTES = 2**27
_CONNECT_SECONDS = 5.0
_import_purpose: str | None = None


def open_ray_workers(request: WorkersRequest) -> Workers:
    """Open slots on a Ray cluster.

    Raises:
        WorkersError: They cannot be had; the message says what there is instead.
    """
    cluster: Cluster
    kind = request.device_kind
    with ExitStack() as undo:
        if request.ray_address is None:
            plans = plan_slots(kind, request.num_slots, this_machine(), request.num_devices)
            cluster = OwnCluster(plans)
            undo.callback(cluster.close)
        else:
            cluster = JoinedCluster(request.ray_address)
            undo.callback(cluster.close)
            plans = plan_cluster_slots(
                kind, request.num_slots, cluster.nodes(), request.num_devices
            )
        # Imports Ray, which must find its variables set.
        from autotune.workers.ray_slots import RayWorkers

        workers = RayWorkers(cluster, plans, request)
        undo.pop_all()
        return workers


class Cluster(ABC):
    """A connection to a Ray cluster; a process can have one at a time.

    Attributes:
        is_here: Whether all of it is on this machine, and ours.
        folder: Where its slots keep temporary files; None leaves that to each machine.
        worker_variables: Environment that its slots must be given.
    """

    is_here = False
    folder: Path | None = None
    worker_variables: Mapping[str, str] = {}

    def nodes(self) -> list[dict[str, float]]:
        """Return what each living machine has, by resource."""
        import ray

        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        return [node["Resources"] for node in nodes if node["Alive"]]

    @abstractmethod
    def close(self) -> None:
        """Disconnect, and end what was started."""


class OwnCluster(Cluster):
    """A cluster on this machine alone, behind a token and out of reach for any other."""

    is_here = True

    def __init__(self, plans: Sequence[SlotPlan]) -> None:
        """Start a cluster with room for some slots.

        Raises:
            WorkersError: Ray does not start, or was set up otherwise in this process.
        """
        _claim_ray("a cluster of this program's own")
        self._folder = PrivateFolder(FOLDER_PREFIX, short_temporary_folder())
        self.folder = self._folder.path
        self._janitor = _start_janitor(self.folder)
        variables = {**OWN_CLUSTER_VARIABLES, **_identity(self.folder)}
        try:
            with _environment(variables):
                _connect(
                    address="local",
                    include_dashboard=False,
                    num_cpus=sum(plan.num_threads for plan in plans),
                    num_gpus=sum(plan.is_cuda for plan in plans),
                    object_store_memory=_OBJECT_STORE_BYTES,
                    # Ray opens its folder to everybody; the one above stays closed.
                    _temp_dir=str(self.folder / "r"),
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See Cluster."""
        _disconnect()
        clean_up(self._folder.path)
        self._folder.remove()
        self._janitor.communicate()


class JoinedCluster(Cluster):
    """A cluster that runs already. How to log in is what the user's environment says."""

    worker_variables = WORKER_VARIABLES

    def __init__(self, address: str) -> None:
        """Connect to a cluster.

        Args:
            address: ``host:port`` of its head.

        Raises:
            WorkersError: Nothing answers there, or Ray refuses.
        """
        _require_reachable(address)
        _claim_ray("a running cluster")
        try:
            with _environment(JOIN_VARIABLES):
                _connect(address=address)
        except WorkersError as error:
            raise WorkersError(
                f"{error}; is a Ray head at {address}, and are RAY_AUTH_MODE and "
                "RAY_AUTH_TOKEN_PATH those of its cluster?"
            ) from error

    def close(self) -> None:
        """See Cluster."""
        _disconnect()


def _start_janitor(folder: Path) -> subprocess.Popen[bytes]:
    """Start what cleans up if this process is killed; Ray alone takes a minute, and leaves files.

    It has a session of its own, out of the terminal's reach.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "autotune.workers.janitor", str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _claim_ray(purpose: str) -> None:
    """Make sure that Ray has not been imported for anything else in this process.

    Raises:
        WorkersError: It has, and read other variables then.
    """
    global _import_purpose
    if "ray" in sys.modules:
        if sys.modules["ray"].is_initialized():
            raise WorkersError("this process is connected to a Ray cluster already; close that")
        if _import_purpose != purpose:
            raise WorkersError(
                f"Ray was set up for {_import_purpose or 'something else'} in this process, and "
                f"cannot be again for {purpose}; do it in a process of its own"
            )
    _import_purpose = purpose


def _connect(**options: Any) -> None:
    import ray

    try:
        with _kept_sigterm():
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split())
        raise WorkersError(f"Ray does not start: {type(error).__name__}: {reason}") from error
    # It would tell of dead slots on standard output, where nothing but data may go.
    ray._private.worker._worker_logs_enabled = False


def _disconnect() -> None:
    """Leave the cluster, where there is one: Ctrl-C may have cut short the import of Ray."""
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


def _require_reachable(address: str) -> None:
    """Ask before Ray does, which would try for minutes, and without a word."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise WorkersError(
            f"Ray address {address!r}: give HOST:PORT of the cluster's head, as ray start told it"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise WorkersError(f"nothing answers at Ray address {address}: {error}") from error


def _identity(folder: Path) -> dict[str, str]:
    """Write the token, and return the variables that belong to one cluster."""
    token = folder / TOKEN_FILE
    with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(_token())
    return {"RAY_AUTH_TOKEN_PATH": str(token), CLUSTER_VARIABLE: str(folder)}


@cache
def _token() -> str:
    """Return this process's token; Ray's client keeps the first that it reads."""
    return secrets.token_hex(32)


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables for Ray's servers, which inherit them, and no longer for anything else."""
    before = {name: os.environ.get(name) for name in variables}
    _set_variables(variables)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _kept_sigterm() -> Iterator[None]:
    """Keep this program's answer to SIGTERM, which Ray replaces by its own."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
