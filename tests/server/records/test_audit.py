"""An audit detects every change of the database, and names the first broken record."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text

from tirjudge_server.call import Call
from tirjudge_server.records.audit import export, verify
from tirjudge_server.records.sealing import canonical, sha256


async def five(store, keep, request_of) -> list[str]:
    return [(await keep(store, request_of(f"Question {n}?"), caller="alice")).id for n in range(5)]


def change(store, statement: str, **values) -> None:
    with store.database.writing() as connection:
        connection.execute(text(statement), values)


async def test_untouched_records_are_intact(store, keep, request_of) -> None:
    assert verify(store.database).length == 0
    await five(store, keep, request_of)
    report = verify(store.database)
    assert (report.length, report.broken) == (5, None)
    assert verify(store.database, expected=report.head).broken is None


@pytest.mark.parametrize(
    ("statement", "seq", "reason"),
    [
        ("UPDATE records SET content = replace(content, 'Question 2?', 'Question 9?') WHERE seq = 3", 3, "was changed"),
        (
            "UPDATE records SET content = replace(content, '\"best\"\\:1', '\"best\"\\:0') WHERE seq = 3",
            3,
            "was changed",
        ),
        ("UPDATE records SET content = substr(content, 1, 99) WHERE seq = 3", 3, "cannot be read"),
        ("UPDATE records SET content = '{}' WHERE seq = 3", 3, "cannot be read"),
        ("UPDATE records SET created_ms = created_ms - 1 WHERE seq = 3", 3, "was changed"),
        ("UPDATE records SET id = 'jdg_0' WHERE seq = 3", 3, "was changed"),
        ("UPDATE records SET hash = previous WHERE seq = 3", 3, "was changed"),
        ("UPDATE records SET previous = hash WHERE seq = 3", 3, "does not match"),
        ("UPDATE records SET caller = 'mallory' WHERE seq = 3", 3, "column caller"),
        ("UPDATE records SET status = 'tie' WHERE seq = 3", 3, "column status"),
        ("DELETE FROM records WHERE seq = 3", 3, "missing"),
        ("DELETE FROM records WHERE seq = 5", 5, "missing"),
        ("DELETE FROM records", 1, "missing"),
        ("UPDATE records SET seq = 9 WHERE seq = 3", 3, "missing"),
    ],
)
async def test_a_changed_record_is_found_with_its_position_and_reason(
    store, keep, request_of, statement: str, seq: int, reason: str
) -> None:
    await five(store, keep, request_of)
    change(store, statement)
    broken = verify(store.database).broken
    assert broken is not None
    assert broken.seq == seq
    assert reason in str(broken)


async def test_a_field_removed_without_an_erasure_is_detected(store, keep, request_of) -> None:
    ids = await five(store, keep, request_of)
    record = await store.read(ids[2])
    content = record.content.without(["turns"]).dump()
    change(store, "UPDATE records SET content = :content WHERE seq = 3", content=content)
    broken = verify(store.database).broken
    assert broken is not None
    assert (broken.seq, broken.record_id) == (3, ids[2])
    assert "turns is gone" in broken.reason


async def test_a_rewritten_chain_lacks_the_saved_head(store, keep, request_of) -> None:
    await five(store, keep, request_of)
    saved = verify(store.database).head
    change(store, "DELETE FROM records")
    change(store, "UPDATE chain_head SET length = 0, hash = :hash", hash="0" * 64)
    await five(store, keep, request_of)
    assert verify(store.database).broken is None
    broken = verify(store.database, expected=saved).broken
    assert broken is not None
    assert "rewritten" in broken.reason


async def test_a_saved_head_stays_valid_after_more_records(store, keep, request_of) -> None:
    await five(store, keep, request_of)
    saved = verify(store.database).head
    await five(store, keep, request_of)
    assert verify(store.database, expected=saved).broken is None


async def test_an_export_can_be_verified_with_only_sha256(store, keep, request_of) -> None:
    ids = await five(store, keep, request_of)
    await store.erase(ids[1], fields=["request.prompt"])
    lines = [json.loads(canonical(record)) for record in export(store.database)]
    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5, 6]
    previous = "0" * 64
    for line in lines:
        for name, value in line["values"].items():
            assert line["commitments"][name] == sha256(canonical([name, line["salts"][name], value]))
        header = {name: line[name] for name in ("seq", "kind", "id", "created_ms", "previous", "withheld")}
        assert line["hash"] == sha256(canonical({**header, "fields": line["commitments"]}))
        assert line["previous"] == previous
        previous = line["hash"]
    assert "request.prompt" not in lines[1]["values"]
    assert lines[5]["values"] == {"seqs": [2], "fields": ["request.prompt"], "reason": "redaction"}


async def test_an_export_can_be_limited_by_time(store, keep, request_of) -> None:
    await five(store, keep, request_of)
    change(store, "UPDATE records SET created_ms = seq * 1000")
    assert [record["seq"] for record in export(store.database, since_ms=2000, until_ms=4000)] == [2, 3]


async def test_a_changed_record_is_not_returned_for_a_repeated_request(store, keep, request_of) -> None:
    judgment = await keep(store)
    assert await store.recall(request_of(), call=Call()) == judgment
    change(store, "UPDATE records SET content = replace(content, '\"best\"\\:1', '\"best\"\\:0')")
    assert await store.recall(request_of(), call=Call()) is None
    assert not (await store.read(judgment.id)).is_intact
