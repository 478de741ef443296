"""Quotas per caller for bytes, files and batches. Requests beyond a quota are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge_server.access import Access
from tirjudge_server.access.keys import create_key
from tirjudge_server.app import create_app
from tirjudge_server.openai.batchstore import BatchStore
from tirjudge_server.openai.filestore import FileQuota, FileStore
from tirjudge_server.records.database import Database, open_database
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import Refused

KIB = 1024


@pytest.fixture
def database(tmp_path: Path) -> Any:
    opened = open_database(str(tmp_path / "records.db"))
    yield opened
    opened.close()


@asynccontextmanager
async def serving(
    connect: Any, tmp_path: Path, *, quota: FileQuota, database: Database | None = None, delay_s: float = 0.0
) -> AsyncIterator[httpx2.AsyncClient]:
    access = None
    if database is not None:
        access = Access(database)
        await access.load()
    engine = ScriptedEngine(lambda sequence: "<score>7</score>", delay_s=delay_s)
    service = JudgeService(Judge(engine=engine))
    app = create_app(service, files=tmp_path / "files", quota=quota, access=access)
    async with app.router.lifespan_context(app), connect(app) as client:
        yield client


async def upload(client: httpx2.AsyncClient, content: bytes, **options: Any) -> httpx2.Response:
    files = {"file": ("items.jsonl", content)}
    return await client.post("/v1/files", files=files, data={"purpose": "batch"}, **options)


def folder_bytes(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "files" / "files").glob("*.data"))


async def test_an_upload_beyond_the_quota_is_refused_until_a_file_is_deleted(connect: Any, tmp_path: Path) -> None:
    async with serving(connect, tmp_path, quota=FileQuota(num_bytes=10 * KIB)) as client:
        first = await upload(client, b"x" * 6 * KIB)
        assert first.status_code == 200
        refused = await upload(client, b"x" * 6 * KIB)
        assert refused.status_code == 413
        error = refused.json()["error"]
        assert error["code"] == "storage_quota_exceeded"
        assert "6,144" in error["message"]
        assert "10,240" in error["message"]
        assert "DELETE /v1/files/" in error["message"]
        assert refused.headers["x-should-retry"] == "false"
        assert folder_bytes(tmp_path) == 6 * KIB
        await client.delete(f"/v1/files/{first.json()['id']}")
        assert (await upload(client, b"x" * 6 * KIB)).status_code == 200


async def test_an_upload_with_a_content_length_is_refused_before_it_is_read(connect: Any, tmp_path: Path) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b"x" * KIB

    headers = {"content-length": str(100 * KIB), "content-type": "multipart/form-data; boundary=b"}
    async with serving(connect, tmp_path, quota=FileQuota(num_bytes=10 * KIB)) as client:
        refused = await client.post("/v1/files", content=body(), headers=headers)
    assert refused.status_code == 413
    assert refused.json()["error"]["code"] == "storage_quota_exceeded"
    assert read <= 1


async def test_an_upload_without_a_content_length_is_refused_at_the_limit(connect: Any, tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n'
        for _ in range(100):
            yield b"x" * KIB
        yield b"\r\n--b--\r\n"

    headers = {"content-type": "multipart/form-data; boundary=b"}
    async with serving(connect, tmp_path, quota=FileQuota(num_bytes=10 * KIB)) as client:
        refused = await client.post("/v1/files", content=body(), headers=headers)
        assert refused.status_code == 413
        # The reservation of the refused upload is released.
        assert (await upload(client, b"x" * 8 * KIB)).status_code == 200


async def test_concurrent_uploads_share_the_remaining_quota(connect: Any, tmp_path: Path) -> None:
    async with serving(connect, tmp_path, quota=FileQuota(num_bytes=20 * KIB)) as client:
        answers = await asyncio.gather(*(upload(client, b"x" * 8 * KIB) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 413, 413, 413, 413]
    assert folder_bytes(tmp_path) == 16 * KIB


def test_a_stored_upload_counts_once_while_its_request_ends(tmp_path: Path) -> None:
    store = FileStore(tmp_path, quota=FileQuota(num_bytes=10, num_files=2))
    with store.receiving("alice", num_bytes=6) as upload:
        with store.open_new("file-1") as target:
            target.write(b"x" * 6)
        store.add("file-1", filename="f", purpose="batch", owner="alice", upload=upload)
        assert store.num_bytes_of("alice") == 6
        with store.receiving("alice", num_bytes=4):
            pass


async def test_a_file_beyond_the_limit_is_refused(connect: Any, tmp_path: Path) -> None:
    async with serving(connect, tmp_path, quota=FileQuota(num_files=2)) as client:
        for status in (200, 200, 429):
            answer = await upload(client, b"x")
            assert answer.status_code == status
    assert answer.json()["error"]["code"] == "storage_quota_exceeded"
    assert "the limit is 2" in answer.json()["error"]["message"]


async def test_each_key_has_a_separate_quota(connect: Any, tmp_path: Path, database: Database) -> None:
    keys = [create_key(database, name=name, scopes=["judge"]) for name in ("alice", "bob")]
    alice, bob = ({"headers": {"authorization": f"Bearer {key}"}} for key in keys)
    async with serving(connect, tmp_path, quota=FileQuota(num_bytes=10 * KIB), database=database) as client:
        assert (await upload(client, b"x" * 9 * KIB, **alice)).status_code == 200
        assert (await upload(client, b"x" * 9 * KIB, **alice)).status_code == 413
        assert (await upload(client, b"x" * 9 * KIB, **bob)).status_code == 200


def test_stored_files_count_after_a_restart(tmp_path: Path) -> None:
    quota = FileQuota(num_bytes=10)
    store = FileStore(tmp_path, quota=quota)
    with store.open_new("file-1") as target:
        target.write(b"x" * 8)
    store.add("file-1", filename="f", purpose="batch", owner="alice")
    again = FileStore(tmp_path, quota=quota)
    with pytest.raises(Refused, match="8 of 10 bytes"), again.receiving("alice", num_bytes=3):
        pass
    with again.receiving("bob", num_bytes=3):
        pass
    again.remove("file-1")
    with again.receiving("alice", num_bytes=3):
        pass


async def test_a_batch_beyond_the_limit_of_unfinished_batches_is_refused(
    connect: Any, tmp_path: Path, until: Any
) -> None:
    body = {"mode": "pointwise", "prompt": "p", "responses": ["a"], "tools": "off"}
    line = {"custom_id": "1", "method": "POST", "url": "/v1/judge", "body": body}
    async with serving(connect, tmp_path, quota=FileQuota(num_batches=1), delay_s=60.0) as client:
        file_id = (await upload(client, json.dumps(line).encode())).json()["id"]
        asked = {"input_file_id": file_id, "endpoint": "/v1/judge", "completion_window": "24h"}
        first = await client.post("/v1/batches", json=asked)
        assert first.status_code == 200
        refused = await client.post("/v1/batches", json=asked)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "too_many_batches"
        assert "/cancel" in refused.json()["error"]["message"]
        await client.post(f"/v1/batches/{first.json()['id']}/cancel")

        async def has_ended() -> bool:
            batch = (await client.get(f"/v1/batches/{first.json()['id']}")).json()
            return batch["status"] == "cancelled"

        async with asyncio.timeout(60):
            while not await has_ended():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await client.post("/v1/batches", json=asked)).status_code == 200


def test_the_oldest_ended_batches_are_deleted(tmp_path: Path) -> None:
    store = BatchStore(tmp_path, quota=FileQuota(num_ended_batches=2))
    fields = {"window_s": 60, "endpoint": "/v1/judge", "input_file_id": "f", "completion_window": "60s"}
    other = store.create(owner="bob", **fields)
    ids = []
    for _ in range(4):
        batch = store.create(owner="alice", **fields)
        store.update(batch.id, status="failed")
        ids.append(batch.id)
    store.update(other.id, status="failed")
    store.create(owner="alice", **fields)
    assert [batch.id for batch in store.of("alice")][:2] == ids[2:]
    assert [batch.id for batch in store.of("bob")] == [other.id]
    assert not (tmp_path / f"{ids[0]}.json").exists()
