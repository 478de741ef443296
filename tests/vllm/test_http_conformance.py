"""The engine for vLLM over HTTP passes the tests of every engine."""

import pytest

from tests.vllm.conformance import *  # noqa: F403
from tests.vllm.http_conformance import *  # noqa: F403
from tirjudge.engines.vllm import VLLMEngine

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture
def engine(http_engine: VLLMEngine) -> VLLMEngine:
    return http_engine
