"""`tirjudge serve --chat-url` with the HTTP server of llama.cpp as the model, in a separate environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chat_routes import ITEMS, judge_server_with, judgments_of_items, unexpected_answers
from tests.clients.wheels import Environment, environment
from tests.servers import ServerProcess, run_command, wait_until_ready
from tirjudge.http.exchange import EngineRefused
from tirjudge.model import bundled_checkpoint
from tirjudge_web.process import bind, url_of

LLAMA_CPP = "xllamacpp==2026.10.11549 gguf==0.19.0"
SCRIPT = Path(__file__).parents[1] / "chat_llama_cpp.py"
KEY = "sk-llama-0123456789"

__all__ = ["environment"]

pytestmark = pytest.mark.slow


@pytest.fixture
def llama_cpp(environment: Environment, tmp_path: Path) -> Iterator[ServerProcess]:
    """A llama.cpp server with the bundled judge and an API key. Its context holds a program with a look-up, 28 KB of text."""
    with bind("127.0.0.1", port=0) as bound:
        port = url_of(bound).rpartition(":")[2]
    command = [str(environment(LLAMA_CPP)), str(SCRIPT), str(bundled_checkpoint())]
    with (
        open(tmp_path / "log", "w") as log,
        run_command(port, KEY, state=tmp_path, command=command, stderr=log) as process,
    ):
        yield wait_until_ready(process)


async def test_every_route_answers_with_llama_cpp(llama_cpp: ServerProcess, tmp_path: Path) -> None:
    settings = {"chat_url": llama_cpp.url, "chat_model": "judge", "chat_api_key": KEY}
    with pytest.raises(EngineRefused, match=r"answered 401: Invalid API Key .*; check --chat-api-key"):
        async with judge_server_with(tmp_path / "wrong", **settings | {"chat_api_key": "sk-wrong"}):
            pass
    long = ITEMS[0] | {"prompt": "word again " * 10_000}
    async with judge_server_with(tmp_path / "large", **settings) as client:
        too_long = await client.post("/v1/judge", json=long)
    async with judge_server_with(tmp_path / "small", **settings, chat_context_tokens=3072) as client:
        assert await unexpected_answers(client, model="judge") == {}
        judgments = await judgments_of_items(client)
        shortened = await client.post("/v1/judge", json=long)
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert shortened.status_code == 200
    assert judgments[-1].verdict.status == "decided"
    assert judgments[-1].verdict.label_mass
    assert "ok" in {outcome for judgment in judgments for each in judgment.rollouts for outcome in each.outcomes}
    assert all(judgment.usage.output_tokens for judgment in judgments)
