"""The commands. Each parses, calls one function and prints; doors open inside it.

``autotune --help`` must not load torch or ray, hence the imports within the functions.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli import options as opt
from autotune.cli.interrupts import leave_on_interrupt

app = typer.Typer(
    name="autotune",
    help="Learn by measurement which memory configuration to train with.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rendering with rich takes longer than everything else of --help
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        sys.stdout.write(f"autotune {version('autotune')}\n")
        raise typer.Exit


@app.callback()
def autotune(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Learn by measurement which memory configuration to train with."""


@app.command()
def run(
    workload: opt.Workload = None,
    space: opt.Space = None,
    pins: opt.Pins = None,
    global_batch: opt.GlobalBatch = None,
    num_devices: opt.NumDevices = None,
    trial_devices: opt.TrialDevices = None,
    memory_budget: opt.MemoryBudget = None,
    baseline: opt.Baseline = None,
    deadline: opt.Deadline = None,
    seed: opt.Seed = None,
    study: opt.Study = None,
    store: opt.Store = None,
    trials: opt.Trials = None,
    seconds: opt.Seconds = None,
    device_seconds: opt.DeviceSeconds = None,
    usd: opt.Usd = None,
    planned_hours: opt.PlannedHours = None,
    objectives: opt.Objectives = None,
    sampler: opt.Sampler = None,
    quality_repeats: opt.QualityRepeats = None,
    confirm: opt.Confirm = None,
    slots: opt.Slots = None,
    local: opt.Local = None,
    ray_address: opt.RayAddress = None,
    nvme_path: opt.NvmePath = None,
    device: opt.Device = None,
    prices: opt.Prices = None,
    rates_dated: opt.RatesDated = None,
    device_usd_per_hour: opt.DeviceRate = None,
    device_gib_usd_per_hour: opt.DeviceGibRate = None,
    host_gib_usd_per_hour: opt.HostGibRate = None,
    nvme_gib_usd_per_hour: opt.NvmeGibRate = None,
    settings_file: opt.SettingsFile = None,
    output: opt.OutputForm = opt.Output.TABLE,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Begin a study: try configs by real trials and find the front.

    Without any flag it trains byte-gpt, a small transformer, on this machine.
    """
    leave_on_interrupt()
    from autotune.cli.running import run_and_show

    opt.set_verbosity(verbose, quiet)
    run_and_show(_settings(locals()), _pins(pins), output=output, is_quiet=quiet)


@app.command()
def resume(
    study: opt.StudyName,
    store: opt.Store = None,
    trials: opt.Trials = None,
    seconds: opt.Seconds = None,
    device_seconds: opt.DeviceSeconds = None,
    usd: opt.Usd = None,
    planned_hours: opt.PlannedHours = None,
    confirm: opt.Confirm = None,
    slots: opt.Slots = None,
    local: opt.Local = None,
    ray_address: opt.RayAddress = None,
    settings_file: opt.SettingsFile = None,
    output: opt.OutputForm = opt.Output.TABLE,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Go on with a study where it stopped; a larger budget may be given."""
    leave_on_interrupt()
    from autotune.cli.running import resume_and_show

    opt.set_verbosity(verbose, quiet)
    resume_and_show(_settings(locals()), output=output, is_quiet=quiet)


@app.command()
def probe(
    workload: opt.Workload = None,
    pins: opt.Pins = None,
    global_batch: opt.GlobalBatch = None,
    trial_devices: opt.TrialDevices = None,
    memory_budget: opt.MemoryBudget = None,
    deadline: opt.Deadline = None,
    seed: opt.Seed = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also profile a few steps, and write operators, memory and a trace here.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write to a --profile folder that is not empty.")
    ] = False,
    local: opt.Local = None,
    ray_address: opt.RayAddress = None,
    nvme_path: opt.NvmePath = None,
    device: opt.Device = None,
    settings_file: opt.SettingsFile = None,
    output: opt.OutputForm = opt.Output.TABLE,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Measure one config once: where its memory and its time go. Writes only a profile."""
    leave_on_interrupt()
    from autotune.cli.running import probe_and_show

    opt.set_verbosity(verbose, quiet)
    probe_and_show(
        _settings(locals()), _pins(pins), profile_to=profile, replaces=force, output=output
    )


@app.command()
def estimate(
    workload: opt.Workload = None,
    space: opt.Space = None,
    pins: opt.Pins = None,
    global_batch: opt.GlobalBatch = None,
    num_devices: opt.NumDevices = None,
    trial_devices: opt.TrialDevices = None,
    memory_budget: opt.MemoryBudget = None,
    store: opt.Store = None,
    device: opt.Device = None,
    nvme_path: opt.NvmePath = None,
    deadline: opt.Deadline = None,
    settings_file: opt.SettingsFile = None,
    output: opt.OutputForm = opt.Output.TABLE,
) -> None:
    """Predict memory and time of every config, without a device or a trial.

    Trials of the same workload here that are in the store make it precise.
    """
    from autotune.cli.estimates import show_estimate

    show_estimate(_settings(locals()), _pins(pins), output)


@app.command()
def playbook(
    workload: opt.Workload = None,
    pins: opt.Pins = None,
    global_batch: opt.GlobalBatch = None,
    num_devices: opt.NumDevices = None,
    trial_devices: opt.TrialDevices = None,
    memory_budget: opt.MemoryBudget = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Predict each step; train nothing.")
    ] = False,
    deadline: opt.Deadline = None,
    seed: opt.Seed = None,
    store: opt.Store = None,
    objectives: opt.Objectives = None,
    quality_repeats: opt.QualityRepeats = None,
    local: opt.Local = None,
    ray_address: opt.RayAddress = None,
    nvme_path: opt.NvmePath = None,
    device: opt.Device = None,
    prices: opt.Prices = None,
    rates_dated: opt.RatesDated = None,
    settings_file: opt.SettingsFile = None,
    output: opt.OutputForm = opt.Output.TABLE,
    quiet: opt.Quiet = False,
) -> None:
    """Take the usual steps to less memory, each measured against the last.

    It stops at the step that fits --memory-budget; without one it takes them all.
    """
    leave_on_interrupt()
    from autotune.cli.playbooks import play_and_show

    play_and_show(
        _settings(locals()), _pins(pins), is_estimate=estimate, output=output, is_quiet=quiet
    )


@app.command()
def studies(store: opt.Store = None, output: opt.OutputForm = opt.Output.TABLE) -> None:
    """List the studies of the store."""
    from autotune.cli.reading import show_studies

    show_studies(_settings(locals()), output)


@app.command()
def trials(
    study: opt.StudyName, store: opt.Store = None, output: opt.OutputForm = opt.Output.TABLE
) -> None:
    """List a study's trials, the ones that did not fit included."""
    from autotune.cli.reading import show_trials

    show_trials(_settings(locals()), output)


@app.command()
def front(
    study: opt.StudyName, store: opt.Store = None, output: opt.OutputForm = opt.Output.TABLE
) -> None:
    """List the points of a study that no other beats."""
    from autotune.cli.reading import show_front

    show_front(_settings(locals()), output)


@app.command()
def best(
    study: opt.StudyName, store: opt.Store = None, output: opt.OutputForm = opt.Output.TABLE
) -> None:
    """Show the recommended point of a study, and why."""
    from autotune.cli.reading import show_best

    show_best(_settings(locals()), output)


@app.command()
def verify(
    study: opt.StudyName,
    number: Annotated[
        int | None,
        typer.Option("--trial", help="This trial alone; else the best, then the next."),
    ] = None,
    through: Annotated[
        str,
        typer.Option(help="Who: torch, transformers, accelerate, deepspeed or lightning."),
    ] = "torch",
    repeats: Annotated[int, typer.Option(min=1, help="Runs, each in a process of its own.")] = 5,
    store: opt.Store = None,
    local: opt.Local = None,
    ray_address: opt.RayAddress = None,
    settings_file: opt.SettingsFile = None,
) -> None:
    """Train a few steps with what is exported, and hold them against the trial."""
    leave_on_interrupt()
    from autotune.cli.verifying import verify_and_show

    verify_and_show(_settings(locals()), number=number, through=through, repeats=repeats)


@app.command()
def reprice(
    study: opt.StudyName,
    prices: opt.Prices = None,
    rates_dated: opt.RatesDated = None,
    by: Annotated[
        str | None,
        typer.Option(help="component or instance; components where the book has them."),
    ] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Pay spot prices of instances.")] = False,
    measured: opt.MeasuredOnly = False,
    headroom: opt.Headroom = 0.05,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Samples of an epoch, to show what one costs.")
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="Quality, to show what training to it costs at most.")
    ] = None,
    store: opt.Store = None,
    output: opt.OutputForm = opt.Output.TABLE,
) -> None:
    """Show a study's front under other prices. Runs and changes nothing."""
    from autotune.cli.pricing import reprice_and_show

    counting = opt.Counting(by, spot, measured, headroom, samples, target)
    reprice_and_show(_settings(locals()), counting, output=output)


