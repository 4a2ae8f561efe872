"""Train with what is exported, through the program that it is for, before it is recommended."""

import json
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotune.errors import NoMeasurementsError, NothingFitsError, SettingsError
from autotune.exports import Handover, export_bundle
from autotune.exports.base import scripts_own
from autotune.front import recommend
from autotune.records import MeasurementKey, StudyRecord, TrialRecord
from autotune.session import require_same
from autotune.settings import Settings
from autotune.store.base import StudyStore
from autotune.store.reader import StoreReader
from autotune.store.sql import SqlStore
from autotune.verdicts import NEWEST, Verdict, judge
from autotune.workers import Workers
from autotune.workplace import opened_workers, run_one
from search_spaces import TrainingConfig, stable_hash
from trials.command_line import is_command
from trials.measurement import Measurement, Outcome
from trials.spec import SWAP_FOLDER, Task, Through, TrialSpec

STEPS = 10
MAX_TRIES = 3
TARGETS = tuple(through for through in Through if through != Through.TRIAL)
FILES = {
    Through.TRANSFORMERS: "transformers.json",
    Through.ACCELERATE: "accelerate.yaml",
    Through.DEEPSPEED: "deepspeed.json",
    Through.LIGHTNING: "lightning.yaml",
}
"""What each reads, of the export of its name; plain PyTorch takes our own document."""
Tell = Callable[[TrialRecord, Verdict], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be verified.

    Attributes:
        number: Of the trial; None for the recommended one, and the next if it does not hold.
        through: The program that trains.
        repeats: Runs of each, in a process of their own.
    """

    number: int | None
    through: Through
    repeats: int


def verify_study(settings: Settings, request: Request, tell: Tell) -> TrialRecord:
    """Train with a trial's export; with the next point of the front's if it does not hold.

    Each run is kept in the store as a measurement of how it was made.

    Args:
        settings: Name the study, the store and the workers.
        request: What to verify.
        tell: Called with each trial and what came of it.

    Returns:
        The trial that is verified, and recommended from now on unless it was asked for by number.

    Raises:
        NoMeasurementsError: There is no such trial, or none that completed.
        UnsupportedExportError: The program's file cannot express the config.
        NothingFitsError: None tried trains there as it was measured.
    """
    name = settings.study
    assert name is not None
    StoreReader.open(settings.store).close()
    with closing(SqlStore.open(settings.store)) as store:
        record = store.study(name)
        _require_verifiable(record)
        begun = settings.model_copy(
            update={
                "workload": record.spec.workload,
                "device": record.environment.device_kind,
                "nvme_path": record.spec.nvme_path,
            }
        )
        trial = _chosen(store, record, request.number, ())
        _export(trial, record, request.through)  # refused before any process starts
        with opened_workers(begun) as workers:
            require_same(record, workers)
            return verify_on(store, record, workers, request, tell)


def verdicts_of(
    store: StudyStore, record: StudyRecord, trial: TrialRecord
) -> dict[Through, Verdict]:
    """Return what the stored runs of a trial's export say, by program."""
    found: dict[Through, Verdict] = {}
    if trial.measurement is None or trial.measurement.outcome != Outcome.COMPLETED:
        return found
    references = store.measurements(_key(record, trial, Through.TRIAL))
    for through in TARGETS if references else ():
        stored = store.measurements(_key(record, trial, through))[:NEWEST]
        if stored:
            found[through] = judge(
                through,
                trial.measurement,
                references[0].measurement,
                [one.measurement for one in stored],
                record.spec.memory_budget_bytes,
            )
    return found


def verify_on(
    store: StudyStore, record: StudyRecord, workers: Workers, request: Request, tell: Tell
) -> TrialRecord:
    """Do what ``verify_study`` does, on a store and workers that are there."""
    refuted: list[int] = []
    while len(refuted) < MAX_TRIES:
        trial = _chosen(store, record, request.number, refuted)
        for through in (Through.TRIAL, *[request.through] * request.repeats):
            found = run_one(workers, _spec(record, trial, through, request.through))
            _keep(store, record, trial, through, found)
        verdict = verdicts_of(store, record, trial)[request.through]
        tell(trial, verdict)
        if verdict.is_verified:
            if request.number is None:
                numbers = [point.number for point in store.front(record.spec.name)]
                store.set_front(record.spec.name, numbers, trial.number)
            return trial
        refuted.append(trial.number)
        if request.number is not None or len(refuted) == len(store.front(record.spec.name)):
            break
    raise NothingFitsError(
        f"trial(s) {', '.join(map(str, refuted))} of {record.spec.name} do not train through "
        f"{request.through} as they were measured; try another --through, or another --trial"
    )


def _chosen(
    store: StudyStore,
    record: StudyRecord,
    number: int | None,
    refuted: tuple[int, ...] | list[int],
) -> TrialRecord:
    name = record.spec.name
    if number is not None:
        found = [trial for trial in store.trials(name) if trial.number == number]
        if not found or not found[0].is_feasible or found[0].measurement is None:
            raise NoMeasurementsError(
                f"study {name!r} has no trial {number} that completed; see autotune trials {name}"
            )
        return found[0]
    front = [trial for trial in store.front(name) if trial.number not in refuted]
    chosen = recommend(front, record.spec.objectives, record.facts.quality_direction)
    if chosen is None:
        raise NoMeasurementsError(f"study {name!r} has no front yet; see autotune trials {name}")
    return next(trial for trial in front if trial.number == chosen.number)


def _require_verifiable(record: StudyRecord) -> None:
    if is_command(record.spec.workload):
        raise SettingsError(
            f"workload {record.spec.workload} is a program that trains by itself: its trials ran "
            "it already, and there is nothing else to verify it through"
        )
    if record.spec.space.num_devices > 1:
        raise SettingsError(
            f"study {record.spec.name} is for {record.spec.space.num_devices} devices, and verify "
            "trains on one; launch the exported file itself for a few steps"
        )


def _export(trial: TrialRecord, record: StudyRecord, through: Through) -> dict[str, str]:
    handover = Handover(trial=trial, study=record, now=datetime.now(UTC), steps=STEPS)
    own = export_bundle(handover, form="json", pair=None, to=None).text
    files = {"config.json": json.dumps(json.loads(own))}
    if through in FILES:
        _require_expressible(trial.config, through)
        text = export_bundle(handover, form=str(through), pair=None, to=None).text
        files[FILES[through]] = text
    return files


def _require_expressible(config: TrainingConfig, through: Through) -> None:
    """Refuse what a file leaves to a launcher, or to a script that only the user has.

    Raises:
        SettingsError: The config has it; the message names the knob.
    """
    if config.zero_stage and through in (Through.TRANSFORMERS, Through.ACCELERATE):
        way = "use --through deepspeed" if config.is_zero else "launch the exported file itself"
        raise SettingsError(
            f"zero_stage={config.zero_stage}: verify trains in one process and starts no "
            f"{through} launcher; verify another trial, or {way}"
        )
    own = scripts_own(config)
    if own:
        raise SettingsError(
            f"{', '.join(own)}: a file for {through} has no key for it, and your own script must "
            "do it; verify another trial, or run that script with the exported file for a few "
            "steps"
        )


def _spec(record: StudyRecord, trial: TrialRecord, through: Through, target: Through) -> TrialSpec:
    """Return a run; a file that has state go to disk has it go to the run's own folder."""
    spec = record.spec
    run = TrialSpec(
        workload=spec.workload,
        config=trial.config,
        task=Task.VERIFY,
        trial_id=uuid.uuid4().hex,
        memory_budget_bytes=spec.memory_budget_bytes,
        seed=spec.seed,
        nvme_path=spec.nvme_path,
        deadline_seconds=spec.deadline_seconds,
        timing=spec.timing,
        through=through,
        handed_steps=STEPS,
    )
    if run.swaps_to_disk:
        record = replace(record, spec=replace(spec, nvme_path=SWAP_FOLDER))
    return replace(run, handed=_export(trial, record, target))


def _key(record: StudyRecord, trial: TrialRecord, through: Through) -> MeasurementKey:
    bare = TrialSpec(workload="", seed=record.spec.seed, timing=record.spec.timing)
    return MeasurementKey(
        workload=record.facts.fingerprint,
        config=trial.config,
        environment=record.environment.hash,
        protocol=stable_hash(["verify", str(through), STEPS, bare.protocol]),
    )


def _keep(
    store: StudyStore,
    record: StudyRecord,
    trial: TrialRecord,
    through: Through,
    measurement: Measurement,
) -> None:
    late = replace(trial, lease="")  # no trial of the study: kept as evidence of its config
    budget = record.spec.memory_budget_bytes
    store.record_measurement(late, _key(record, trial, through), budget, measurement)
