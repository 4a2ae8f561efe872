"""The door to Weights & Biases: a group for a study, and a run in it for each trial.

Offline unless ``WANDB_MODE`` says otherwise: runs lie in a folder until ``wandb sync``.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, cast

import wandb
from wandb.errors import Error as WandbError

from autotune.errors import SettingsError, TrackingError
from autotune.tracking.base import Done, Recorded, Standing, TrackedRun, TrackedStudy, Tracker

PROJECT = "autotune"
"""Unless ``WANDB_PROJECT`` names another."""
CONTENT = "autotune.json"
"""File of a run's own that holds what it was made from."""
LONGEST_GROUP = 128
"""Characters, of Weights & Biases."""
Mode = Literal["online", "offline", "shared"]


def open_tracker(folder: Path | None) -> Tracker:
    """Return a tracker to a folder, or to where ``WANDB_DIR`` says.

    Raises:
        SettingsError: ``WANDB_MODE`` lets nothing be written.
        TrackingError: The folder cannot be made.
    """
    mode = os.environ["WANDB_MODE"]
    if mode not in ("online", "offline", "shared"):
        raise SettingsError(f"WANDB_MODE={mode} writes nothing; leave it out, or set it to online")
    home = (folder or Path(os.environ.get("WANDB_DIR", "."))).expanduser().absolute()
    with _faults():
        home.mkdir(parents=True, exist_ok=True)
    return _Wandb(home, cast(Mode, mode))


class _Wandb:
    """See Tracker."""

    def __init__(self, home: Path, mode: Mode) -> None:
        self._home = home
        self._mode: Mode = mode

    def record(self, study: TrackedStudy) -> Recorded:
        """See Tracker.

        A run that changed is written anew under its id: syncing it brings the older one up to
        date.
        """
        done: list[Done] = []
        with _faults():
            for run in study.trials:
                content = json.dumps(asdict(run), indent=2)
                before = self._newest_content(run.id)
                if before == content:
                    done.append(Done.SAME)
                    continue
                self._write(study, run, content)
                done.append(Done.NEW if before is None else Done.CHANGED)
            wandb.teardown()
        return Recorded.of(str(self._home / "wandb"), done)

    def _newest_content(self, run_id: str) -> str | None:
        """Return what a run here was last made from; their folders' names begin with the time."""
        folders = sorted((self._home / "wandb").glob(f"*run-*-{run_id}"))
        files = [folder / "files" / CONTENT for folder in folders]
        return next((file.read_text() for file in reversed(files) if file.is_file()), None)

    def _write(self, study: TrackedStudy, wanted: TrackedRun, content: str) -> None:
        run = wandb.init(
            id=wanted.id,
            resume="allow",
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            group=study.run.name[:LONGEST_GROUP],
            job_type="trial",
            name=wanted.name,
            config=_config(study, wanted),
            tags=_words(wanted),
            dir=str(self._home),
            mode=self._mode,
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                save_code=False,
                x_disable_meta=True,  # it would tell of this machine, not of the trial's
                x_disable_stats=True,
            ),
        )
        run.summary.update(wanted.metrics)
        (Path(run.dir) / CONTENT).write_text(content, encoding="utf-8")
        run.finish(exit_code=0 if wanted.standing == Standing.DONE else 1)


def _config(study: TrackedStudy, wanted: TrackedRun) -> dict[str, Any]:
    return {**wanted.params, "autotune": {**wanted.tags, "study_state": study.run.tags["state"]}}


def _words(wanted: TrackedRun) -> list[str]:
    marks = [mark for mark in ("on_front", "recommended") if wanted.tags[mark] == "yes"]
    return [wanted.tags["outcome"], *marks]


@contextmanager
def _faults() -> Iterator[None]:
    """Tell the client's faults, and a folder that cannot be made, as ours."""
    try:
        yield
    except WandbError as error:
        raise TrackingError(f"Weights & Biases refuses: {error}") from error
    except OSError as error:
        raise TrackingError(f"no folder for its runs: {error}; choose another --folder") from error
