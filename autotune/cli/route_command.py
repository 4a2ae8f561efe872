"""The command that plans where a run goes; like all commands it loads its work when it is run."""

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import options as opt
from autotune.cli.commands import app


@app.command()
def route(
    study: opt.StudyName,
    samples: opt.RunSamples,
    epochs: opt.Epochs = 1,
    prices: opt.Prices = None,
    rates_dated: opt.RatesDated = None,
    mtbf: opt.Mtbf = None,
    restart_seconds: opt.RestartSeconds = 300.0,
    storage_gb_per_second: opt.StorageRate = 1.0,
    headroom: opt.Headroom = 0.05,
    measured: opt.MeasuredOnly = False,
    form: Annotated[str | None, typer.Option("--format", help="json, skypilot or ray.")] = None,
    job_class: Annotated[
        str | None, typer.Option("--class", help="skypilot: memory-frugal or memory-intensive.")
    ] = None,
    command: Annotated[
        str | None, typer.Option("--run", metavar="COMMAND", help="skypilot: what to run.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="File of --format; standard output if left out.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    store: opt.Store = None,
    output: opt.OutputForm = opt.Output.TABLE,
) -> None:
    """Plan on which machine a run goes, spot or on demand. Runs and changes nothing."""
    from autotune.cli.routing import RouteWords, run_request, show_routes
    from autotune.settings import Settings

    request = run_request(
        samples * epochs,
        mtbf_hours=mtbf,
        restart_seconds=restart_seconds,
        storage_gb_per_second=storage_gb_per_second,
        headroom=headroom,
        is_measured_only=measured,
    )
    words = RouteWords(
        form=form, job_class=job_class, command=command, to=to, replaces=force, output=output
    )
    flags = {"study": study, "prices": prices, "rates_dated": rates_dated, "store": store}
    show_routes(Settings.load(flags), request, words)
