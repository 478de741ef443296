"""The requests of a weight reload to a vLLM server, and failures during a reload. The server is a stub with vLLM's routes;
`tests/vllm/test_started_by_serve.py` reloads real vLLM."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.servers import serve_async
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.errors import CheckpointError, EngineUnavailable

Seen = list[tuple[str, str, Any]]
Serve = Callable[..., Any]


@asynccontextmanager
async def serving(device: str = "cuda", **statuses: int) -> AsyncIterator[tuple[str, Seen]]:
    """Start a stub server on a real socket.

    Args:
        device: device that the server reports.
        statuses: path without its slash -> status of its responses. Other paths: 200.

    Yields:
        The URL, and the list of requests (path, query, body).
    """
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
        info = {"vllm_config": {"device_config": {"device": device, "device_type": device}}}
        fine = info if path == "/server_info" else {"status": "ok"}
        answer = fine if status == 200 else {"error": {"message": "it broke", "type": "e", "code": status}}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        # vLLM answers /reset_prefix_cache with an empty body.
        content = b"" if path == "/reset_prefix_cache" and status == 200 else json.dumps(answer).encode()
        await send({"type": "http.response.body", "body": content})

    async with serve_async(app) as url:
        yield url, seen


@asynccontextmanager
async def engine_at(url: str) -> AsyncIterator[VLLMEngine]:
    engine = VLLMEngine(url)
    try:
        yield engine
    finally:
        await engine.aclose()


async def test_a_reload_pauses_loads_clears_the_cache_and_resumes(tmp_path: Path) -> None:
    async with serving() as (url, seen), engine_at(url) as engine:
        await engine.reload(tmp_path, version="0123")
    assert seen == [
        ("/server_info", "config_format=json", None),
        ("/pause", "mode=wait", {}),
        ("/collective_rpc", "", {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path)}}),
        ("/reset_prefix_cache", "", {}),
        ("/resume", "", {}),
    ]


async def test_without_dev_mode_a_reload_is_rejected_with_the_required_setting(tmp_path: Path) -> None:
    async with serving(server_info=404) as (url, seen), engine_at(url) as engine:
        with pytest.raises(CheckpointError, match="VLLM_SERVER_DEV_MODE=1"):
            await engine.reload(tmp_path, version="0123")
    assert [path for path, _, _ in seen] == ["/server_info"]


@pytest.mark.parametrize(
    ("device", "config", "tensors", "takes"),
    [
        ("cpu", {"tie_word_embeddings": True}, {"model.embed_tokens.weight", "lm_head.weight"}, False),
        ("cpu", {"tie_word_embeddings": False}, {"model.embed_tokens.weight"}, True),
        ("cpu", {}, {"model.embed_tokens.weight"}, False),
        ("cpu", {}, {"model.embed_tokens.weight", "lm_head.weight"}, True),
        ("cuda", {"tie_word_embeddings": True}, {"model.embed_tokens.weight"}, True),
    ],
)
async def test_tied_weights_are_rejected_on_a_cpu(
    tmp_path: Path, device: str, config: dict[str, bool], tensors: set[str], takes: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(dict.fromkeys(tensors, np.zeros((2, 2), np.float32)), tmp_path / "model.safetensors")
    async with serving(device=device) as (url, seen), engine_at(url) as engine:
        with nullcontext() if takes else pytest.raises(CheckpointError, match="would keep the old output layer"):
            await engine.reload(tmp_path, version="0123")
    assert ("/pause" in [path for path, _, _ in seen]) == takes


@pytest.mark.parametrize("path", ["pause", "collective_rpc", "reset_prefix_cache"])
@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_server_that_fails_during_a_reload_is_resumed_and_unavailable(
    tmp_path: Path, path: str, status: int
) -> None:
    async with serving(**{path: status}) as (url, seen), engine_at(url) as engine:
        with pytest.raises(EngineUnavailable, match="it broke"):
            await engine.reload(tmp_path, version="0123")
    assert seen[-1][0] == "/resume"
