"""Evals in both kinds of databases, and what servers that share one do with their runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, NotFoundError
from sqlalchemy import text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.server.openai.evals import EQUAL, create, ended, inline, items_of, row, start
from tests.servers import scripted_service, serve_async
from tirjudge_server.app import create_app
from tirjudge_server.chat_models import open_chat_models
from tirjudge_server.evals import store as store_module
from tirjudge_server.evals.rows import EvalRow
from tirjudge_server.evals.store import EvalStore, StoredRun
from tirjudge_server.openai.filestore import FileQuota
from tirjudge_server.records.database import Database, open_database, url_of
from tirjudge_web.errors import Refused

ROWS = [EvalRow(number=number, item=f'{{"n": {number}}}', sample=None) for number in range(3)]
PASSED: dict[str, Any] = {
    "status": "pass",
    "results": [{"name": "equal", "passed": True}],
    "calls": [],
    "sampled": None,
}


@pytest.fixture
def make_store(database_url: str) -> Iterator[Callable[[], EvalStore]]:
    """Opens the evals of a server. Several can be open on one database."""
    opened: list[Database] = []

    def make() -> EvalStore:
        opened.append(open_database(database_url))
        return EvalStore(opened[-1], quota=FileQuota(num_batches=2))

    yield make
    for database in opened:
        database.close()


async def begun(store: EvalStore, *, owner: str | None = "alice") -> StoredRun:
    made = await store.create_eval({"name": "sums"}, owner=owner)
    return await store.create_run(made, {"data_source": {"source": {"type": "file_content"}}}, given=ROWS)


async def test_a_run_is_stored_graded_counted_and_deleted(make_store: Callable[[], EvalStore]) -> None:
    store = make_store()
    run = await begun(store)
    assert await store.claim(run.id)
    assert await store.move(run.id, "in_progress")
    assert [each.number for each in store.waiting_rows(run.id)] == [0, 1, 2]
    await store.keep_sample(run.id, 1, {"output": []})
    assert await store.finish_row(run.id, 1, **PASSED)
    assert not await store.finish_row(run.id, 1, **PASSED)
    assert [each.number for each in store.waiting_rows(run.id)] == [0, 2]
    graded, has_more = await store.graded_rows(
        run.id, after=None, limit=5, max_chars=1000, newest_first=False, status="pass"
    )
    assert ([each.number for each in graded], has_more) == ([1], False)
    await store.keep_score(b"k" * 32, {"score": 1.0}, eval_id=run.eval_id)
    await store.keep_score(b"k" * 32, {"score": 0.0}, eval_id=run.eval_id)
    assert await store.find_score(b"k" * 32) == {"score": 1.0}
    found = await store.get_run(run.id, eval_id=run.eval_id, owner="alice")
    assert found.tally.rows.passed == 1
    assert found.num_bytes == store.num_bytes_of("alice") > sum(each.num_bytes for each in ROWS)
    assert await store.run_ids(run.eval_id, status="in_progress", newest_first=True) == [run.id]
    assert await store.eval_ids(owner="alice", newest_first=True, by_update=True) == [run.eval_id]
    assert await store.delete_eval(run.eval_id) == [run.id]
    assert store.num_bytes_of("alice") == 0
    assert await store.known_run(run.id) is None
    await store.close()


async def test_limits_and_owners_hold_in_both_kinds(make_store: Callable[[], EvalStore]) -> None:
    store = make_store()
    run = await begun(store)
    for given in ("evalrun_\x00", "evalrun_\ud800", "evalrun_" + "0" * 32, run.id):
        owner = "bob" if given == run.id else "alice"
        with pytest.raises(Refused, match="not found"):
            await store.get_run(given, eval_id=run.eval_id, owner=owner)
    await begun(store)
    with pytest.raises(Refused, match="2 runs are unfinished"):
        await begun(store)
    assert await store.cancel(run.id)
    assert not await store.cancel(run.id)
    await begun(store)
    await store.close()


async def test_an_older_file_is_brought_to_this_version(tmp_path: Path) -> None:
    database = Database(url_of(str(tmp_path / "evals.db")))
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE evals (serial INTEGER PRIMARY KEY, id TEXT UNIQUE, owner TEXT, "
                                "created_at INTEGER, updated_at INTEGER, content TEXT)"))  # fmt: skip
        connection.execute(text("CREATE TABLE runs (serial INTEGER PRIMARY KEY, id TEXT UNIQUE, eval_id TEXT REFERENCES "
                                "evals (id), owner TEXT, created_at INTEGER, status TEXT, content TEXT, num_rows INTEGER, "
                                "num_bytes INTEGER, tally TEXT, error TEXT)"))  # fmt: skip
        connection.execute(text("CREATE TABLE rows (run_id TEXT REFERENCES runs (id), number INTEGER, item TEXT, "
                                "given_sample TEXT, sample TEXT, status TEXT, results TEXT, graded_at INTEGER, "
                                "PRIMARY KEY (run_id, number))"))  # fmt: skip
        connection.execute(text("CREATE TABLE scores (serial INTEGER PRIMARY KEY, key BLOB UNIQUE, eval_id TEXT, "
                                "result TEXT)"))  # fmt: skip
        ids = {"eval": f"eval_{'1' * 32}", "run": f"evalrun_{'2' * 32}"}
        connection.execute(text("INSERT INTO evals VALUES (1, :eval, 'alice', 1, 1, '{}')"), ids)
        connection.execute(
            text("INSERT INTO runs VALUES (1, :run, :eval, 'alice', 1, 'in_progress', '{}', 1, 9, '{}', NULL)"), ids
        )
        connection.execute(text("INSERT INTO rows (run_id, number, item) VALUES (:run, 0, '{}')"), ids)
    EvalStore(database)
    store = EvalStore(database)
    assert store.unfinished() == [ids["run"]]
    assert await store.claim(ids["run"])
    assert await store.finish_row(ids["run"], 0, **PASSED)
    assert store.num_bytes_of("alice") > 9
    await store.close()


@pytest.fixture
def shared_url(database_url: str) -> str:
    if not database_url.startswith("postgresql"):
        pytest.skip("a SQLite file has one server")
    return database_url


async def test_one_server_holds_a_run_until_its_lease_expires(
    shared_url: str, make_store: Callable[[], EvalStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_store(), make_store()
    run = await begun(first)
    assert [each.id for each in (await second.renew())[1]] == [run.id]
    assert await first.claim(run.id)
    assert not await second.claim(run.id)
    assert await second.renew() == ([], [])
    assert await first.move(run.id, "in_progress")
    assert not await second.finish_row(run.id, 0, **PASSED)
    assert not await second.move(run.id, "completed")
    monkeypatch.setattr(store_module, "LEASE_S", -1)  # the first server does not renew its lease in time
    assert (await first.renew())[0] == [run.id]
    assert await second.claim(run.id)
    assert not await first.finish_row(run.id, 0, **PASSED)
    assert await second.finish_row(run.id, 0, **PASSED)
    assert (await first.renew())[0] == []
    assert first.num_bytes_of("alice") == second.num_bytes_of("alice") > 0
    await second.close()
    await first.close()


async def test_a_server_that_ends_releases_its_runs(shared_url: str, make_store: Callable[[], EvalStore]) -> None:
    first, second = make_store(), make_store()
    run = await begun(first)
    assert await first.claim(run.id)
    await first.close()
    assert await second.claim(run.id)
    await second.close()


class Answering:
    """A chat endpoint that adds one, and counts its answers by question. `gate` holds the answers back."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.gate = asyncio.Event()

    async def complete(self, request: Request) -> JSONResponse:
        question = (await request.json())["messages"][0]["content"]
        await self.gate.wait()
        self.answers[question] += 1
        choice = {
            "message": {"role": "assistant", "content": str(int(question.split()[0]) + 1)},
            "finish_reason": "stop",
        }
        return JSONResponse({"choices": [choice]})


