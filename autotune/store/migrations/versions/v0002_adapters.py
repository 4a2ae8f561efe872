"""Knobs for adapters, a second way to shard and stepping within the backward pass."""

import sqlalchemy as sa
from alembic import op

revision = "v0002"
down_revision = "v0001"

TABLES = ("autotune_measurements", "autotune_trials")
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
    trials.sharding,
    trials.optimizer_in_backward,
    trials.lora_rank,
    trials.weight_bits,
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
    """Give every config of an older store the value that it had without saying so."""
    op.execute("DROP VIEW autotune_front")
    for table in TABLES:
        for name, kind, value in (
            ("sharding", sa.Text, "deepspeed"),
            ("optimizer_in_backward", sa.Text, "off"),
            ("lora_rank", sa.Integer, "0"),
            ("weight_bits", sa.Integer, "32"),
        ):
            column: sa.Column[object] = sa.Column(name, kind, nullable=False, server_default=value)
            op.add_column(table, column)
    op.execute(FRONT_VIEW)
