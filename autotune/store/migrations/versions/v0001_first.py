"""Studies, measurements, qualities, trials and the front."""

import sqlalchemy as sa
from alembic import op

revision = "v0001"
down_revision = None

FRONT_VIEW = """
CREATE VIEW autotune_front AS
SELECT
    points.study,
    points.rank,
    points.is_recommended,
    points.number AS trial,
    trials.amp_dtype,
    trials.checkpoint_interval,
    trials.micro_batch_size,
    trials.accumulation_steps,
    trials.optimizer,
    trials.optimizer_bits,
    trials.zero_stage,
    trials.offload_target,
    trials.activation_offload,
    trials.checkpoint_deepest,
    trials.compile,
    trials.cost_usd_per_million_samples,
    trials.throughput_samples_per_second,
    studies.quality_name,
    trials.quality,
    trials.quality_half_width,
    measurements.mean_step_seconds,
    measurements.peak_device_bytes,
    measurements.peak_host_bytes,
    environments.device_name
FROM autotune_front_points AS points
JOIN autotune_trials AS trials
    ON trials.study = points.study AND trials.number = points.number
JOIN autotune_studies AS studies ON studies.name = points.study
JOIN autotune_environments AS environments ON environments.hash = studies.environment
LEFT JOIN autotune_measurements AS measurements ON measurements.id = trials.measurement_id
ORDER BY points.study, points.rank
"""


def upgrade() -> None:
    """Make the first tables, and the view for people."""
    _create_studies()
    _create_measurements()
    _create_trials()
    op.execute(FRONT_VIEW)


def _knobs() -> list[sa.Column[object]]:
    return [
        sa.Column("amp_dtype", sa.Text, nullable=False),
        sa.Column("checkpoint_interval", sa.Integer, nullable=False),
        sa.Column("micro_batch_size", sa.Integer, nullable=False),
        sa.Column("accumulation_steps", sa.Integer, nullable=False),
        sa.Column("optimizer", sa.Text, nullable=False),
        sa.Column("optimizer_bits", sa.Integer, nullable=False),
        sa.Column("zero_stage", sa.Integer, nullable=False),
        sa.Column("offload_target", sa.Text, nullable=False),
        sa.Column("activation_offload", sa.Text, nullable=False),
        sa.Column("checkpoint_deepest", sa.Integer, nullable=False),
        sa.Column("compile", sa.Text, nullable=False),
    ]


def _create_studies() -> None:
    op.create_table(
        "autotune_environments",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("device_kind", sa.Text, nullable=False),
        sa.Column("device_name", sa.Text, nullable=False),
        sa.Column("device_memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "autotune_studies",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column(
            "environment", sa.Text, sa.ForeignKey("autotune_environments.hash"), nullable=False
        ),
        sa.Column("quality_name", sa.Text, nullable=False),
        sa.Column("memory_budget_bytes", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("stop_reason", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("wall_seconds", sa.Double, nullable=False),
        sa.Column("device_seconds", sa.Double, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("owner_host", sa.Text),
        sa.Column("owner_pid", sa.Integer),
        sa.Column("owner_started_at", sa.Double),
        sa.Column("lease_expires_at", sa.Double),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
    )


def _create_measurements() -> None:
    op.create_table(
        "autotune_measurements",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("protocol", sa.Text, nullable=False),
        *_knobs(),
        sa.Column("memory_budget_bytes", sa.BigInteger),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("peak_device_bytes", sa.BigInteger),
        sa.Column("peak_host_bytes", sa.BigInteger),
        sa.Column("mean_step_seconds", sa.Double),
        sa.Column("samples_per_second", sa.Double),
        sa.Column("document", sa.Text, nullable=False),
        sa.Index("autotune_measurements_key", "workload", "config", "environment", "protocol"),
    )
    op.create_table(
        "autotune_qualities",
        sa.Column("workload", sa.Text, primary_key=True),
        sa.Column("environment", sa.Text, primary_key=True),
        sa.Column("samples", sa.BigInteger, primary_key=True),
        sa.Column("numerics", sa.Text, primary_key=True),
        sa.Column("seed", sa.BigInteger, primary_key=True),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("document", sa.Text, nullable=False),
    )


def _create_trials() -> None:
    op.create_table(
        "autotune_trials",
        sa.Column(
            "study",
            sa.Text,
            sa.ForeignKey("autotune_studies.name", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("number", sa.Integer, primary_key=True),
        *_knobs(),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("lease", sa.Text, nullable=False),
        sa.Column("slot", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("measurement_id", sa.Integer, sa.ForeignKey("autotune_measurements.id")),
        sa.Column("cost_usd_per_million_samples", sa.Double),
        sa.Column("cost_half_width", sa.Double, nullable=False),
        sa.Column("throughput_samples_per_second", sa.Double),
        sa.Column("throughput_half_width", sa.Double, nullable=False),
        sa.Column("quality", sa.Double),
        sa.Column("quality_half_width", sa.Double),
        sa.Column("violation", sa.Double),
        sa.Index("autotune_trials_outcome", "study", "state", "outcome"),
    )
    op.create_table(
        "autotune_front_points",
        sa.Column("study", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("is_recommended", sa.Boolean, nullable=False),
        sa.ForeignKeyConstraint(
            ["study", "number"],
            ["autotune_trials.study", "autotune_trials.number"],
            ondelete="CASCADE",
        ),
    )
