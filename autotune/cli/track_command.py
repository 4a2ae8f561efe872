"""The command that tracks a study; like all commands it loads its work when it is run."""

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import options as opt
from autotune.cli.commands import app


@app.command()
def track(
    study: opt.StudyName,
    to: Annotated[str, typer.Option(help="mlflow or wandb.")],
    folder: Annotated[
        Path | None,
        typer.Option(help="Where runs are kept; by its own variables if left out."),
    ] = None,
    store: opt.Store = None,
) -> None:
    """Keep a study in MLflow or Weights & Biases; said again, it brings it up to date."""
    from autotune.cli.tracking import track_study
    from autotune.settings import Settings

    track_study(Settings.load({"study": study, "store": store}), to, folder)
