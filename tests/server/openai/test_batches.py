"""Files and batches over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError, ConflictError, NotFoundError, OpenAI

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import EngineUnavailable
from tirjudge_server import jobs
from tirjudge_server.openai import batches
from tirjudge_server.openai.batchstore import BatchStore
from tirjudge_server.openai.filestore import FileStore

JUDGE = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"], "tools": "off"}
QUESTION = {"type": "predicate", "instructions": "Is it?"}


def line(number: int, *, url: str = "/v1/judge", body: dict[str, Any] = JUDGE, **others: Any) -> dict[str, Any]:
    return {"custom_id": f"line-{number}", "method": "POST", "url": url, "body": body, **others}


def jsonl(lines: Sequence[object]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in lines)


async def upload(client: AsyncOpenAI, lines: Sequence[object]) -> str:
    return (await client.files.create(file=("in.jsonl", jsonl(lines)), purpose="batch")).id


async def create(client: AsyncOpenAI, lines: Sequence[object], *, endpoint: str = "/v1/judge", window: str = "24h"):
    """Upload a file with these lines, and create a batch from the file."""
    file_id = await upload(client, lines)
    return await client.batches.create(
        input_file_id=file_id,
        endpoint=endpoint,  # type: ignore
        completion_window=window,  # type: ignore
        metadata={"run": "1"},
    )


async def ended(client: AsyncOpenAI, batch_id: str):
    """Wait until a batch has ended, and return it."""
    async with asyncio.timeout(60):
        while True:
            batch = await client.batches.retrieve(batch_id)
            if batch.status in ("completed", "failed", "expired", "cancelled"):
                return batch
            await asyncio.sleep(0.01)


async def lines_of(client: AsyncOpenAI, file_id: str | None) -> dict[str, dict[str, Any]]:
    """Custom id -> line of an output file."""
    assert file_id is not None
    content = (await client.files.content(file_id)).text
    return {entry["custom_id"]: entry for entry in map(json.loads, content.splitlines())}


def prefers_a(sequence: str) -> str:
    return "<preference>A</preference>"


def num_verdicts(engine: ScriptedEngine) -> int:
    """Number of turns that the engine has started to write, without reads of label probabilities."""
    return sum(sampling.allowed_token_ids is None for _, sampling, _ in engine.calls)


async def test_a_file_is_stored_listed_and_deleted(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        first = await client.files.create(file=("in.jsonl", b"{}\n"), purpose="batch")
        second = await client.files.create(
            file=b"{}\n{}\n", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
        )
        assert (first.object, first.bytes, first.filename, first.purpose) == ("file", 3, "in.jsonl", "batch")
        assert second.expires_at == second.created_at + 3600
        assert [file.id async for file in client.files.list(limit=1)] == [second.id, first.id]
        assert (await client.files.content(first.id)).read() == b"{}\n"
        assert (await client.files.retrieve(first.id)) == first
        assert (await client.files.delete(first.id)).deleted
        with pytest.raises(NotFoundError):
            await client.files.retrieve(first.id)


async def test_an_upload_needs_the_purpose_batch_and_a_form(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        with pytest.raises(BadRequestError, match="purpose"):
            await client.files.create(file=b"{}", purpose="fine-tune")
        with pytest.raises(BadRequestError, match="multipart"):
            await client.post("/files", body={"purpose": "batch"}, cast_to=object)


async def test_a_batch_of_judgments_writes_output_and_errors(make_judge, client_of) -> None:
    service = make_judge(prefers_a)
    lines = [line(n) for n in range(5)] + [line(5, body={**JUDGE, "responses": ["one"]})]
    async with client_of(service) as client:
        batch = await create(client, lines)
        assert (batch.object, batch.status, batch.endpoint) == ("batch", "validating", "/v1/judge")
        assert batch.metadata == {"run": "1"}
        assert batch.expires_at == batch.created_at + 24 * 3600
        done = await ended(client, batch.id)
        output, errors = await lines_of(client, done.output_file_id), await lines_of(client, done.error_file_id)
        output_file = await client.files.retrieve(done.output_file_id or "")
    assert done.status == "completed"
    assert done.request_counts is not None
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (6, 5, 1)
    assert set(output) == {f"line-{n}" for n in range(5)}
    answer = output["line-0"]
    assert answer["error"] is None
    assert answer["id"].startswith("batch_req_")
    assert answer["response"]["status_code"] == 200
    assert answer["response"]["request_id"].startswith("req_")
    assert answer["response"]["body"]["verdict"]["status"] == "decided"
    assert set(errors) == {"line-5"}
    assert errors["line-5"]["response"]["status_code"] == 400
    assert errors["line-5"]["response"]["body"]["error"]["param"] == "responses"
    assert output_file.purpose == "batch_output"
    assert done.usage is not None
    assert done.usage.total_tokens == sum(
        entry["response"]["body"]["usage"]["input_tokens"] + entry["response"]["body"]["usage"]["output_tokens"]
        for entry in output.values()
    )
    for moment in ("in_progress_at", "finalizing_at", "completed_at"):
        assert getattr(done, moment) is not None


@pytest.mark.parametrize(
    ("endpoint", "body", "key"),
    [
        ("/v1/decisions", {"model": "judge", "input": "x", "questions": [QUESTION]}, "answers"),
        (
            "/v1/chat/completions",
            {"model": "judge", "messages": [{"role": "user", "content": "Which is longer?"}], "judge": JUDGE},
            "choices",
        ),
    ],
)
async def test_a_batch_can_use_other_endpoints(make_judge, client_of, endpoint, body, key) -> None:
    async with client_of(make_judge(prefers_a)) as client:
        batch = await create(client, [line(0, url=endpoint, body=body)], endpoint=endpoint)
        done = await ended(client, batch.id)
        output = await lines_of(client, done.output_file_id)
    assert key in output["line-0"]["response"]["body"]
    assert done.model == "judge"
    assert done.error_file_id is None


async def test_errors_in_an_input_file_have_line_numbers(make_judge, client_of) -> None:
    lines = [line(0), line(0), line(1, url="/v1/decisions"), {"custom_id": "x"}, "text"]
    async with client_of(make_judge([])) as client:
        done = await ended(client, (await create(client, lines)).id)
        empty = await ended(client, (await create(client, [])).id)
    assert done.status == "failed"
    assert done.errors is not None
    found = {error.line: error.code for error in done.errors.data or []}
    assert found == {
        2: "duplicate_custom_id",
        3: "mismatched_endpoint",
        4: "invalid_method",
        5: "invalid_json_line",
    }
    assert [error.code for error in (empty.errors.data if empty.errors else None) or []] == ["empty_file"]


async def test_an_invalid_batch_is_refused(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        file_id = await upload(client, [line(0)])
        for options, status in (
            ({"endpoint": "/v1/embeddings"}, 400),
            ({"completion_window": "soon"}, 400),
            ({"input_file_id": "file-none"}, 404),
        ):
            given = {"input_file_id": file_id, "endpoint": "/v1/judge", "completion_window": "24h", **options}
            with pytest.raises(APIStatusError) as caught:
                await client.batches.create(**given)  # type: ignore
            assert caught.value.status_code == status


async def test_a_cancelled_batch_keeps_its_completed_lines(make_held_judge, client_of, until) -> None:
    service, engine = make_held_judge(prefers_a, max_concurrency=1)
    async with client_of(service) as client:
        batch = await create(client, [line(n, body={**JUDGE, "seed": n}) for n in range(10)])
        engine.allow(2)
        await until(lambda: num_verdicts(engine) == 2 and engine.num_held == 1)
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
        done = await ended(client, batch.id)
        output, errors = await lines_of(client, done.output_file_id), await lines_of(client, done.error_file_id)
        with pytest.raises(ConflictError) as caught:
            await client.batches.cancel(batch.id)
    assert done.status == "cancelled"
    assert done.cancelling_at is not None
    assert done.cancelled_at is not None
    assert (set(output), len(errors)) == ({"line-0", "line-1"}, 8)
    assert {entry["error"]["code"] for entry in errors.values()} == {"batch_cancelled"}
    assert caught.value.response.headers["x-should-retry"] == "false"


async def test_a_batch_expires_at_the_end_of_its_window(make_held_judge, client_of, monkeypatch) -> None:
    monkeypatch.setattr(batches, "window_s", lambda window: 0)
    service, _ = make_held_judge(prefers_a, max_concurrency=1)
    async with client_of(service) as client:
        batch = await create(client, [line(n) for n in range(10)])
        done = await ended(client, batch.id)
        errors = await lines_of(client, done.error_file_id)
    assert done.status == "expired"
    assert done.expired_at is not None
    assert {entry["error"]["code"] for entry in errors.values()} == {"batch_expired"}
    assert done.request_counts is not None
    assert (done.request_counts.completed, done.request_counts.failed) == (0, 10)


@pytest.mark.parametrize(("window", "seconds"), [("1s", 1), ("90m", 5400), ("24h", 86_400), ("7d", 604_800)])
def test_windows_are_numbers_of_seconds_minutes_hours_or_days(window: str, seconds: int) -> None:
    assert batches.window_s(window) == seconds


async def test_a_restarted_server_continues_after_the_completed_lines(
    make_judge, make_held_judge, client_of, until, tmp_path: Path
) -> None:
    folder, lines = tmp_path / "kept", [line(n, body={**JUDGE, "seed": n}) for n in range(10)]
    service, engine = make_held_judge(prefers_a, max_concurrency=1)
    async with client_of(service, folder=folder) as client:
        batch = await create(client, lines)
        engine.allow(3)
        await until(lambda: num_verdicts(engine) == 3 and engine.num_held == 1)
    half = folder / "batches" / f"{batch.id}.output"
    assert half.read_bytes().count(b"\n") == 3
    with half.open("ab") as file:
        file.write(b'{"custom_id": "line-9", "resp')  # as after a kill in the middle of a write
    again = make_judge(prefers_a)
    async with client_of(again, folder=folder) as client:
        done = await ended(client, batch.id)
        output = await lines_of(client, done.output_file_id)
    assert done.status == "completed"
    assert set(output) == {f"line-{n}" for n in range(10)}
    assert num_verdicts(again.judge.engine) == 7


async def test_a_crash_while_finalizing_loses_nothing(make_judge, client_of, tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "kept"
    monkeypatch.setattr(BatchStore, "forget_lines", lambda self, batch_id: None)
    async with client_of(make_judge(prefers_a), folder=folder) as client:
        done = await ended(client, (await create(client, [line(0)])).id)
    monkeypatch.undo()
    state = folder / "batches" / f"{done.id}.json"
    state.write_text(state.read_text().replace('"status":"completed"', '"status":"finalizing"'))
    async with client_of(make_judge([]), folder=folder) as client:
        again = await ended(client, done.id)
        output = await lines_of(client, again.output_file_id)
    assert again.output_file_id == done.output_file_id
    assert set(output) == {"line-0"}


async def test_a_line_is_retried_while_the_engine_is_down(make_judge, client_of, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "FIRST_WAIT_S", 0.01)
    failures = iter([True, True])

    def writes(sequence: str) -> str:
        if next(failures, False):
            raise EngineUnavailable("the engine is down")
        return prefers_a(sequence)

    async with client_of(make_judge(writes)) as client:
        done = await ended(client, (await create(client, [line(0)])).id)
    assert done.status == "completed"
    assert done.error_file_id is None


async def test_the_input_file_of_a_running_batch_cannot_be_deleted(make_held_judge, client_of) -> None:
    service, _ = make_held_judge(prefers_a, max_concurrency=1)
    async with client_of(service) as client:
        batch = await create(client, [line(0)])
        with pytest.raises(BadRequestError, match="read by a batch"):
            await client.files.delete(batch.input_file_id)
        await client.batches.cancel(batch.id)
        await ended(client, batch.id)
        assert (await client.files.delete(batch.input_file_id)).deleted


async def test_batches_are_listed_newest_first(make_judge, client_of) -> None:
    async with client_of(make_judge(prefers_a)) as client:
        made = [(await create(client, [line(0)])).id for _ in range(3)]
        assert [batch.id async for batch in client.batches.list(limit=2)] == made[::-1]
        for batch_id in made:
            await ended(client, batch_id)


async def test_interactive_requests_run_before_lines_of_batches(make_held_judge, client_of, until) -> None:
    service, engine = make_held_judge(prefers_a, max_concurrency=1)
    async with client_of(service) as client:
        created = [await create(client, [line(n, body={**JUDGE, "seed": n}) for n in range(3)]) for _ in range(2)]
        await until(lambda: engine.num_held == 1 and service.admission.num_waiting == 1)
        asking = asyncio.create_task(client.decisions.create(model="judge", input="x", questions=[QUESTION]))  # type: ignore
        await until(lambda: service.admission.num_waiting == 2)
        engine.allow(2)  # the line that runs, and the first request in the queue
        await asking
        counts = [(await client.batches.retrieve(batch.id)).request_counts for batch in created]
        for batch in created:
            await client.batches.cancel(batch.id)
            await ended(client, batch.id)
    assert sum(count.completed for count in counts if count is not None) <= 1


async def test_the_synchronous_client_runs_a_batch(make_judge, client_of) -> None:
    async with client_of(make_judge(prefers_a)) as client:

        def run() -> str:
            with OpenAI(base_url=str(client.base_url), api_key="none", max_retries=0) as synchronous:
                file = synchronous.files.create(file=("in.jsonl", jsonl([line(0)])), purpose="batch")
                batch = synchronous.batches.create(
                    input_file_id=file.id,
                    endpoint="/v1/judge",  # type: ignore
                    completion_window="24h",
                )
                while batch.status != "completed":
                    batch = synchronous.batches.retrieve(batch.id)
                return synchronous.files.content(batch.output_file_id or "").text

        assert json.loads(await asyncio.to_thread(run))["custom_id"] == "line-0"


def test_expired_files_and_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    now = [1000.0]
    store = FileStore(tmp_path, now=lambda: now[0])
    file_id = store.new_id()
    with store.open_new(file_id) as file:
        file.write(b"x")
    store.add(file_id, filename="x", purpose="batch", owner=None, lifetime_s=60)
    (tmp_path / "file-left.data").write_bytes(b"half an upload")
    again = FileStore(tmp_path, now=lambda: now[0])
    assert [path.name for path in tmp_path.glob("*.data")] == [f"{file_id}.data"]
    assert again.get(file_id, owner=None).bytes == 1
    now[0] = 1060.0
    assert again.of(None) == []
    assert list(tmp_path.iterdir()) == []


def test_an_owner_does_not_see_the_files_of_others(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    file_id = store.new_id()
    store.open_new(file_id).close()
    store.add(file_id, filename="x", purpose="batch", owner="ann")
    assert store.of("bob") == []
    with pytest.raises(Exception, match="not found"):
        store.get(file_id, owner="bob")
