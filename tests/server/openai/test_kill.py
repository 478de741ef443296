"""SIGKILL of `tirjudge serve` during a batch: the next process runs the remaining lines, and no line runs twice.

The engine of the server is a worker in this test, which holds its completions at a chosen point. So the server is killed in
a known state, however fast or slow the machine is.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.servers import serve_in_thread
from tests.waiting import until
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge_server.worker import create_worker

pytestmark = pytest.mark.slow

NUM_LINES = 12
HANG_S = 180.0
"""Timeout of waits, which matters only if something hangs."""


class HeldCompletions:
    """ASGI middleware around a worker. It can allow a number of completions and hold all later ones.

    Attributes:
        num_held: number of completions that wait.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        self.num_held = 0
        self._num_allowed: int | None = None  # None: all completions are allowed

    def hold_after(self, num_completions: int) -> None:
        self._num_allowed = num_completions

    def release(self) -> None:
        self._num_allowed = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/v1/completions":
            self.num_held += 1
            while self._num_allowed == 0:  # noqa: ASYNC110 (released by another thread)
                await asyncio.sleep(0.01)
            self.num_held -= 1
            if self._num_allowed is not None:
                self._num_allowed -= 1
        await self.app(scope, receive, send)


def lines_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_killed_server_continues_its_batch(start, random_checkpoint: Path, tmp_path: Path) -> None:
    engine = EmbeddedEngine.load(random_checkpoint)
    worker = HeldCompletions(create_worker(engine, name="random"))
    lines = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/judge", "body": body_of(number)}
        for number in range(NUM_LINES)
    ]
    with serve_in_thread(worker) as engine_url:
        options = ["--model", str(random_checkpoint), "--engine", engine_url, "--records", "none"]
        options += ["--files", str(tmp_path / "files"), "--max-concurrency", "1"]
        server = await asyncio.to_thread(start, "serve", *options)
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            worker.hold_after(11)
            content = "\n".join(map(json.dumps, lines)).encode()
            file = await client.files.create(file=("in.jsonl", content), purpose="batch")
            batch = await client.batches.create(
                input_file_id=file.id,
                endpoint="/v1/judge",
                completion_window="24h",  # type: ignore
            )
            await until(lambda: worker.num_held == 1, at_most_s=HANG_S)
        server.kill()
        kept = tmp_path / "files" / "batches" / f"{batch.id}.output"
        before = [line["id"] for line in lines_in(kept)]
        assert 1 <= len(before) < NUM_LINES
        worker.release()
        server = await asyncio.to_thread(start, "serve", *options)
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            async with asyncio.timeout(HANG_S):
                while (done := await client.batches.retrieve(batch.id)).status != "completed":  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            content = (await client.files.content(done.output_file_id or "")).text
    engine.close()
    output = [json.loads(line) for line in content.splitlines()]
    assert [line["id"] for line in output][: len(before)] == before
    assert sorted(int(line["custom_id"]) for line in output) == list(range(NUM_LINES))


def body_of(number: int) -> dict[str, Any]:
    return {"mode": "pairwise", "prompt": str(number), "responses": ["one", "three"], "tools": "off"}
