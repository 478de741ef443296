"""The mini worker with the bundled judge passes the conformance tests of real vLLM."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import uvicorn

from tests.vllm.conformance import *  # noqa: F403
from tests.vllm.http_conformance import *  # noqa: F403
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.model import bundled_checkpoint
from tirjudge_server.worker import create_worker
from tirjudge_web.process import bind, url_of


@pytest.fixture(scope="module")
def oracle() -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine.load(bundled_checkpoint())
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def worker_url() -> Iterator[str]:
    """A mini worker with a separate engine, on a real socket."""
    engine = EmbeddedEngine.load(bundled_checkpoint())
    listening = bind("127.0.0.1", port=0)
    server = uvicorn.Server(uvicorn.Config(create_worker(engine, name="judge"), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    yield url_of(listening)
    server.should_exit = True
    thread.join()
    engine.close()


@pytest.fixture
async def engine(worker_url: str) -> AsyncIterator[VLLMEngine]:
    engine = VLLMEngine(worker_url)
    await engine.ready()
    yield engine
    await engine.aclose()
