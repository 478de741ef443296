"""API keys over HTTP: scopes, limits and revoking. A key is never stored or logged."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request

from tests.server.records.conftest import judgment_of, request_of
from tirjudge.types import Usage
from tirjudge_server.access import Access, OpenBind, authorization, check_bind, needs
from tirjudge_server.access.keys import KeyRefused, create_key, load_keys, revoke_key
from tirjudge_server.call import Call, call_of
from tirjudge_server.records.database import Database, open_database
from tirjudge_web.errors import answer_errors
from tirjudge_web.identity import CallerIdentity


@pytest.fixture
def database(tmp_path: Path) -> Any:
    opened = open_database(str(tmp_path / "records.db"))
    yield opened
    opened.close()


@pytest.fixture
def guarded(database: Database, connect) -> Any:
    """Serves an application with an endpoint for each of two scopes; yields a client and the `Access`."""

    @asynccontextmanager
    async def serving() -> AsyncIterator[tuple[httpx2.AsyncClient, Access]]:
        app = FastAPI()
        app.add_middleware(CallerIdentity)
        answer_errors(app)
        app.state.access = access = Access(database)
        await access.load()
        app.include_router(endpoints("judge"), dependencies=[Depends(needs("judge"))])
        app.include_router(endpoints("admin"), dependencies=[Depends(needs("admin"))])
        async with connect(app) as client:
            yield client, access

    return serving


def endpoints(name: str) -> APIRouter:
    routes = APIRouter()

    @routes.get(f"/{name}")
    async def caller(request: Request) -> str | None:
        return call_of(request, dialect="test").caller

    return routes


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_without_keys_all_callers_are_allowed(guarded) -> None:
    async with guarded() as (client, access):
        assert not access.is_guarded
        assert (await client.get("/judge")).json() is None


async def test_a_key_allows_only_requests_within_its_scopes(guarded, database: Database) -> None:
    alice = create_key(database, name="alice", scopes=["judge", "read"])
    root = create_key(database, name="root", scopes=["admin"])
    async with guarded() as (client, _):
        assert (await client.get("/judge", headers=bearer(alice))).json() == "alice"
        assert (await client.get("/judge", headers=bearer(root))).json() == "root"
        assert (await client.get("/admin", headers=bearer(root))).json() == "root"
        refused = await client.get("/admin", headers=bearer(alice))
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "missing_scope"


async def test_an_invalid_key_is_a_401_in_openais_format(guarded, database: Database) -> None:
    key = create_key(database, name="alice", scopes=["judge"])
    async with guarded() as (client, _):
        for headers in ({}, bearer("x"), bearer(key + "x"), bearer(key[:-1]), bearer(""), {"authorization": key}):
            refused = await client.get("/judge", headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert refused.json()["error"]["code"] == "invalid_api_key"
            assert refused.headers["x-request-id"]


async def test_a_key_can_be_sent_as_header_or_password(guarded, database: Database) -> None:
    key = create_key(database, name="alice", scopes=["judge"])
    password = base64.b64encode(f":{key}".encode()).decode()
    async with guarded() as (client, _):
        for headers in ({"x-api-key": key}, {"authorization": f"Basic {password}"}):
            assert (await client.get("/judge", headers=headers)).json() == "alice"


async def test_openais_client_raises_its_own_errors(guarded, database: Database, listen) -> None:
    key = create_key(database, name="alice", scopes=["judge"], rpm=1)
    app = FastAPI()
    app.add_middleware(CallerIdentity)
    answer_errors(app)
    app.state.access = access = Access(database)
    await access.load()

    @app.get("/v1/models", dependencies=[Depends(needs("judge"))])
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": []}

    @app.get("/v1/models/m", dependencies=[Depends(needs("admin"))])
    async def model() -> dict[str, Any]:
        return {}

    async with listen(app) as url:

        def client(key: str) -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)

        async with client(key) as known, client("wrong") as unknown:
            await known.models.list()
            with pytest.raises(openai.RateLimitError):
                await known.models.list()
            with pytest.raises(openai.PermissionDeniedError):
                await known.models.retrieve("m")
            with pytest.raises(openai.AuthenticationError):
                await unknown.models.list()


async def test_a_new_key_works_immediately(guarded, database: Database, monkeypatch) -> None:
    create_key(database, name="first", scopes=["judge"])
    async with guarded() as (client, _):
        monkeypatch.setattr(authorization, "MISS_REFRESH_S", 0.0)
        key = create_key(database, name="second", scopes=["judge"])
        assert (await client.get("/judge", headers=bearer(key))).json() == "second"


async def test_a_revoked_key_is_rejected_and_callers_still_need_a_key(guarded, database: Database) -> None:
    key = create_key(database, name="alice", scopes=["judge"])
    async with guarded() as (client, access):
        assert (await client.get("/judge", headers=bearer(key))).status_code == 200
        revoke_key(database, name="alice")
        await access.load()
        refused = await client.get("/judge", headers=bearer(key))
        assert (refused.status_code, refused.json()["error"]["message"]) == (401, "key: revoked API key")
        assert (await client.get("/judge")).status_code == 401


async def test_a_running_server_notices_a_revoked_key(guarded, database: Database, monkeypatch) -> None:
    monkeypatch.setattr(authorization, "REFRESH_S", 0.01)
    key = create_key(database, name="alice", scopes=["judge"])
    async with guarded() as (client, _):
        revoke_key(database, name="alice")
        async with asyncio.timeout(60):
            while (await client.get("/judge", headers=bearer(key))).status_code != 401:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_the_first_request_after_a_pause_is_checked_against_the_current_keys(
    guarded, database: Database, monkeypatch
) -> None:
    async with guarded() as (client, _):
        assert (await client.get("/judge")).status_code == 200
        for name in ("REFRESH_S", "STALE_S"):
            monkeypatch.setattr(authorization, name, 0.0)
        key = create_key(database, name="alice", scopes=["judge"])
        assert (await client.get("/judge")).status_code == 401
        revoke_key(database, name="alice")
        assert (await client.get("/judge", headers=bearer(key))).status_code == 401


async def test_requests_do_not_wait_long_for_a_database_that_hangs(guarded, database: Database, monkeypatch) -> None:
    key = create_key(database, name="alice", scopes=["judge"])
    ended = threading.Event()
    async with guarded() as (client, _):
        monkeypatch.setattr(authorization, "load_keys", lambda _: ended.wait(60) and ())
        for name in ("REFRESH_S", "STALE_S", "STALE_WAIT_S"):
            monkeypatch.setattr(authorization, name, 0.0)
        assert (await client.get("/judge", headers=bearer(key))).json() == "alice"
        ended.set()


async def test_an_expired_key_is_rejected(guarded, database: Database) -> None:
    key = create_key(database, name="alice", scopes=["judge"], expires_ms=1)
    async with guarded() as (client, _):
        assert (await client.get("/judge", headers=bearer(key))).json()["error"]["message"] == "key: expired API key"


async def test_known_keys_stay_valid_while_the_database_is_down(
    guarded, database: Database, monkeypatch, caplog
) -> None:
    key = create_key(database, name="alice", scopes=["judge"])
    async with guarded() as (client, _):
        with sqlite3.connect(database.url.database or "") as connection:
            connection.execute("ALTER TABLE keys RENAME TO gone")
        connection.close()
        monkeypatch.setattr(authorization, "REFRESH_S", 0.0)
        assert (await client.get("/judge", headers=bearer(key))).json() == "alice"
        assert (await client.get("/judge", headers=bearer("wrong"))).status_code == 401
    assert "cannot reload the API keys" in caplog.text


async def test_too_many_requests_are_a_429_with_retry_after(guarded, database: Database) -> None:
    key = create_key(database, name="alice", scopes=["judge"], rpm=2)
    async with guarded() as (client, _):
        answers = [await client.get("/judge", headers=bearer(key)) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 30
    assert 1 <= int(answers[2].headers["retry-after-ms"]) <= 30_000
    assert answers[2].json()["error"]["type"] == "rate_limit_error"


async def test_tokens_of_judgments_count_for_their_caller(guarded, database: Database) -> None:
    key = create_key(database, name="alice", scopes=["judge"], tpm=1000)
    async with guarded() as (client, access):
        assert (await client.get("/judge", headers=bearer(key))).status_code == 200
        for caller in ("alice", "carol", None):
            call = Call(caller=caller)
            usage = Usage(input_tokens=4000, cached_tokens=0, output_tokens=1000, tool_calls=0, rollouts=1)
            access.on_end(request_of(), call, judgment_of(call, usage=usage))
        refused = await client.get("/judge", headers=bearer(key))
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 200


async def test_the_concurrency_of_a_key_is_available_to_the_queue(guarded, database: Database) -> None:
    create_key(database, name="alice", scopes=["judge"], concurrency=2)
    create_key(database, name="bob", scopes=["judge"])
    async with guarded() as (_, access):
        assert [access.concurrency_of(name) for name in ("alice", "bob", None)] == [2, None, None]


async def test_a_key_is_never_logged_returned_or_stored(guarded, database: Database, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("sqlalchemy.engine").setLevel(logging.DEBUG)
    key = create_key(database, name="alice", scopes=["judge"], rpm=1)
    wrong = "tj_" + "w" * 43
    async with guarded() as (client, _):
        answers = [await client.get("/judge", headers=bearer(key)) for _ in range(2)]
        answers.append(await client.get("/admin", headers=bearer(key)))
        answers.append(await client.get("/judge", headers=bearer(wrong)))
    logging.getLogger("sqlalchemy.engine").setLevel(logging.NOTSET)
    assert [answer.status_code for answer in answers] == [200, 429, 403, 401]
    stored = b"".join(path.read_bytes() for path in Path(database.url.database or "").parent.iterdir())
    said = caplog.text + "".join(answer.text + str(answer.headers) for answer in answers) + repr(load_keys(database))
    for secret in (key, wrong):
        assert secret not in said
        assert secret.encode() not in stored
        assert secret[3:] not in said
    assert key[:20].encode() not in stored


def test_keys_have_256_bits_and_differ(database: Database) -> None:
    keys = {create_key(database, name=f"key{n}", scopes=["judge"]) for n in range(3)}
    assert len(keys) == 3
    assert {len(base64.urlsafe_b64decode(key.removeprefix("tj_") + "=")) for key in keys} == {32}


def test_the_name_of_a_revoked_key_cannot_be_reused(database: Database) -> None:
    create_key(database, name="alice", scopes=["judge"])
    revoke_key(database, name="alice")
    with pytest.raises(KeyRefused, match="use another name"):
        create_key(database, name="alice", scopes=["judge"])


@pytest.mark.parametrize(
    ("name", "scopes", "reason"),
    [
        ("a b", ["judge"], "letters"),
        ("", ["judge"], "letters"),
        ("x" * 65, ["judge"], "letters"),
        ("x", [], "none given"),
        ("x", ["jugde"], "'jugde' given; expected: judge, reward, read, label, audit, admin"),
    ],
)
def test_an_invalid_key_is_not_created(database: Database, name: str, scopes: list[str], reason: str) -> None:
    with pytest.raises(KeyRefused, match=re.escape(reason)):
        create_key(database, name=name, scopes=scopes)


def test_requiring_an_unknown_scope_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="jugde"):
        needs("jugde")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    check_bind(host, has_keys=False, insecure_open=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "judge.example"])
def test_an_open_bind_without_keys_is_refused_by_default(host: str) -> None:
    with pytest.raises(OpenBind, match="tirjudge keys create"):
        check_bind(host, has_keys=False, insecure_open=False)
    check_bind(host, has_keys=True, insecure_open=False)
    check_bind(host, has_keys=False, insecure_open=True)
