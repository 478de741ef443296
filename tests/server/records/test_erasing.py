"""What is erased is gone from the disk as well; the chain stays whole, and says that it was done."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tirjudge_server.call import Call
from tirjudge_server.records.audit import verify
from tirjudge_server.records.database import RecordsError
from tirjudge_server.records.record import ERASABLE
from tirjudge_web.errors import Refused

SECRET = "the patient is called Ada"


async def test_an_erased_field_is_gone_and_the_chain_is_whole(store, keep, request_of) -> None:
    judgment = await keep(store, request_of(SECRET), caller="alice")
    await keep(store)
    assert await store.erase(judgment.id, fields=["request.prompt", "caller"])
    record = await store.read(judgment.id)
    assert record.content.erased == ("caller", "request.prompt")
    assert "prompt" not in record.request_fields
    assert record.request_fields["responses"] == ["one", "three"]
    assert record.judgment == judgment
    assert record.is_intact
    assert await store.page(after=None, limit=9, caller="alice") == []
    report = verify(store.database)
    assert (report.length, report.broken) == (3, None)


async def test_erasing_without_turns_leaves_the_verdict(store, keep) -> None:
    judgment = await keep(store)
    await store.erase(judgment.id, fields=["turns"])
    left = (await store.read(judgment.id)).judgment
    assert left.verdict == judgment.verdict
    assert [rollout.turns for rollout in left.rollouts] == [[]]


async def test_only_known_judgments_and_erasable_fields_can_be_erased(store, keep) -> None:
    judgment = await keep(store)
    assert not await store.erase("jdg_none", fields=["turns"])
    with pytest.raises(RecordsError, match=r"request\.prompt"):
        await store.erase(judgment.id, fields=["verdict"])


async def test_no_file_of_the_database_holds_what_was_erased(open_store, keep, request_of, sqlite_path: Path) -> None:
    store = open_store(sqlite_path)
    for number in range(20):
        await keep(store, request_of(f"{SECRET} {number}"), caller="alice")

    def bytes_on_disk() -> bytes:
        return b"".join(path.read_bytes() for path in sqlite_path.parent.glob("records.db*"))

    assert SECRET.encode() in bytes_on_disk()
    await store.prune(before_ms=time.time() * 1000 + 1000)
    assert SECRET.encode() not in bytes_on_disk()
    assert b"alice" not in bytes_on_disk()


async def test_what_was_erased_is_neither_cached_nor_answered_again(store, keep, request_of) -> None:
    judgment = await keep(store, idempotency_key="k")
    await store.erase(judgment.id, fields=["request.prompt"])
    assert await store.recall(request_of(), call=Call()) is None
    with pytest.raises(Refused) as refused:
        await store.recall(request_of(), call=Call(idempotency_key="k"))
    assert (refused.value.status, refused.value.problem.code) == (409, "idempotency_key_erased")


async def test_a_withheld_field_is_never_stored(database_url, open_store, keep, request_of) -> None:
    store = open_store(database_url, withheld=frozenset({"request.prompt", "request.rubric", "caller"}))
    judgment = await keep(store, request_of(SECRET), caller="alice")
    record = await store.read(judgment.id)
    assert record.content.erased == record.content.withheld == ("caller", "request.prompt")
    assert SECRET not in record.content.dump()
    assert record.judgment == judgment
    assert verify(store.database).broken is None


async def test_a_policy_names_fields_that_there_are() -> None:
    from tirjudge_server.records.store import RecordPolicy

    with pytest.raises(RecordsError, match="promt"):
        RecordPolicy(withheld=frozenset({"request.promt"}))


async def test_retention_erases_what_was_written_and_keeps_verdict_and_chain(store, keep, request_of) -> None:
    old = [await keep(store, request_of(f"{SECRET} {n}"), caller="alice", idempotency_key=str(n)) for n in range(3)]
    before_ms = time.time() * 1000 + 1
    await asyncio.sleep(0.01)
    new = await keep(store)
    assert await store.prune(before_ms=before_ms) == 3
    assert await store.prune(before_ms=before_ms) == 0
    for judgment in old:
        record = await store.read(judgment.id)
        assert not set(record.values) & set(ERASABLE)
        assert record.judgment.verdict == judgment.verdict
    assert (await store.read(new.id)).judgment == new
    assert await store.recall(request_of("Another?"), call=Call(idempotency_key="1")) is None
    report = verify(store.database)
    assert (report.length, report.broken) == (5, None)


async def test_a_server_erases_what_reaches_its_age(database_url, open_store, keep) -> None:
    import asyncio

    store = open_store(database_url, retention_days=0.0)
    judgment = await keep(store)
    await asyncio.sleep(0.005)
    pruning = asyncio.create_task(store.prune_forever())
    async with asyncio.timeout(20):
        while not (await store.read(judgment.id)).content.erased:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    pruning.cancel()
    await asyncio.gather(pruning, return_exceptions=True)
