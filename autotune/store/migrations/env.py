"""Run by Alembic: applies the migrations in the transaction that ``migrate`` has begun."""

from alembic import context

from autotune.store.schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
