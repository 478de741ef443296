"""The mini worker with the bundled judge passes the conformance tests of real vLLM."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.servers import serve_in_thread
from tests.vllm.conformance import *  # noqa: F403
from tests.vllm.http_conformance import *  # noqa: F403
from tests.vllm.http_conformance import REFUSES_REPEATED_ROLES
from tirjudge.chat_template import ChatTemplate
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.model import bundled_checkpoint
from tirjudge_server.worker import create_worker


@pytest.fixture(scope="module")
def oracle() -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine.load(bundled_checkpoint())
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def worker_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A mini worker with a separate engine, on a real socket."""
    folder = tmp_path_factory.mktemp("worker") / "judge"
    shutil.copytree(bundled_checkpoint(), folder)
    (folder / "chat_template.jinja").write_text(REFUSES_REPEATED_ROLES + ChatTemplate.load(folder).source)
    engine = EmbeddedEngine.load(folder)
    with serve_in_thread(create_worker(engine, name="judge")) as url:
        yield url
    engine.close()


@pytest.fixture
async def engine(worker_url: str) -> AsyncIterator[VLLMEngine]:
    engine = VLLMEngine(worker_url)
    await engine.ready()
    yield engine
    await engine.aclose()
