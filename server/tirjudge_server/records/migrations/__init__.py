"""Alembic migrations of the tables. `tirjudge_server.records.migrating` runs them."""
