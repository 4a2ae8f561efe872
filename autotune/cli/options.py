"""Flags, each said once: the same word means the same in every command."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer


class Output(StrEnum):
    """How a list is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Counting(NamedTuple):
    """How ``reprice`` counts, as it was typed."""

    by: str | None
    is_spot: bool
    is_measured_only: bool
    headroom: float
    samples: int | None
    target: float | None


def set_verbosity(verbose: int, quiet: bool) -> None:
    """Log warnings, with ``-v`` also each trial, with ``-vv`` everything, with ``-q`` errors."""
    import logging

    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    level = logging.ERROR if quiet else levels[min(verbose, 2)]
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s", force=True)
    for package in ("autotune", "trials", "search_spaces"):
        logging.getLogger(package).setLevel(level)


Workload = Annotated[
    str | None,
    typer.Option(
        help="What to train: byte-gpt[:1m|5m|25m|85m|350m], path/to/file.py:Name or "
        "package.module:Name."
    ),
]
Space = Annotated[
    str | None,
    typer.Option(help="default, small, full, free, or a TOML file."),
]
Pins = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KNOB=VALUE", help="Hold a knob at a value; repeatable."),
]
GlobalBatch = Annotated[
    int | None,
    typer.Option(help="Samples per optimizer step, the same in every trial."),
]
MemoryBudget = Annotated[
    str | None,
    typer.Option(help="Device memory of a trial, like 600MiB or 70GiB."),
]
Baseline = Annotated[
    Path | None,
    typer.Option(help="File with today's config, in any format that export writes."),
]
Deadline = Annotated[float | None, typer.Option(help="Seconds that one trial may take.")]
Seed = Annotated[int | None, typer.Option(help="Of everything random.")]
Study = Annotated[str | None, typer.Option(help="Name of the study.")]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="Name of the study.")]
Store = Annotated[
    str | None,
    typer.Option(help="Database: sqlite:///file.db or postgresql://user:password@host/db."),
]
Trials = Annotated[
    int | None,
    typer.Option("--trials", help="Most trials that run."),
]
Seconds = Annotated[float | None, typer.Option(help="Most wall time.")]
DeviceSeconds = Annotated[float | None, typer.Option(help="Most time of all trials together.")]
Usd = Annotated[float | None, typer.Option(help="Most money, as device time.")]
PlannedHours = Annotated[
    float | None,
    typer.Option(
        help="Training that the config is for: stop once a trial costs more than it may save; "
        "0 to go on."
    ),
]
Objectives = Annotated[
    str | None,
    typer.Option(help="Of cost,throughput,quality; the first decides the recommendation."),
]
Sampler = Annotated[
    str | None,
    typer.Option(help="Who proposes configs: frontier, tpe, gp, nsga2, random or grid."),
]
QualityRepeats = Annotated[
    int | None,
    typer.Option(help="Seeds over which the noise of quality is measured."),
]
Confirm = Annotated[
    bool | None,
    typer.Option(
        "--confirm/--no-confirm", help="Run the recommended config a second time, at the end."
    ),
]
Slots = Annotated[int | None, typer.Option(help="Trials at once.")]
Local = Annotated[
    bool | None,
    typer.Option("--local", help="Run trials from this process, without Ray."),
]
RayAddress = Annotated[str | None, typer.Option(help="HOST:PORT of a running cluster.")]
NvmePath = Annotated[
    Path | None,
    typer.Option(help="Folder on a fast local disk, for offload_target=nvme."),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.")]
NumDevices = Annotated[
    int | None,
    typer.Option(help="Data-parallel devices of the real job."),
]
TrialDevices = Annotated[
    int | None,
    typer.Option(help="Devices that one trial really trains on together."),
]
Prices = Annotated[
    Path | None,
    typer.Option(
        help="Price book: TOML, CSV or the SkyPilot catalogue's CSV; built-in if left out."
    ),
]
RatesDated = Annotated[
    str | None,
    typer.Option(metavar="DAY", help="Day of a price book that does not say, like 2026-06-30."),
]
DeviceRate = Annotated[
    float | None,
    typer.Option("--device-usd-per-hour", help="Rate of a device."),
]
DeviceGibRate = Annotated[
    float | None,
    typer.Option("--device-gib-usd-per-hour", help="Rate of device memory."),
]
HostGibRate = Annotated[
    float | None,
    typer.Option("--host-gib-usd-per-hour", help="Rate of host memory."),
]
NvmeGibRate = Annotated[
    float | None,
    typer.Option("--nvme-gib-usd-per-hour", help="Rate of NVMe."),
]
MeasuredOnly = Annotated[
    bool, typer.Option("--measured", help="Only instances with the device measured on.")
]
Headroom = Annotated[
    float, typer.Option(min=0, max=1, help="Share of memory and disk to keep free.")
]
RunSamples = Annotated[
    int, typer.Option("--samples", min=1, help="Samples of the run, or of one of its epochs.")
]
Epochs = Annotated[int, typer.Option(min=1, help="How often it goes over them.")]
Mtbf = Annotated[
    float | None,
    typer.Option(
        metavar="HOURS",
        min=1e-3,
        help="Mean time between preemptions; what the book says if left out.",
    ),
]
RestartSeconds = Annotated[
    float, typer.Option(min=0, help="From a preemption until another machine is there.")
]
StorageRate = Annotated[
    float,
    typer.Option(min=1e-6, help="Bandwidth of the storage that checkpoints go to, in GB/s."),
]
SettingsFile = Annotated[Path | None, typer.Option("--settings", help="TOML file of settings.")]
OutputForm = Annotated[Output, typer.Option("--output", help="How to print.")]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, help="Log more.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, errors only.")]
