"""Erased fields are removed from the disk. The chain stays intact and records the erasure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tirjudge.types import CheckReason, CheckResult, JudgeRequest, Judgment
from tirjudge_server.call import Call
from tirjudge_server.records.audit import verify
from tirjudge_server.records.database import RecordsError
from tirjudge_server.records.record import ERASABLE
from tirjudge_server.records.store import RecordPolicy, Records
from tirjudge_web.errors import Refused

SECRET = "the patient is called Ada"


async def test_an_erased_field_is_removed_and_the_chain_stays_intact(store, keep, request_of) -> None:
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


async def test_erasing_turns_keeps_the_verdict(store, keep) -> None:
    judgment = await keep(store)
    await store.erase(judgment.id, fields=["turns"])
    left = (await store.read(judgment.id)).judgment
    assert left.verdict == judgment.verdict
    assert [rollout.turns for rollout in left.rollouts] == [[]]


def checked(judgment: Judgment) -> Judgment:
    """Return the judgment with results of three checks of its two responses, whose reasons quote a secret."""
    row = CheckReason(message="too old", row={"name": SECRET}, store="patients", store_sha256="1" * 64)
    failed = CheckResult(check="age", kind="sql", severity="violation", passed=False, reasons=[row])
    skipped = CheckResult(check="form", kind="json_schema", severity="info", passed=False, skipped=f"no {SECRET}")
    passed = CheckResult(check="words", kind="pattern", severity="warning", passed=True)
    return judgment.model_copy(update={"checks": [[failed, skipped, passed], [passed, skipped, failed]]})


async def keep_checked(store: Records, request: JudgeRequest, judgment_of: Callable[..., Judgment]) -> Judgment:
    call = Call()
    return await store.store(request, checked(judgment_of(call)), call=call)


def without_reasons(judgment: Judgment) -> Judgment:
    update = {"reasons": []}
    shown = [
        [one.model_copy(update=update if one.skipped is None else {"skipped": ""}) for one in results]
        for results in judgment.checks
    ]
    return judgment.model_copy(update={"checks": shown})


@pytest.mark.parametrize("field", ["reasons", "request.prompt", "request.evidence"])
async def test_reasons_of_checks_are_erased_alone_or_with_the_texts_that_they_quote(
    database_url, open_store, request_of, judgment_of, field: str
) -> None:
    store = open_store(database_url)
    judgment = await keep_checked(store, request_of(), judgment_of)
    assert (await store.read(judgment.id)).judgment == judgment
    await store.erase(judgment.id, fields=[field])
    record = await store.read(judgment.id)
    assert SECRET not in record.content.dump()
    assert record.judgment.checks == without_reasons(judgment).checks
    assert [[one.failed for one in results] for results in record.judgment.checks] == [
        [True, False, False],
        [False, False, True],
    ]
    assert verify(store.database).broken is None


async def test_reasons_of_checks_are_withheld(database_url, open_store, request_of, judgment_of) -> None:
    store = open_store(database_url, withheld=frozenset({"request.responses"}))
    judgment = await keep_checked(store, request_of(), judgment_of)
    record = await store.read(judgment.id)
    assert SECRET not in record.content.dump()
    assert record.judgment.checks == without_reasons(judgment).checks


async def test_only_known_judgments_and_erasable_fields_can_be_erased(store, keep) -> None:
    judgment = await keep(store)
    assert not await store.erase("jdg_none", fields=["turns"])
    with pytest.raises(RecordsError, match=r"request\.prompt"):
        await store.erase(judgment.id, fields=["verdict"])


async def test_no_database_file_contains_erased_texts(open_store, keep, request_of, sqlite_path: Path) -> None:
    store = open_store(sqlite_path)
    for number in range(20):
        await keep(store, request_of(f"{SECRET} {number}"), caller="alice")

    def bytes_on_disk() -> bytes:
        return b"".join(path.read_bytes() for path in sqlite_path.parent.glob("records.db*"))

    assert SECRET.encode() in bytes_on_disk()
    await store.prune(before_ms=time.time() * 1000 + 1000)
    assert SECRET.encode() not in bytes_on_disk()
    assert b"alice" not in bytes_on_disk()


async def test_an_erased_judgment_is_not_returned_for_a_repeated_request(store, keep, request_of) -> None:
    judgment = await keep(store, idempotency_key="k")
    await store.erase(judgment.id, fields=["request.prompt"])
    assert await store.recall(request_of(), call=Call()) is None
    with pytest.raises(Refused) as refused:
        await store.recall(request_of(), call=Call(idempotency_key="k"))
    assert (refused.value.status, refused.value.problem.code) == (409, "idempotency_key_erased")


async def test_keys_that_were_answered_by_content_end_with_their_judgment(store, keep, request_of) -> None:
    erased, pruned = await keep(store), await keep(store, request_of("Another?"))
    call, other = Call(idempotency_key="k"), Call(idempotency_key="other")
    assert await store.recall(request_of(), call=call) == erased
    assert await store.recall(request_of("Another?"), call=other) == pruned
    await store.erase(erased.id, fields=["request.prompt"])
    with pytest.raises(Refused) as refused:
        await store.recall(request_of("A third?"), call=call)
    assert (refused.value.status, refused.value.problem.code) == (409, "idempotency_key_erased")
    await store.prune(before_ms=time.time() * 1000 + 1000)
    for each in (call, other):
        assert await store.recall(request_of("A third?"), call=each) is None


async def test_a_withheld_field_is_never_stored(database_url, open_store, keep, request_of) -> None:
    store = open_store(database_url, withheld=frozenset({"request.prompt", "request.rubric", "caller"}))
    judgment = await keep(store, request_of(SECRET), caller="alice")
    record = await store.read(judgment.id)
    assert record.content.erased == record.content.withheld == ("caller", "request.prompt")
    assert SECRET not in record.content.dump()
    assert record.judgment == judgment
    assert verify(store.database).broken is None


def test_a_policy_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(RecordsError, match="promt"):
        RecordPolicy(withheld=frozenset({"request.promt"}))


async def test_pruning_erases_texts_and_keeps_verdicts(store, keep, request_of) -> None:
    old = [await keep(store, request_of(f"{SECRET} {n}"), caller="alice", idempotency_key=str(n)) for n in range(3)]
    before_ms = time.time() * 1000 + 1
    await asyncio.sleep(0.01)  # the clock of the records has a resolution of 1 ms
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


async def test_old_judgments_are_erased_in_the_background(database_url, open_store, keep) -> None:
    store = open_store(database_url, retention_days=0.0)
    judgment = await keep(store)
    await asyncio.sleep(0.005)
    pruning = asyncio.create_task(store.prune_forever())
    async with asyncio.timeout(60):
        while not (await store.read(judgment.id)).content.erased:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    pruning.cancel()
    await asyncio.gather(pruning, return_exceptions=True)
