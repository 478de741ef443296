"""`tirjudge serve --chat-url` with the chat route of another `tirjudge serve` as the model.

That route runs programs itself and returns the end of the conversation, so the judge in front of it sees no program.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chat_routes import judge_server_with, judgments_of_items, unexpected_answers
from tests.servers import ServerProcess
from tirjudge.model import bundled_checkpoint


@pytest.fixture
def chatting(tmp_path: Path) -> Path:
    """The bundled judge as a model that chats: its file does not say that it was trained to judge."""
    folder = tmp_path / "chatting"
    shutil.copytree(bundled_checkpoint(), folder)
    file = json.loads((folder / "judge.json").read_text())
    kept = {name: value for name, value in file.items() if name not in ("format_sha256", "prompts_sha256")}
    (folder / "judge.json").write_text(json.dumps(kept | {"name": "chatting"}))
    return folder


@pytest.mark.slow
async def test_every_route_answers_with_our_chat_route(
    start: Callable[..., ServerProcess], chatting: Path, tmp_path: Path
) -> None:
    server = start("serve", "--model", str(chatting), "--allow-unsafe-sandbox")
    settings = {"chat_url": server.url, "chat_model": "chatting", "chat_context_tokens": 3072}
    async with judge_server_with(tmp_path / "front", **settings) as client:
        assert await unexpected_answers(client, model="chatting") == {}
        judgments = await judgments_of_items(client)
        metrics = (await client.get("/metrics")).text
    assert judgments[-1].verdict.status == "decided"
    assert all(judgment.usage.input_tokens for judgment in judgments)
    assert 'tirjudge_tokens_total{kind="output"}' in metrics
