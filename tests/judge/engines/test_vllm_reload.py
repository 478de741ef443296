"""What a vLLM server is sent to exchange its weights. A peer of ours that answers as vLLM's routes do: vLLM itself is not
run here, and nothing is said of what it does with the weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tirjudge.engines.vllm import VLLMEngine
from tirjudge.errors import CheckpointError, EngineUnavailable
from tirjudge.web.process import bind, url_of

Seen = list[tuple[str, str, Any]]
Serve = Callable[..., Any]


@asynccontextmanager
async def serving(**statuses: int) -> AsyncIterator[tuple[str, Seen]]:
    """A server on a real socket. Path without its slash -> status; else 200."""
    seen: Seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path, query = scope["path"], scope["query_string"].decode()
        seen.append((path, query, json.loads(body or b"null")))
        status = statuses.get(path[1:], 200)
        answer = {"status": "ok"} if status == 200 else {"error": {"message": "it broke", "type": "e", "code": status}}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        # /reset_prefix_cache answers with nothing at all.
        content = b"" if path == "/reset_prefix_cache" and status == 200 else json.dumps(answer).encode()
        await send({"type": "http.response.body", "body": content})

    bound = bind("127.0.0.1", port=0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))
    running = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        yield url_of(bound), seen
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def engine_at(url: str) -> AsyncIterator[VLLMEngine]:
    engine = VLLMEngine(url)
    try:
        yield engine
    finally:
        await engine.aclose()


async def test_the_server_is_paused_reloaded_cleared_and_resumed(tmp_path: Path) -> None:
    async with serving() as (url, seen), engine_at(url) as engine:
        await engine.reload(tmp_path, version="0123")
    assert seen == [
        ("/pause", "mode=wait", {}),
        ("/collective_rpc", "", {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path)}}),
        ("/reset_prefix_cache", "", {}),
        ("/resume", "", {}),
    ]


async def test_a_server_outside_of_dev_mode_is_left_alone_and_the_error_says_what_would_do(tmp_path: Path) -> None:
    async with serving(pause=404) as (url, seen), engine_at(url) as engine:
        with pytest.raises(CheckpointError, match="VLLM_SERVER_DEV_MODE=1"):
            await engine.reload(tmp_path, version="0123")
    assert [path for path, _, _ in seen] == ["/pause"]


@pytest.mark.parametrize("path", ["collective_rpc", "reset_prefix_cache"])
@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_server_that_fails_halfway_is_resumed_and_nobody_trusts_its_weights(
    tmp_path: Path, path: str, status: int
) -> None:
    async with serving(**{path: status}) as (url, seen), engine_at(url) as engine:
        with pytest.raises(EngineUnavailable, match="it broke"):
            await engine.reload(tmp_path, version="0123")
    assert seen[-1][0] == "/resume"
