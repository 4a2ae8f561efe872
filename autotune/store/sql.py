"""The study store in a SQL database: SQLite in a file, or PostgreSQL."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from typing import Any, Self

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    Table,
    and_,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from autotune.errors import (
    LeaseLostError,
    StoreError,
    StudyExistsError,
    StudyNotFoundError,
)
from autotune.records import (
    Budget,
    MeasurementKey,
    Owner,
    Scores,
    Source,
    StoredMeasurement,
    StoredQuality,
    StudyRecord,
    StudyState,
    StudySummary,
    TrialRecord,
    TrialState,
    WorkTime,
)
from autotune.store import rows
from autotune.store.base import StudyStore
from autotune.store.engine import READ_ONLY, normalise_url, open_engine
from autotune.store.faults import database_faults
from autotune.store.leases import require_free
from autotune.store.migrate import require_current_schema
from autotune.store.schema import (
    ENVIRONMENTS,
    FRONT_POINTS,
    MEASUREMENTS,
    QUALITIES,
    STUDIES,
    TRIALS,
)
from search_spaces import did_you_mean
from trials.measurement import Measurement, Outcome

TRIAL_ROWS = select(TRIALS, MEASUREMENTS.c.document)


class SqlStore(StudyStore):
    """Studies in a SQL database. See StudyStore."""

    def __init__(self, engine: Engine) -> None:
        """Use a database whose schema is current; ``open`` makes sure that it is."""
        self._writer: Engine = engine
        self._reader: Engine | Connection = engine.execution_options(**READ_ONLY)

    @classmethod
    def open(cls, url: str) -> Self:
        """Open the store at an address, and make its tables if it is new.

        Raises:
            SettingsError: The address is none of a store.
            StoreSchemaError: The store is older or newer than this program.
            StoreUnreachableError: The database cannot be used; the message says why.
        """
        engine = open_engine(normalise_url(url))
        try:
            require_current_schema(engine)
        except StoreError:
            engine.dispose()
            raise
        return cls(engine)

    def create_study(self, record: StudyRecord) -> None:
        """See StudyStore."""
        with transaction(self._writer) as connection:
            _upsert(connection, ENVIRONMENTS, rows.environment_values(record.environment))
            try:
                connection.execute(insert(STUDIES).values(rows.study_values(record)))
            except IntegrityError:
                name = record.spec.name
                raise StudyExistsError(
                    f"study {name!r} exists already; resume it, or name another"
                ) from None

    def study(self, name: str) -> StudyRecord:
        """See StudyStore."""
        query = select(STUDIES, ENVIRONMENTS.c.document).join(ENVIRONMENTS)
        with transaction(self._reader) as connection:
            row = connection.execute(query.where(STUDIES.c.name == name)).one_or_none()
            if row is None:
                raise _not_found(connection, name)
        return rows.study_record(row)

    def studies(self) -> list[StudySummary]:
        """See StudyStore."""
        told = (TRIALS.c.study == STUDIES.c.name) & (TRIALS.c.state == TrialState.TOLD)
        query = (
            select(
                STUDIES,
                func.count(TRIALS.c.number).label("num_trials"),
                _count_outcome(Outcome.COMPLETED).label("num_completed"),
                _count_outcome(Outcome.OUT_OF_MEMORY).label("num_out_of_memory"),
            )
            .outerjoin(TRIALS, told)
            .group_by(STUDIES.c.name)
            .order_by(STUDIES.c.created_at.desc(), STUDIES.c.name)
        )
        with transaction(self._reader) as connection:
            found = connection.execute(query).all()
        return [rows.study_summary(row) for row in found]

    def delete_study(self, name: str) -> None:
        """See StudyStore."""
        with transaction(self._writer) as connection:
            _take_free(connection, name)
            connection.execute(delete(STUDIES).where(STUDIES.c.name == name))

    def claim(
        self, name: str, owner: Owner, lease_seconds: float, budget: Budget | None = None
    ) -> int:
        """See StudyStore."""
        with transaction(self._writer) as connection:
            row = _take_free(connection, name)
            epoch = row.epoch + 1
            connection.execute(
                update(STUDIES)
                .where(STUDIES.c.name == name)
                .values(
                    epoch=epoch,
                    owner_host=owner.host,
                    owner_pid=owner.pid,
                    owner_started_at=owner.started_at,
                    lease_expires_at=_now(connection) + lease_seconds,
                    state=StudyState.RUNNING,
                    stop_reason="",
                    spec=row.spec if budget is None else rows.spec_under(row.spec, budget),
                )
            )
        return int(epoch)

    def renew(self, name: str, epoch: int, lease_seconds: float, worked: WorkTime) -> None:
        """See StudyStore."""
        with transaction(self._writer) as connection:
            renewed = connection.execute(
                update(STUDIES)
                .where(_is_claim(name, epoch), STUDIES.c.lease_expires_at.is_not(None))
                .values(
                    lease_expires_at=_now(connection) + lease_seconds,
                    wall_seconds=STUDIES.c.wall_seconds + worked.wall_seconds,
                    device_seconds=STUDIES.c.device_seconds + worked.device_seconds,
                )
            )
        if renewed.rowcount == 0:
            raise LeaseLostError(
                f"this process no longer runs study {name!r}: another took it over, "
                "or it was released or deleted; what is measured so far is kept"
            )

    def release(self, name: str, epoch: int, state: StudyState, stop_reason: str) -> None:
        """See StudyStore."""
        values = {"state": state, "stop_reason": rows.plain_text(stop_reason)}
        with transaction(self._writer) as connection:
            connection.execute(
                update(STUDIES)
                .where(_is_claim(name, epoch))
                .values(lease_expires_at=None, **values)
            )

    def open_trial(self, trial: TrialRecord) -> None:
        """See StudyStore."""
        with transaction(self._writer) as connection:
            _require_study(connection, trial.study)
            connection.execute(insert(TRIALS).values(rows.trial_values(trial)))

    def record_measurement(
        self,
        trial: TrialRecord,
        key: MeasurementKey,
        memory_budget_bytes: int | None,
        measurement: Measurement,
    ) -> bool:
        """See StudyStore."""
        values = rows.measurement_values(key, memory_budget_bytes, measurement)
        with transaction(self._writer) as connection:
            kept = insert(MEASUREMENTS).values(values).returning(MEASUREMENTS.c.id)
            attached = connection.execute(
                update(TRIALS)
                .where(_is_leased(trial.study, trial.number), TRIALS.c.lease == trial.lease)
                .values(
                    state=TrialState.MEASURED,
                    outcome=measurement.outcome,
                    reason=rows.plain_text(measurement.reason),
                    measurement_id=connection.scalar(kept),
                )
            )
        return attached.rowcount == 1

    def measurements(self, key: MeasurementKey) -> list[StoredMeasurement]:
        """See StudyStore."""
        query = (
            select(MEASUREMENTS)
            .filter_by(**rows.key_values(key))
            .order_by(MEASUREMENTS.c.id.desc())
        )
        with transaction(self._reader) as connection:
            found = connection.execute(query).all()
        return [rows.stored_measurement(row) for row in found]

    def later_measurements(self, study: str) -> dict[int, list[StoredMeasurement]]:
        """See StudyStore."""
        own, later = MEASUREMENTS.alias("own"), MEASUREMENTS.alias("later")
        is_of_same_key = and_(*(own.c[part] == later.c[part] for part in rows.KEY_COLUMNS))
        query = (
            select(TRIALS.c.number, later.c.id, later.c.memory_budget_bytes, later.c.document)
            .join(own, own.c.id == TRIALS.c.measurement_id)
            .join(later, is_of_same_key & (later.c.id > own.c.id))
            .where(TRIALS.c.study == study, own.c.outcome == Outcome.COMPLETED)
            .order_by(later.c.id.desc())
        )
        with transaction(self._reader) as connection:
            found = connection.execute(query).all()
        by_number: dict[int, list[StoredMeasurement]] = {}
        for row in found:
            by_number.setdefault(row.number, []).append(rows.stored_measurement(row))
        return by_number

    def record_quality(self, quality: StoredQuality) -> None:
        """See StudyStore."""
        with transaction(self._writer) as connection:
            _upsert(connection, QUALITIES, rows.quality_values(quality))

    def qualities(self, workload: str, environment: str, samples: int) -> list[StoredQuality]:
        """See StudyStore."""
        query = (
            select(QUALITIES)
            .filter_by(workload=workload, environment=environment, samples=samples)
            .order_by(QUALITIES.c.numerics, QUALITIES.c.seed)
        )
        with transaction(self._reader) as connection:
            found = connection.execute(query).all()
        return [rows.stored_quality(row) for row in found]

    def tell_trial(self, trial: TrialRecord, scores: Scores, violation: float) -> None:
        """See StudyStore."""
        has_result = TRIALS.c.state.in_((TrialState.MEASURED, TrialState.TOLD))
        is_predicted = TRIALS.c.source == Source.PREDICTED
        reason = {"reason": rows.plain_text(trial.reason)} if trial.reason else {}
        with transaction(self._writer) as connection:
            told = connection.execute(
                update(TRIALS)
                .where(_is_trial(trial.study, trial.number), has_result | is_predicted)
                .values(state=TrialState.TOLD, violation=violation, **reason, **asdict(scores))
            )
        if told.rowcount == 0:
            raise StoreError(
                f"trial {trial.number} of study {trial.study!r} has no result to tell"
            )

    def lose_trial(self, study: str, number: int, reason: str) -> None:
        """See StudyStore."""
        values = {"state": TrialState.LOST, "reason": rows.plain_text(reason)}
        with transaction(self._writer) as connection:
            connection.execute(update(TRIALS).where(_is_leased(study, number)).values(values))

    def trials(self, study: str) -> list[TrialRecord]:
        """See StudyStore."""
        of_study = TRIAL_ROWS.outerjoin(MEASUREMENTS).where(TRIALS.c.study == study)
        return self._trials(study, of_study.order_by(TRIALS.c.number))

    def set_front(self, study: str, numbers: Sequence[int], recommended: int | None) -> None:
        """See StudyStore."""
        assert recommended is None or recommended in numbers
        points = [
            {"study": study, "number": n, "rank": rank, "is_recommended": n == recommended}
            for rank, n in enumerate(numbers, start=1)
        ]
        with transaction(self._writer) as connection:
            connection.execute(delete(FRONT_POINTS).where(FRONT_POINTS.c.study == study))
            if points:
                connection.execute(insert(FRONT_POINTS), points)

    def front(self, study: str) -> list[TrialRecord]:
        """See StudyStore."""
        points = FRONT_POINTS.join(TRIALS).outerjoin(MEASUREMENTS)
        on_front = TRIAL_ROWS.select_from(points).where(FRONT_POINTS.c.study == study)
        return self._trials(study, on_front.order_by(FRONT_POINTS.c.rank))

    def recommended(self, study: str) -> int | None:
        """See StudyStore."""
        query = select(FRONT_POINTS.c.number).filter_by(study=study, is_recommended=True)
        with transaction(self._reader) as connection:
            return connection.scalar(query)

    def close(self) -> None:
        """See StudyStore."""
        self._writer.dispose()

    def _trials(self, study: str, query: Select[Any]) -> list[TrialRecord]:
        with transaction(self._reader) as connection:
            found = connection.execute(query).all()
            if not found:
                _require_study(connection, study)
        return rows.trial_records(found)


@contextmanager
def transaction(bind: Engine | Connection) -> Iterator[Connection]:
    """Yield a connection in a transaction: a new one, or the one that it is in already."""
    if isinstance(bind, Connection):
        yield bind
        return
    with database_faults(bind.url), bind.begin() as connection:
        yield connection


def _now(connection: Connection) -> float:
    """Return seconds since the epoch, by the clock that all drivers of a study share."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(
        connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one()
    )


