"""Judgments are stored, and found by id, idempotency key and content."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tirjudge.types import Timing
from tirjudge_server.call import Call
from tirjudge_server.records.audit import verify
from tirjudge_server.records.record import judged_content
from tirjudge_server.records.store import MAX_CACHED_CHARS
from tirjudge_web.errors import Refused


async def test_a_record_contains_request_and_judgment(store, request_of, judgment_of) -> None:
    call = Call(dialect="reward", caller="alice", request_id="req_1")
    request = request_of(reference="five letters", criteria=[{"text": "length", "weight": 2.0}], seed=7)
    judgment = judgment_of(call)
    assert await store.store(request, judgment, call=call) is judgment
    record = await store.read(judgment.id)
    assert record is not None
    assert record.judgment == judgment
    assert type(request).model_validate(record.request_fields) == request
    assert record.values["caller"] == "alice"
    assert record.values["request_id"] == "req_1"
    assert record.values["versions"]["fingerprint"] == "0123456789abcdef"
    assert record.is_intact
    assert await store.read("jdg_none") is None


async def test_requirements_of_a_request_are_settings_and_part_of_its_content(store, request_of, judgment_of) -> None:
    plain, strict = request_of(), request_of(require="checked", min_confidence=0.5)
    for request in (plain, strict):
        call = Call()
        await store.store(request, judgment_of(call), call=call)
        record = await store.read(call.judgment_id)
        assert record is not None
        assert type(request).model_validate(record.request_fields) == request
        assert ("require" in record.values["request"]) == (request is strict)
    assert judged_content(plain) != judged_content(strict)


async def test_unusual_text_is_stored_unchanged(store, request_of, judgment_of, keep) -> None:
    nasty = "a\x00b \\u0000 'quote' \U0001f600 é \ufffd"
    judgment = await keep(store, request_of(nasty))
    record = await store.read(judgment.id)
    assert record.request_fields["prompt"] == nasty


async def test_concurrent_judgments_form_one_chain(store, keep) -> None:
    judgments = await asyncio.gather(*(keep(store) for _ in range(100)))
    report = verify(store.database)
    assert (report.broken, report.length) == (None, 100)
    for judgment in judgments[::20]:
        assert (await store.read(judgment.id)).judgment == judgment


async def test_two_servers_write_one_chain(database_url, open_store, keep) -> None:
    servers = [open_store(database_url), open_store(database_url)]
    await asyncio.gather(*(keep(servers[number % 2]) for number in range(60)))
    report = verify(servers[0].database)
    assert (report.broken, report.length) == (None, 60)


async def test_an_idempotency_key_survives_a_restart(database_url, open_store, request_of, keep) -> None:
    first = await keep(open_store(database_url), idempotency_key="k")
    again = open_store(database_url, cache=False)
    assert await again.recall(request_of(), call=Call(idempotency_key="k")) == first
    assert await again.recall(request_of(), call=Call(idempotency_key="other")) is None
    assert await again.recall(request_of(), call=Call(idempotency_key="k", caller="bob")) is None


async def test_a_key_reused_with_a_different_request_is_refused(store, request_of, judgment_of, keep) -> None:
    await keep(store, idempotency_key="k")
    call = Call(idempotency_key="k")
    with pytest.raises(Refused) as refused:
        await store.recall(request_of("Another?"), call=call)
    assert (refused.value.status, refused.value.problem.code) == (422, "idempotency_key_reused")
    with pytest.raises(Refused):
        await store.store(request_of("Another?"), judgment_of(call), call=call)
    assert await store.read(call.judgment_id) is None


async def test_requests_that_differ_in_streaming_or_deadline_are_equal(store, request_of, keep) -> None:
    first = await keep(store, idempotency_key="k")
    assert await store.recall(request_of(stream=True, deadline_s=60.0), call=Call(idempotency_key="k")) == first


async def test_two_servers_store_one_judgment_per_key(database_url, open_store, keep) -> None:
    servers = [open_store(database_url), open_store(database_url)]
    judgments = await asyncio.gather(*(keep(server, idempotency_key="k") for server in servers * 4))
    assert len({judgment.id for judgment in judgments}) == 1
    assert verify(servers[0].database).length == 1


async def test_a_repeated_request_is_answered_from_the_records(store, request_of, keep) -> None:
    first = await keep(store)
    assert await store.recall(request_of(), call=Call()) == first
    for other in (request_of("Another?"), request_of(seed=1), request_of(reference="x")):
        assert await store.recall(other, call=Call()) is None
    assert await store.recall(request_of(), call=Call(caller="bob")) is None


async def test_keys_that_are_answered_by_content_survive_a_restart(
    database_url, open_store, request_of, judgment_of, keep
) -> None:
    store = open_store(database_url)
    first = await keep(store, idempotency_key="first")
    calls = [Call(idempotency_key=key) for key in ("k", "k", "other")]
    assert await asyncio.gather(*(store.recall(request_of(), call=call) for call in calls)) == [first] * 3
    again = open_store(database_url, cache=False)
    for key in ("first", "k", "other"):
        assert await again.recall(request_of(), call=Call(idempotency_key=key)) == first
        assert await again.recall(request_of(), call=Call(idempotency_key=key, caller="bob")) is None
        call = Call(idempotency_key=key)
        for refused in (
            again.recall(request_of("Another?"), call=call),
            again.store(request_of("Another?"), judgment_of(call), call=call),
        ):
            with pytest.raises(Refused, match="different request"):
                await refused
    assert verify(again.database).length == 1


async def test_two_servers_give_one_key_to_one_of_two_requests(
    database_url, open_store, request_of, judgment_of, keep
) -> None:
    servers = [open_store(database_url), open_store(database_url)]
    await keep(servers[0])
    for number in range(10):
        call, other = Call(idempotency_key=f"k{number}"), request_of(f"Another {number}?")
        done = await asyncio.gather(
            servers[0].recall(request_of(), call=call),
            servers[1].store(other, judgment_of(call), call=call),
            return_exceptions=True,
        )
        assert [isinstance(each, Refused) for each in done].count(True) == 1


async def test_a_very_long_request_is_always_judged(store, request_of, keep) -> None:
    long = request_of("x" * (MAX_CACHED_CHARS + 1))
    await keep(store, long)
    assert await store.recall(long, call=Call()) is None


async def test_a_changed_version_prevents_reuse(database_url, open_store, request_of, keep) -> None:
    store = open_store(database_url)
    await keep(store)
    for changed in ({"fingerprint": "f" * 16}, {"sandbox": "landlock"}, {"tools": ["search"]}, {"package": "0.2.0"}):
        other = open_store(database_url, versions=replace(store.versions, **changed))
        assert await other.recall(request_of(), call=Call()) is None


@pytest.mark.parametrize("policy", [{"cache": False}, {"withheld": frozenset({"turns"})}])
async def test_nothing_is_reused_if_caching_is_off_or_fields_are_withheld(
    store, open_store, policy, request_of, keep
) -> None:
    other = open_store(str(store.database.url.render_as_string(hide_password=False)), **policy)
    await keep(other)
    assert await other.recall(request_of(), call=Call()) is None


async def test_judgments_without_a_fingerprint_are_not_reused(
    database_url, open_store, store, request_of, keep
) -> None:
    unseen = open_store(database_url, versions=replace(store.versions, fingerprint=None))
    await keep(unseen)
    assert await unseen.recall(request_of(), call=Call()) is None


async def test_a_judgment_near_its_deadline_is_not_reused(store, request_of, judgment_of) -> None:
    call = Call()
    hurried = judgment_of(call, timing=Timing(total_s=0.9, engine_s=0.0, sandbox_s=0.0))
    await store.store(request_of(deadline_s=1.0), hurried, call=call)
    assert await store.recall(request_of(), call=Call()) is None


async def test_pages_are_newest_first(store, keep) -> None:
    ids = [(await keep(store, caller=name)).id for name in ("alice", "bob", "alice")]
    pages = [await store.page(after=after, limit=2, caller=None) for after in (None, ids[1])]
    assert [[row.id for row in page] for page in pages] == [[ids[2], ids[1]], [ids[0]]]
    assert [row.id for row in await store.page(after=None, limit=9, caller="alice")] == [ids[2], ids[0]]
    with pytest.raises(Refused) as refused:
        await store.page(after="jdg_none", limit=2, caller=None)
    assert refused.value.status == 404
