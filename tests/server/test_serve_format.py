"""A server whose judge has the format of another judge."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chat_server import MODEL, ChatServer, serving_chat
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.types import Mode
from tirjudge_server.readiness import trial_for
from tirjudge_server.serving import open_application
from tirjudge_server.settings import ServerSettings

PAIR = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"]}

Connect = Callable[[Any], httpx2.AsyncClient]


def settings_for(chat: ChatServer, *, folder: Path, format: str) -> ServerSettings:
    return ServerSettings(
        chat_url=chat.url,
        chat_model=MODEL,
        format=format,
        records=str(folder / "records.db"),
        files=str(folder / "files"),
        allow_unsafe_sandbox=True,
        allowed_host=["test"],
        slots=1,
    )


async def test_a_server_judges_in_the_format_of_another_judge(connect: Connect, tmp_path: Path) -> None:
    with serving_chat(lambda conversation: "OK" if "Reply with" in conversation else "[[C]]") as chat:
        settings = settings_for(chat, folder=tmp_path, format="mt-bench-pair")
        async with open_application(settings) as opened, connect(opened.app) as client:
            judged = await client.post("/v1/judge", json=PAIR)
            card = (await client.get("/v1/models")).json()["data"][0]
            refused = await client.post("/v1/judge", json=PAIR | {"mode": "pointwise"})
            on = await client.post("/v1/judge", json=PAIR | {"tools": "on"})
    judgment = judged.json()
    assert judged.status_code == 200, judgment
    assert (judgment["verdict"]["status"], judgment["verdict"]["reason"]) == ("tie", "judged_equal")
    assert judgment["rollouts"][0]["verdict"]["label"] == "tie"
    assert judgment["rollouts"][0]["verdict"]["written"] == "C"
    assert card["format"] == "mt-bench-pair"
    error = refused.json()["error"]
    assert refused.status_code == 400
    assert (error["param"], error["code"]) == ("mode", "not_shown_by_format")
    assert "its modes: pairwise" in error["message"]
    assert on.status_code == 400


@pytest.mark.parametrize(
    ("format", "mode"),
    [(None, Mode.PAIRWISE), ("mt-bench-pair", Mode.PAIRWISE), ("reward-bench-2", Mode.POINTWISE)],
)
async def test_the_trial_has_a_mode_that_the_format_shows(format: str | None, mode: Mode) -> None:
    judge = Judge(engine=ScriptedEngine(lambda prompt: "8"), profile=Profile(format=format))
    trial = trial_for(judge)
    assert trial.mode is mode
    judge.check_shown(trial)


async def test_clients_do_not_see_the_folder_of_a_format_file(connect: Connect, tmp_path: Path) -> None:
    file = tmp_path / "private" / "mine.toml"
    file.parent.mkdir()
    file.write_bytes(resources.files("tirjudge").joinpath("formats", "others", "mt-bench-pair.toml").read_bytes())
    with serving_chat(lambda conversation: "OK" if "Reply with" in conversation else "[[A]]") as chat:
        settings = settings_for(chat, folder=tmp_path, format=str(file))
        async with open_application(settings) as opened, connect(opened.app) as client:
            card = (await client.get("/v1/models")).json()["data"][0]
            refused = await client.post("/v1/judge", json=PAIR | {"mode": "pointwise"})
    assert card["format"].startswith("mine.toml#")
    assert card["modes"] == ["pairwise"]
    assert "the format mine.toml#" in refused.json()["error"]["message"]
    assert "private" not in refused.text