@app.command()
def sensitivity(
    study: opt.StudyName,
    prices: opt.Prices = None,
    rates_dated: opt.RatesDated = None,
    of: Annotated[
        list[str] | None,
        typer.Option(
            help="device, device-memory, host-memory, nvme or spot; repeatable; all if left out."
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="spot: samples of the run that may be preempted.")
    ] = None,
    mtbf: opt.Mtbf = None,
    restart_seconds: opt.RestartSeconds = 300.0,
    storage_gb_per_second: opt.StorageRate = 1.0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it too, as .svg or .html.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    store: opt.Store = None,
    output: opt.OutputForm = opt.Output.TABLE,
) -> None:
    """Show at which prices another config is the cheapest. Runs and changes nothing."""
    from autotune.cli.pricing import show_sensitivity
    from autotune.cli.routing import run_request

    run = None
    if samples is not None:
        run = run_request(
            samples,
            mtbf_hours=mtbf,
            restart_seconds=restart_seconds,
            storage_gb_per_second=storage_gb_per_second,
        )
    settings = _settings(locals())
    show_sensitivity(settings, of or [], run, plot=plot, replaces=force, output=output)


@app.command()
def report(
    study: opt.StudyName,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Page to write; STUDY.html if left out."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    store: opt.Store = None,
) -> None:
    """Write a study as one HTML page that needs no network. Runs and changes nothing."""
    from autotune.cli.reporting import write_report

    write_report(_settings(locals()), to, replaces=force)


