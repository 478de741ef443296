"""`tirjudge judge` with a chat endpoint as the judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chat_server import MODEL, ChatServer, serving_chat
from tests.harness.commands import CommandResult, run_command

ITEMS = [
    {"id": "a", "prompt": "Which is longer?", "responses": ["one", "three"], "label": 1},
    {"id": "b", "prompt": "Which is longer?", "responses": ["three", "two"], "label": 0},
]


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIRJUDGE_CHAT_API_KEY", "sk-test")


def judge(chat: ChatServer, *, folder: Path) -> CommandResult:
    items = folder / "items.jsonl"
    items.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    model = ["--chat-url", chat.url, "--chat-model", MODEL]
    return run_command(["judge", str(items), "--out", str(folder / "out.jsonl"), "--tools", "off", "--json", *model])


def longer(conversation: str) -> str:
    """Choose the longer response in both orders."""
    first = conversation.index("three") < conversation.index("</response_a>")
    return f"<preference>{'A' if first else 'B'}</preference>"


def test_a_file_is_judged_by_the_model_of_a_chat_endpoint(tmp_path: Path) -> None:
    with serving_chat(longer) as chat:
        done = judge(chat, folder=tmp_path)
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] == 1.0
    assert {headers["authorization"] for headers in chat.headers} == {"Bearer sk-test"}
    assert {body["model"] for body in chat.bodies} == {MODEL}


def test_an_invalid_api_key_is_reported_with_the_message_of_the_endpoint(tmp_path: Path) -> None:
    error = {"message": "Incorrect API key provided", "type": "invalid_request_error", "code": "invalid_api_key"}
    with serving_chat([], refuses=lambda body: (401, {"error": error})) as chat:
        done = judge(chat, folder=tmp_path)
    assert done.status == 1
    refused = f"{chat.url}/chat/completions answered 401: Incorrect API key provided"
    assert f"run stopped: the judge refuses the requests: {refused}" in done.stderr
    assert len(chat.bodies) <= len(ITEMS)
