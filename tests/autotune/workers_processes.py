"""Drivers to be killed, interrupted and watched: python -m tests.autotune.workers_processes.

Each takes what it is to do, ``local`` or ``ray``, and arguments, and prints a word or JSON a line.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from autotune.errors import WorkersError
from autotune.workers import Finished, Workers, WorkersRequest, open_workers
from autotune.workers.ray_bootstrap import TOKEN_FILE, OwnCluster
from autotune.workers.slots import SlotPlan
from tests.autotune.scripted import RUNNER
from trials.spec import TrialSpec

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 180.0
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def spec(what: str, **fields: object) -> TrialSpec:
    """What the scripted runner is to do, under an id of its own."""
    return TrialSpec(workload=f"scripted:{what}", trial_id=uuid.uuid4().hex, **fields)


@contextmanager
def driver(*arguments: str, **options: object) -> Iterator[subprocess.Popen]:
    """Run a driver; its output can be read line by line. It is killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.autotune.workers_processes", *arguments],
        cwd=ROOT,
        text=True,
        **{"stdout": subprocess.PIPE, **options},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def run_driver(*arguments: str, **environment: str) -> str:
    """Run a driver to its end and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.autotune.workers_processes", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_terminal(*arguments: str) -> list:
    """Run a driver in a terminal, press Ctrl-C for a while at each line, and return the last."""
    ours, its = os.openpty()
    modes = termios.tcgetattr(its)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(its, termios.TCSANOW, modes)
    terminal = {"stdin": its, "stdout": its, "stderr": its}
    printed = b""
    with driver(
        *arguments, **terminal, start_new_session=True, preexec_fn=_take_terminal
    ) as process:
        os.close(its)
        # Once nobody has the terminal open any more, reading it is an error.
        with suppress(OSError):
            while more := os.read(ours, 4096):
                printed += more
                for _ in range(20):
                    os.write(ours, b"\x03")
                    time.sleep(0.01)
        os.close(ours)
        assert process.wait(PATIENCE_SECONDS) == 0, printed.decode()
    # Ray colours what it says of its own in a terminal, and its codes may touch the driver's line.
    lines = _COLOUR.sub(b"", printed).splitlines()
    return json.loads([line for line in lines if line.startswith(b"[")][-1])


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def descendants(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def lives(process: psutil.Process | int) -> bool:
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> bool:
    """Wait until something holds, and return whether it came to."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def folders_of(pid: int) -> list[str]:
    """Return the private folders that a process made and that are still there."""
    return [str(path) for path in Path(tempfile.gettempdir()).glob(f"autotune-*-{pid}-*")]


def read_pids(path: Path) -> list[int]:
    """Return the processes that a scripted trial wrote down."""
    assert wait_for(path.exists), "the trial did not begin"
    return [int(word) for word in path.read_text().split()]


def collect(workers: Workers, count: int) -> list[Finished]:
    """Return so many finished trials, in the order in which they came."""
    until = time.monotonic() + PATIENCE_SECONDS
    found = []
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} trials ended"
        found += workers.collect(1.0)
    return found


def collect_one(workers: Workers) -> Finished:
    (finished,) = collect(workers, 1)
    return finished


def _open(kind: str, **request: object) -> Workers:
    return open_workers(
        WorkersRequest(**{"runner": RUNNER, "num_slots": 1, **request}), is_local=kind == "local"
    )


def hold(kind: str, path: str) -> None:
    """Run a trial that never ends, with a stray program."""
    workers = _open(kind)
    workers.submit(spec(f"stray-and-hang={path}"))
    while True:
        workers.collect(1.0)