@app.command()
def export(
    study: opt.StudyName,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="json, toml, deepspeed, transformers, accelerate, lightning, torchtune, axolotl, "
            "llama-factory, ray-train, env or shell.",
        ),
    ] = "json",
    trial: Annotated[
        int | None, typer.Option(help="Trial; the recommended one if left out.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="File; standard output if left out.")] = None,
    pair: Annotated[
        str | None,
        typer.Option(help="deepspeed: write its JSON too, for a file that names one."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Optimizer steps of the training, to pin.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    store: opt.Store = None,
) -> None:
    """Write a trial's config for the pipeline that will train."""
    from autotune.cli.exporting import ExportRequest, export_trial

    request = ExportRequest(form=form, number=trial, pair=pair, steps=steps, to=to, replaces=force)
    export_trial(_settings(locals()), request)


@app.command()
def dashboard(
    store: opt.Store = None,
    port: Annotated[int, typer.Option(help="On the loopback interface; 0 for a free one.")] = 8080,
) -> None:
    """Serve the Optuna dashboard of the store, read-only, on this machine alone."""
    from autotune.cli.serving import serve_dashboard

    serve_dashboard(_settings(locals()), port)


@app.command()
def doctor(
    store: opt.Store = None,
    workload: opt.Workload = None,
    nvme_path: opt.NvmePath = None,
    build: Annotated[
        bool, typer.Option("--build", help="First compile DeepSpeed's operators, once.")
    ] = False,
    output: opt.OutputForm = opt.Output.TABLE,
) -> None:
    """Check what this machine has for trials, and say what to do about what it lacks."""
    from autotune.cli.checking import build_and_tell, show_checks

    if build:
        build_and_tell()
    show_checks(_settings(locals()), output)


@app.command()
def migrate(store: opt.Store = None) -> None:
    """Bring an older store up to this program's schema."""
    from autotune.cli.reading import migrate_store

    migrate_store(_settings(locals()))


@app.command()
def delete(
    study: opt.StudyName,
    store: opt.Store = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a study with its trials; measurements stay and can answer other studies."""
    from autotune.cli.reading import delete_study

    delete_study(_settings(locals()), asks=not yes)


def _settings(given: dict[str, Any]) -> Any:
    """Build the settings from a command's arguments, leaving its other words aside."""
    from autotune.settings import Settings

    flags = {name: value for name, value in given.items() if name in Settings.model_fields}
    return Settings.load(flags, given.get("settings_file"))


def _pins(pairs: list[str] | None) -> dict[str, object]:
    from autotune.errors import SettingsError

    pins: dict[str, object] = {}
    for pair in pairs or ():
        knob, separator, value = pair.partition("=")
        if not separator:
            raise SettingsError(f"--set {pair!r}: write KNOB=VALUE, like checkpoint_interval=2")
        pins[knob.strip()] = value.strip()
    return pins
