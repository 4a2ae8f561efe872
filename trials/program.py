"""A program of the user's under way: started, told its config, heard, ended."""

import json
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from trials.errors import WorkloadError
from trials.folders import PrivateFolder

CONFIG_VARIABLE = "AUTOTUNE_CONFIG"
CONFIG_FILE_VARIABLE = "AUTOTUNE_CONFIG_FILE"
REPORT_FILE_VARIABLE = "AUTOTUNE_REPORT_FILE"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_GRACE_SECONDS = 1.0
_PIPE_BYTES = 65536
_TAIL_BYTES = 4000
_TAIL_LINES = 40
_LOG = 1


class Program:
    """A child of this process, in its group and with its output; ended with the context."""

    def __init__(self, words: Sequence[str], config: Mapping[str, object]) -> None:
        """Start a program.

        Args:
            words: It and its arguments.
            config: What it is told; holds ``device`` and ``num_threads``.

        Raises:
            WorkloadError: It cannot be started.
        """
        self._folder = PrivateFolder("autotune-program-")
        report_path = self._folder.path / "report"
        os.mkfifo(report_path, 0o600)
        # Open for writing too, or the pipe would end each time that the program closes it.
        self._report = os.open(report_path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""
        self._log_start = _log_bytes()
        environment = _environment(config, self._folder.path / "config.json", report_path)
        try:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment)
        except OSError as error:
            self._close()
            raise WorkloadError(f"program {words[0]!r} cannot be started: {error}") from error

    def __enter__(self) -> "Program":
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.end()

    @property
    def pid(self) -> int:
        """The program's first process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        return self._process.poll()

    def lines(self, timeout_seconds: float) -> list[str]:
        """Return the new lines of its report, waiting a while for the first."""
        is_there = select.select([self._report], [], [], timeout_seconds)[0]
        more = os.read(self._report, _PIPE_BYTES) if is_there else b""
        *whole, self._rest = (self._rest + more).split(b"\n")
        return _texts(whole)

    def last_lines(self) -> list[str]:
        """Return what is left of its report, once it ended; the last line may lack its end."""
        rest, self._rest = self._rest + self._read(), b""
        return _texts(rest.split(b"\n"))

    def output_tail(self) -> str:
        """Return the last lines that it printed; empty where the output is no file."""
        start = max(self._log_start, _log_bytes() - _TAIL_BYTES)
        path = Path(f"/proc/self/fd/{_LOG}")
        if not path.is_file():
            return ""
        with path.open("rb") as log:
            log.seek(start)
            text = log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-_TAIL_LINES:])

    def end(self) -> None:
        """Ask it to end, and kill it if it takes long. Safe to call twice.

        What it started in turn ends with the trial, as everything in the trial's group does.
        """
        self._process.terminate()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close()

    def _read(self) -> bytes:
        chunks = []
        while select.select([self._report], [], [], 0)[0]:
            chunks.append(os.read(self._report, _PIPE_BYTES))
        return b"".join(chunks)

    def _close(self) -> None:
        if self._report >= 0:
            os.close(self._report)
            self._report = -1
        self._folder.remove()


def _environment(
    config: Mapping[str, object], config_path: Path, report_path: Path
) -> dict[str, str]:
    text = json.dumps(config)
    config_path.write_text(text)
    threads = {} if config["device"] != "cpu" else dict.fromkeys(_THREAD_VARIABLES, "num_threads")
    return {
        **os.environ,
        **{variable: str(config[key]) for variable, key in threads.items()},
        CONFIG_VARIABLE: text,
        CONFIG_FILE_VARIABLE: str(config_path),
        REPORT_FILE_VARIABLE: str(report_path),
    }


def _texts(lines: Sequence[bytes]) -> list[str]:
    texts = (line.decode(errors="replace").strip() for line in lines)
    return [text for text in texts if text]


def _log_bytes() -> int:
    return os.fstat(_LOG).st_size
