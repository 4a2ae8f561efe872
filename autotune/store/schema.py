"""The tables, as the newest migration leaves them. Byte counts do not fit 32 bits."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

REVISIONS = ("v0001", "v0002")
"""Every version of the schema, the newest last; the migrations lead from one to the next."""
VERSION_TABLE = "autotune_alembic_version"
"""Not Alembic's default name: Optuna's own version lies in the same database under it."""

METADATA = MetaData()
"""Beside these, the migrations make the view ``autotune_front`` for people to read."""


def _knobs() -> list[Column[object]]:
    """Return a column per field of ``TrainingConfig``."""
    return [
        Column("amp_dtype", Text, nullable=False),
        Column("checkpoint_interval", Integer, nullable=False),
        Column("micro_batch_size", Integer, nullable=False),
        Column("accumulation_steps", Integer, nullable=False),
        Column("optimizer", Text, nullable=False),
        Column("optimizer_bits", Integer, nullable=False),
        Column("zero_stage", Integer, nullable=False),
        Column("offload_target", Text, nullable=False),
        Column("activation_offload", Text, nullable=False),
        Column("checkpoint_deepest", Integer, nullable=False),
        Column("compile", Text, nullable=False),
        Column("sharding", Text, nullable=False, server_default="deepspeed"),
        Column("optimizer_in_backward", Text, nullable=False, server_default="off"),
        Column("lora_rank", Integer, nullable=False, server_default="0"),
        Column("weight_bits", Integer, nullable=False, server_default="32"),
    ]


ENVIRONMENTS = Table(
    "autotune_environments",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("device_kind", Text, nullable=False),
    Column("device_name", Text, nullable=False),
    Column("device_memory_bytes", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
)

STUDIES = Table(
    "autotune_studies",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("workload", Text, nullable=False),
    Column("environment", Text, ForeignKey(ENVIRONMENTS.c.hash), nullable=False),
    Column("quality_name", Text, nullable=False),
    Column("memory_budget_bytes", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("stop_reason", Text, nullable=False),
    Column("created_at", DateTime, nullable=False),
    Column("wall_seconds", Double, nullable=False),
    Column("device_seconds", Double, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("owner_host", Text),
    Column("owner_pid", Integer),
    Column("owner_started_at", Double),
    Column("lease_expires_at", Double),
    Column("spec", Text, nullable=False),
    Column("facts", Text, nullable=False),
)

MEASUREMENTS = Table(
    "autotune_measurements",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("workload", Text, nullable=False),
    Column("config", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("protocol", Text, nullable=False),
    *_knobs(),
    Column("memory_budget_bytes", BigInteger),
    Column("outcome", Text, nullable=False),
    Column("peak_device_bytes", BigInteger),
    Column("peak_host_bytes", BigInteger),
    Column("mean_step_seconds", Double),
    Column("samples_per_second", Double),
    Column("document", Text, nullable=False),
    Index("autotune_measurements_key", "workload", "config", "environment", "protocol"),
)

QUALITIES = Table(
    "autotune_qualities",
    METADATA,
    Column("workload", Text, primary_key=True),
    Column("environment", Text, primary_key=True),
    Column("samples", BigInteger, primary_key=True),
    Column("numerics", Text, primary_key=True),
    Column("seed", BigInteger, primary_key=True),
    Column("outcome", Text, nullable=False),
    Column("value", Double),
    Column("document", Text, nullable=False),
)

TRIALS = Table(
    "autotune_trials",
    METADATA,
    Column("study", Text, ForeignKey(STUDIES.c.name, ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    *_knobs(),
    Column("state", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lease", Text, nullable=False),
    Column("slot", Text, nullable=False),
    Column("outcome", Text),
    Column("reason", Text, nullable=False),
    Column("measurement_id", Integer, ForeignKey(MEASUREMENTS.c.id)),
    Column("cost_usd_per_million_samples", Double),
    Column("cost_half_width", Double, nullable=False),
    Column("throughput_samples_per_second", Double),
    Column("throughput_half_width", Double, nullable=False),
    Column("quality", Double),
    Column("quality_half_width", Double),
    Column("violation", Double),
    Index("autotune_trials_outcome", "study", "state", "outcome"),
)

FRONT_POINTS = Table(
    "autotune_front_points",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("rank", Integer, nullable=False),
    Column("is_recommended", Boolean, nullable=False),
    ForeignKeyConstraint(
        ["study", "number"], [TRIALS.c.study, TRIALS.c.number], ondelete="CASCADE"
    ),
)
