"""Alembic's entry script: runs the missing migrations in the transaction of its caller."""

from __future__ import annotations

from alembic import context

from tirjudge_server.records.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