async def test_two_servers_share_evals_and_grade_each_row_once(
    shared_url: str, open_store: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tirjudge_server.evals.running.POLL_S", 0.05)
    answering = Answering()
    chat = Starlette(routes=[Route("/v1/chat/completions", answering.complete, methods=["POST"])])
    template = {"type": "template", "template": [{"role": "user", "content": "{{ item.question }}"}]}
    async with serve_async(chat) as chat_url, open_chat_models([f"adder={chat_url}/v1"]) as models:
        apps = [
            create_app(
                scripted_service(lambda prompt: "<score>7</score>"),
                files=tmp_path / name,
                records=open_store(shared_url),
                chat_models=models,
            )
            for name in ("a", "b")
        ]
        async with (
            serve_async(apps[0], lifespan="on") as url,
            serve_async(apps[1], lifespan="on") as other_url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
            AsyncOpenAI(base_url=f"{other_url}/v1", api_key="none", max_retries=0) as other,
        ):
            made = await create(client, EQUAL, name="sums")
            assert [each.name async for each in other.evals.list()] == ["sums"]
            rows = [{"item": row(number)["item"]} for number in range(40)]
            source = inline(rows, type="completions", model="adder", input_messages=template)
            runs = [await start(each, made.id, source) for each in (client, other)]
            canceled = await start(client, made.id, source)
            await other.evals.runs.cancel(canceled.id, eval_id=made.id)
            answering.gate.set()
            for run, asked in zip(runs, (other, client), strict=True):
                done = await ended(asked, run)
                assert done.status == "completed"
                assert done.result_counts.to_dict() == {"total": 40, "passed": 40, "failed": 0, "errored": 0}
                assert len(await items_of(asked, run)) == 40
            assert (await ended(client, canceled)).status == "canceled"
            await client.evals.delete(made.id)
            with pytest.raises(NotFoundError):
                await other.evals.retrieve(made.id)
    # The canceled run may have asked for some rows, once each.
    assert set(answering.answers.values()) <= {2, 3}
