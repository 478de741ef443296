"""Records of earlier versions get the columns of later ones."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, text

from tests.judgments import build_rollout, build_rollout_verdict, build_turn, build_verdict
from tirjudge.types import Outcome
from tirjudge_server.call import Call
from tirjudge_server.records.audit import verify
from tirjudge_server.records.database import Database, open_database
from tirjudge_server.records.schema import LISTED, REVISION, records

ADDED = ("label", "forced", "flipped", "basis", "tool_error", "human", "about")
"""Columns of revision 0003."""


def return_to_first_revision(database: Database) -> None:
    """Remove what the migrations after 0001 added."""
    statements = [f"DROP TABLE {name}" for name in ("recalled_keys", "sessions")]
    statements += [f"DROP INDEX {name}" for name in ("ix_records_list", "ix_records_about")]
    statements += [f"ALTER TABLE records DROP COLUMN {name}" for name in ADDED]
    with database.writing() as connection:
        for statement in [*statements, "UPDATE alembic_version SET version_num = '0001'"]:
            connection.execute(text(statement))


def listed(database: Database) -> list[Any]:
    with database.reading() as connection:
        return [tuple(row) for row in connection.execute(select(*(records.c[name] for name in LISTED)))]


async def test_judgments_of_the_first_revision_get_their_flags(
    database_url: str, database: Database, open_store, judgment_of, request_of
) -> None:
    store = open_store(database_url)
    failed = build_rollout(
        verdict=build_rollout_verdict("A", best=0), turns=[build_turn(Outcome.ERROR), build_turn(text="v")]
    )
    flipped = build_rollout([1, 0], verdict=build_rollout_verdict("A", best=1))
    for fields in (
        {},
        {"rollouts": [failed, flipped], "verdict": build_verdict(status="tie", forced=True)},
    ):
        call = Call(caller="alice")
        await store.store(request_of(), judgment_of(call, **fields), call=call)
    before = listed(database)
    assert [row[LISTED.index("flipped")] for row in before] == [False, True]
    assert [row[LISTED.index("tool_error")] for row in before] == [False, True]
    assert [row[LISTED.index("forced")] for row in before] == [False, True]
    return_to_first_revision(database)
    again = open_database(database_url)
    try:
        assert listed(again) == before
        with again.reading() as connection:
            assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == REVISION
        assert verify(again).broken is None
    finally:
        again.close()


async def test_a_changed_flag_is_found_by_an_audit(store, keep) -> None:
    await keep(store)
    with store.database.writing() as connection:
        connection.execute(text("UPDATE records SET flipped = true"))
    broken = verify(store.database).broken
    assert broken is not None
    assert "column flipped" in broken.reason


async def test_judgments_without_turns_are_intact(store, keep) -> None:
    judgment = await keep(store)
    await store.erase(judgment.id, fields=["turns"])
    assert verify(store.database).broken is None
