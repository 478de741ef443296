"""Fixtures with real vLLM on a CPU: one server with the bundled judge for the whole test run."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.environments import NoEnvironment
from tests.vllm.checkpoint import write_served
from tests.vllm.environment import vllm_python
from tests.vllm.server import VLLMServer, vllm_server
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.model import bundled_checkpoint


@pytest.fixture(scope="session")
def python(pytestconfig: pytest.Config) -> Path:
    """The interpreter of an environment with vLLM."""
    assert pytestconfig.cache is not None
    try:
        return vllm_python(pytestconfig.cache.mkdir("environments") / "vllm")
    except NoEnvironment as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the bundled judge for vLLM."""
    return write_served(tmp_path_factory.mktemp("served") / "judge")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMServer]:
    """A vLLM server. The environment variable TIRJUDGE_TEST_VLLM may name one with the bundled judge and no other clients."""
    if url := os.environ.get("TIRJUDGE_TEST_VLLM"):
        yield VLLMServer(url=url, log=None)
        return
    python, served = request.getfixturevalue("python"), request.getfixturevalue("served")
    log = tmp_path_factory.mktemp("vllm") / "log"
    with vllm_server(python, model=served, log=log) as started:
        yield started


@pytest.fixture
async def http_engine(server: VLLMServer) -> AsyncIterator[VLLMEngine]:
    engine = VLLMEngine(server.url)
    await engine.ready()
    yield engine
    await engine.aclose()


@pytest.fixture(scope="session")
def oracle() -> Iterator[EmbeddedEngine]:
    """The bundled judge in the embedded engine."""
    engine = EmbeddedEngine.load(bundled_checkpoint())
    yield engine
    engine.close()
