"""`tirjudge serve --chat-url` with the chat route of real vLLM as the model."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.chat_routes import judge_server_with, judgments_of_items, unexpected_answers
from tests.vllm.server import VLLMServer

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


async def test_every_route_answers_with_the_chat_route_of_vllm(server: VLLMServer, tmp_path: Path) -> None:
    name = httpx2.get(f"{server.url}/v1/models").json()["data"][0]["id"]
    settings = {"chat_url": server.url, "chat_model": name, "chat_context_tokens": 3072}
    async with judge_server_with(tmp_path, **settings) as client:
        assert await unexpected_answers(client, model=name) == {}
        judgments = await judgments_of_items(client)
    assert judgments[-1].verdict.status == "decided"
    assert judgments[-1].verdict.label_mass
    assert "ok" in {outcome for judgment in judgments for each in judgment.rollouts for outcome in each.outcomes}
    assert all(judgment.usage.output_tokens for judgment in judgments)