def interrupted(kind: str) -> None:
    """Be interrupted while the first process starts, while a trial runs and when all is done."""
    interrupts = []
    signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
    workers = _open(kind)
    print("open", flush=True)
    workers.submit(spec("sleep=1.5"))
    print("submitted", flush=True)
    first = collect_one(workers)
    workers.submit(spec("done"))
    second = collect_one(workers)
    workers.close()
    outcomes = [one.lost_reason or one.measurement.outcome for one in (first, second)]
    print(json.dumps([len(interrupts), outcomes]), flush=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def closed(kind: str, path: str) -> None:
    """Close workers in the middle of a trial, and say what is left."""
    variables = dict(os.environ)
    workers = _open(kind)
    is_environment_kept = variables == dict(os.environ)
    workers.submit(spec(f"stray-and-hang={path}"))
    pids = read_pids(Path(path))
    processes = [*descendants(os.getpid())[1:], *map(psutil.Process, pids)]
    workers.close()
    workers.close()
    # Python's own helper lives as long as the process, and is no part of the workers.
    left = [p for p in processes if lives(p) and "resource_tracker" not in " ".join(p.cmdline())]
    folders = folders_of(os.getpid())
    print(json.dumps([[p.cmdline() for p in left], is_environment_kept, folders]))


def imported_before(kind: str) -> None:
    """Import Ray first, as a program that uses it would."""
    import ray  # noqa: F401

    try:
        _open(kind)
    except WorkersError as error:
        print(error)


def first_trial(kind: str) -> None:
    """Ask for the environment and run a trial, whatever comes of it."""
    workers = _open(kind)
    try:
        workers.environment()
    except WorkersError as error:
        print(error)
    workers.submit(spec("done"))
    print(collect_one(workers))
    workers.close()


def gpu_slots(kind: str) -> None:
    """Open a slot without and one with a GPU, where Ray is told that there is one."""
    plans = [
        SlotPlan(name="cpu-0", device="cpu", num_threads=1),
        SlotPlan(name="cuda-0", device="cuda:0", num_threads=1),
    ]
    workers = _open_ray(plans)
    for _ in plans:
        workers.submit(spec("environment=CUDA_VISIBLE_DEVICES"))
    seen = {one.slot: one.measurement.reason for one in collect(workers, len(plans))}
    workers.close()
    print(json.dumps(seen))


def _open_ray(plans: list[SlotPlan]) -> Workers:
    cluster = OwnCluster(plans)
    from autotune.workers.ray_slots import RayWorkers

    return RayWorkers(cluster, plans, WorkersRequest(runner=RUNNER))


def refused(kind: str) -> None:
    """Ask for a slot whose first trial fails."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        _open(kind, runner="tests.autotune.scripted:run_nowhere")
    except WorkersError as error:
        print(error)


def irreplaceable(kind: str, path: str) -> None:
    """Lose the only slot, whose device has been exchanged meanwhile."""
    device = Path(os.environ["SCRIPTED_DEVICE_FILE"])
    device.write_text("Scripted")
    workers = _open(kind)
    workers.environment()
    device.write_text("Other")
    workers.submit(spec(f"stray-and-hang={path}"))
    child, *_ = read_pids(Path(path))
    os.kill(psutil.Process(child).parent().ppid(), signal.SIGKILL)
    print(collect_one(workers).lost_reason)
    for call in (lambda: workers.num_free, lambda: workers.collect(0), workers.environment):
        try:
            call()
        except WorkersError as error:
            print(error)
    workers.close()


def beheaded(kind: str) -> None:
    """Lose the process of Ray's that starts all others."""
    workers = _open(kind)
    workers.submit(spec("hang"))
    (raylet,) = [p for p in descendants(os.getpid()) if p.name() == "raylet"]
    raylet.kill()
    print(collect_one(workers).lost_reason)
    try:
        print(workers.num_free)
    except WorkersError as error:
        print(error)
    workers.close()


def cluster(kind: str) -> None:
    """Run a cluster for others, with two processors."""
    plans = [SlotPlan(name="cpu", device="cpu", num_threads=2)]
    own = OwnCluster(plans)
    import ray

    address = ray.get_runtime_context().gcs_address
    print(json.dumps([address, str(own.folder / TOKEN_FILE)]), flush=True)
    time.sleep(PATIENCE_SECONDS)


def joined(kind: str, address: str) -> None:
    """Run trials on a cluster that others run."""
    try:
        _open(kind, ray_address=address, num_slots=99)
    except WorkersError as error:
        refusal = str(error)
    workers = _open(kind, ray_address=address, num_slots=None)
    workers.environment()
    slots = [workers.submit(spec("placement")) for _ in range(workers.num_slots)]
    found = collect(workers, len(slots))
    workers.close()
    folders = [str(path) for path in Path("/tmp").glob("autotune-slot-*")]
    print(json.dumps([refusal, found[0].measurement.reason, slots, folders]))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