def _upsert(connection: Connection, table: Table, values: rows.Values) -> None:
    key = table.primary_key.columns.keys()
    rest = {name: value for name, value in values.items() if name not in key}
    dialect = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")  # it is in use
    statement = dialect.insert(table).values(values)
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=rest))


def _is_claim(name: str, epoch: int) -> ColumnElement[bool]:
    return (STUDIES.c.name == name) & (STUDIES.c.epoch == epoch)


def _is_trial(study: str, number: int) -> ColumnElement[bool]:
    return (TRIALS.c.study == study) & (TRIALS.c.number == number)


def _is_leased(study: str, number: int) -> ColumnElement[bool]:
    return _is_trial(study, number) & (TRIALS.c.state == TrialState.LEASED)


def _count_outcome(outcome: Outcome) -> ColumnElement[int]:
    return func.count(case((TRIALS.c.outcome == outcome, 1)))


def _take_free(connection: Connection, name: str) -> Row[Any]:
    """Lock a study's row until the transaction ends, if no living driver runs the study."""
    query = select(STUDIES).where(STUDIES.c.name == name).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        raise _not_found(connection, name)
    if row.lease_expires_at is not None:
        owner = Owner(host=row.owner_host, pid=row.owner_pid, started_at=row.owner_started_at)
        require_free(name, owner, row.lease_expires_at - _now(connection))
    return row


def _require_study(connection: Connection, name: str) -> None:
    if connection.scalar(select(STUDIES.c.name).where(STUDIES.c.name == name)) is None:
        raise _not_found(connection, name)


def _not_found(connection: Connection, name: str) -> StudyNotFoundError:
    names = connection.scalars(select(STUDIES.c.name)).all()
    if not names:
        return StudyNotFoundError(f"no study {name!r}: the store has none yet")
    return StudyNotFoundError(f"no study {name!r} in the store{did_you_mean(name, names)}")
