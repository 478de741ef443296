"""Recorded judgments as rows of evals, in both kinds of databases."""

from __future__ import annotations

import asyncio
import json

from tirjudge_server.evals.rows import row_of_record


async def test_judgments_are_read_by_caller_model_and_time_newest_first(store, keep) -> None:
    kept = [await keep(store, caller="alice") for _ in range(5)]
    await keep(store, caller="bob")
    await keep(store)
    found = await store.contents(owner="alice", limit=3)
    assert [record.id for record in found] == [judgment.id for judgment in reversed(kept[2:])]
    rest = await store.contents(owner="alice", before=found[-1].seq, limit=3)
    assert [record.id for record in rest] == [kept[1].id, kept[0].id]
    assert len(await store.contents(owner=None, limit=9)) == 1
    assert len(await store.contents(owner="alice", model="scripted", limit=9)) == 5
    assert await store.contents(owner="alice", model="other", limit=9) == []
    moment = found[0].created_ms // 1000
    assert await store.contents(owner="alice", from_s=moment + 5, limit=9) == []
    assert await store.contents(owner="alice", to_s=moment - 600, limit=9) == []
    assert len(await store.contents(owner="alice", from_s=moment - 600, to_s=moment + 5, limit=9)) == 5


async def test_a_record_becomes_a_row(store, keep, request_of) -> None:
    judgment = await keep(store, request_of("Which?", reference="five"), caller="alice")
    (record,) = await store.contents(owner="alice", limit=1)
    row = row_of_record(4, record)
    assert row is not None
    item, sample = json.loads(row.item), json.loads(row.sample or "")
    assert row.number == 4
    assert item == {
        "id": judgment.id,
        "model": "scripted",
        "input": [{"role": "user", "content": "Which?"}],
        "mode": "pairwise",
        "prompt": "Which?",
        "responses": ["one", "three"],
        "reference": "five",
    }
    assert json.loads(sample["output_text"]) == judgment.verdict.model_dump(mode="json")


async def test_a_record_whose_texts_are_erased_is_no_row(store, keep) -> None:
    judgment = await keep(store, caller="alice")
    await store.erase(judgment.id, fields=["request.prompt"])
    (record,) = await store.contents(owner="alice", limit=1)
    assert await asyncio.to_thread(row_of_record, 0, record) is None
