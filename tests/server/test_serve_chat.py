"""`tirjudge serve --chat-url`: a chat endpoint behind every route, its failures, limits and prices."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chat_server import MODEL, ChatServer, serving_chat
from tests.server.bodies import BODIES
from tests.server.speaking import service_of
from tests.servers import run_command, serve_command
from tirjudge.errors import TirjudgeError
from tirjudge.http.exchange import EngineRefused
from tirjudge_server import readiness
from tirjudge_server.app import create_app
from tirjudge_server.serving import open_application, serve_judge
from tirjudge_server.settings import ServerSettings
from tirjudge_web.process import bind, url_of

KEY = "sk-test-0123456789abcdef"
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}
PAIR = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"], "tools": "off"}
WRONG_KEY = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}

Connect = Callable[[Any], httpx2.AsyncClient]


def answer(conversation: str) -> str:
    """Answer the check, or judge: the first response, or a score of 7."""
    asked = re.findall("<(score|preference)>", conversation)[-1:]
    return {"score": "<score>7</score>", "preference": "<preference>A</preference>"}.get("".join(asked), "OK")


def settings_for(chat: ChatServer, *, folder: Path, **settings: Any) -> ServerSettings:
    return ServerSettings(
        **{
            "chat_url": chat.url,
            "chat_model": MODEL,
            "chat_api_key": KEY,
            "records": str(folder / "records.db"),
            "files": str(folder / "files"),
            "allow_unsafe_sandbox": True,
            "allowed_host": ["test"],
            "slots": 1,
            **settings,
        }
    )


@asynccontextmanager
async def served(
    chat: ChatServer, *, folder: Path, connect: Connect, trials: bool = False, **settings: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an open server; `trials`: whether the server makes its trial judgments."""
    async with open_application(settings_for(chat, folder=folder, **settings)) as opened, connect(opened.app) as client:
        if not trials:
            yield client
            return
        async with opened.app.router.lifespan_context(opened.app):
            yield client


# Every route.


@pytest.mark.slow
@pytest.mark.parametrize("usage", [USAGE, None], ids=["counts", "no counts"])
async def test_every_route_answers_with_a_chat_endpoint(
    usage: Mapping[str, Any] | None, connect: Connect, tmp_path: Path
) -> None:
    """The status of every route is that of a server with another engine."""
    differing = {}
    with serving_chat(answer, usage=usage) as chat:
        async with (
            served(chat, folder=tmp_path, connect=connect, chat_model="judge") as client,
            connect(create_app(service_of(answer), files=tmp_path / "others")) as other,
        ):
            for name, (path, body) in BODIES.items():
                response = await client.post(path, json=body)
                if response.status_code != (await other.post(path, json=body)).status_code:
                    differing[name] = response.text
    assert differing == {}
    assert len(chat.bodies) > 20


@pytest.mark.slow
async def test_a_file_of_requests_is_judged_as_a_batch(connect: Connect, tmp_path: Path) -> None:
    lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/judge", "body": PAIR | {"seed": i}} for i in range(3)]
    sent = "".join(json.dumps(line) + "\n" for line in lines).encode()
    with serving_chat(answer, usage=USAGE) as chat:
        async with served(chat, folder=tmp_path, connect=connect, trials=True) as client, asyncio.timeout(60):
            file = await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", sent)})
            asked = {"input_file_id": file.json()["id"], "endpoint": "/v1/judge", "completion_window": "24h"}
            batch = (await client.post("/v1/batches", json=asked)).json()
            while batch["status"] not in ("completed", "failed", "expired"):
                await asyncio.sleep(0.02)
                batch = (await client.get(f"/v1/batches/{batch['id']}")).json()
            output = (await client.get(f"/v1/files/{batch['output_file_id']}/content")).text
    answers = [json.loads(line)["response"] for line in output.splitlines()]
    assert [one["status_code"] for one in answers] == [200] * 3
    assert {one["body"]["verdict"]["status"] for one in answers} == {"decided"}


async def test_a_program_runs_and_its_turn_is_streamed(connect: Connect, tmp_path: Path) -> None:
    program = "```python\nprint(len(response_a))\n```\n```output"
    script = ["OK", program, "<preference>A</preference>"]
    with serving_chat(script) as chat:
        async with served(chat, folder=tmp_path, connect=connect) as client:
            response = await client.post("/v1/judge", json=PAIR | {"tools": "on", "stream": True})
    assert response.status_code == 200
    assert '"outcome":"ok"' in response.text.replace(" ", "")
    assert '"status":"decided"' in response.text.replace(" ", "")


async def test_a_judgment_has_null_for_what_the_endpoint_does_not_give(connect: Connect, tmp_path: Path) -> None:
    with serving_chat(answer) as chat:
        async with served(chat, folder=tmp_path, connect=connect) as client:
            judgment = (await client.post("/v1/judge", json=PAIR)).json()
            chatted = (await client.post(*BODIES["chat"][:1], json=BODIES["chat"][1])).json()
            reward = (await client.post("/v1/reward", json={"prompt": "p", "responses": ["a"]})).json()
            card = (await client.get("/v1/models")).json()["data"][0]
            stored = (await client.get(f"/v1/judgments/{judgment['id']}")).json()
    verdict, usage = judgment["verdict"], judgment["usage"]
    assert (verdict["probabilities"], verdict["label_mass"], verdict["confidence"]) == (None, None, None)
    assert (usage["input_tokens"], usage["cached_tokens"], usage["output_tokens"]) == (None, None, None)
    assert "cost_usd" not in usage
    assert judgment["model_version"] is None
    assert chatted.get("usage") is None
    assert (reward["usage"]["input_tokens"], reward["usage"]["output_tokens"]) == (None, None)
    assert card["id"] == MODEL
    assert stored["judgment"]["usage"] == usage


async def test_prices_are_in_judgments_rewards_and_metrics(connect: Connect, tmp_path: Path) -> None:
    prices: Any = {"chat_price_input": 2.0, "chat_price_output": 8.0}
    cost = (2.0 * 1000 + 8.0 * 100) / 1e6
    with serving_chat(answer, usage=USAGE) as chat:
        async with served(chat, folder=tmp_path, connect=connect, **prices) as client:
            judgment = (await client.post("/v1/judge", json=PAIR)).json()
            reward = (await client.post("/v1/reward", json={"prompt": "p", "responses": ["a", "b"]})).json()
            metrics = (await client.get("/metrics")).text
    assert judgment["usage"]["cost_usd"] == pytest.approx(cost)
    assert reward["usage"]["cost_usd"] == pytest.approx(2 * cost)
    assert f"tirjudge_cost_usd_total {3 * cost:g}" in metrics


async def test_a_request_is_judged_again_because_the_model_may_have_changed(connect: Connect, tmp_path: Path) -> None:
    named = {"idempotency-key": "one"}
    with serving_chat(answer) as chat:
        async with served(chat, folder=tmp_path, connect=connect) as client:
            ids = [(await client.post("/v1/judge", json=PAIR)).json()["id"] for _ in range(2)]
            repeated = [(await client.post("/v1/judge", json=PAIR, headers=named)).json()["id"] for _ in range(2)]
    assert len({*ids, *repeated}) == 3
    assert repeated[0] == repeated[1]
    assert len(chat.bodies) == 4  # the check and three judgments


async def test_weights_of_a_chat_endpoint_cannot_be_replaced(connect: Connect, tmp_path: Path) -> None:
    with serving_chat(answer) as chat:
        settings = settings_for(chat, folder=tmp_path)
        async with open_application(settings) as opened, connect(opened.app) as client:
            response = await client.post("/v1/admin/reload", json={"checkpoint": "/x"})
    assert response.status_code == 403


async def test_at_most_chat_concurrency_requests_are_sent_at_a_time(connect: Connect, tmp_path: Path) -> None:
    with serving_chat(answer, latency_s=0.02) as chat:
        async with served(chat, folder=tmp_path, connect=connect, chat_concurrency=2, cache=False) as client:
            posts = [client.post("/v1/judge", json=PAIR | {"seed": seed}) for seed in range(8)]
            statuses = [response.status_code for response in await asyncio.gather(*posts)]
    assert statuses == [200] * 8
    assert chat.most_running == 2


# Failures while serving.


class Refusing:
    """Accepts the check at startup and refuses what follows while `error` is set."""

    def __init__(self) -> None:
        self.error: tuple[int, Any] | None = None

    def __call__(self, body: Mapping[str, Any]) -> tuple[int, Any] | None:
        return self.error


async def test_a_key_that_became_invalid_is_not_the_callers_mistake(
    connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "RETRY_S", 0.01)
    refusing = Refusing()
    with serving_chat(answer, refuses=refusing) as chat, caplog.at_level(logging.DEBUG):
        async with served(chat, folder=tmp_path, connect=connect, trials=True) as client, asyncio.timeout(30):
            refusing.error = (401, WRONG_KEY)
            response = await client.post("/v1/judge", json=PAIR)
            ready = await client.get("/ready")
            health = await client.get("/health")
            metrics = (await client.get("/metrics")).text
    assert response.status_code == 502
    assert response.json()["error"]["code"] == "engine_refused"
    assert "answered 401: Incorrect API key provided: ***" in response.json()["error"]["message"]
    assert ready.status_code == 503
    assert "answered 401 (key)" in ready.json()["problem"]
    assert health.status_code == 200
    said = [response.text, ready.text, health.text, metrics, caplog.text, repr(caplog.records)]
    assert not any(KEY in text for text in said)
    assert KEY.encode() not in bytes_in(tmp_path)


def bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def test_a_refusal_of_one_request_does_not_stop_the_others(connect: Connect, tmp_path: Path) -> None:
    refusing = Refusing()
    with serving_chat(answer, refuses=refusing) as chat:
        async with served(chat, folder=tmp_path, connect=connect) as client:
            refusing.error = (400, {"error": {"message": "messages: bad surrogate"}})
            statuses = [(await client.post("/v1/judge", json=PAIR | {"seed": seed})).status_code for seed in range(4)]
            refusing.error = None
            good = await client.post("/v1/judge", json=PAIR | {"seed": 9})
    assert statuses == [502] * 4
    assert good.status_code == 200


async def test_a_rate_limit_is_passed_on_with_its_pause(connect: Connect, tmp_path: Path) -> None:
    limited = (429, {"retry-after": "3600"}, {"error": {"message": "Limit per day"}})
    with serving_chat(answer) as chat:
        async with served(chat, folder=tmp_path, connect=connect) as client:
            chat.busy.append(limited)
            response = await client.post("/v1/judge", json=PAIR)
            good = await client.post("/v1/judge", json=PAIR)
    assert (response.status_code, response.headers["retry-after"]) == (503, "3600")
    assert response.json()["error"]["code"] == "engine_busy"
    assert good.status_code == 200


async def test_a_prompt_that_does_not_fit_is_a_400(connect: Connect, tmp_path: Path) -> None:
    refusing = Refusing()
    with serving_chat(answer, refuses=refusing) as chat:
        async with served(chat, folder=tmp_path, connect=connect) as client:
            refusing.error = (400, {"error": {"message": "Too long", "code": "context_length_exceeded"}})
            response = await client.post("/v1/judge", json=PAIR)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_a_content_filter_is_an_abstention_in_every_kind_of_answer(connect: Connect, tmp_path: Path) -> None:
    refusing = Refusing()
    with serving_chat(answer, refuses=refusing) as chat:
        async with served(chat, folder=tmp_path, connect=connect) as client:
            refusing.error = (400, {"error": {"message": "Rejected", "code": "content_filter"}})
            judged = await client.post("/v1/judge", json=PAIR)
            reward = await client.post("/v1/reward", json={"prompt": "p", "responses": ["a"]})
            chatted = await client.post("/v1/chat/completions", json={"model": MODEL, "messages": [HELLO]})
    assert judged.json()["verdict"]["reason"] == "content_filter"
    assert reward.json()["counts"] == {"scored": 0, "abstained": 1, "failed": 0}
    assert chatted.json()["choices"][0]["finish_reason"] == "content_filter"


HELLO = {"role": "user", "content": "Hello"}


# Starting.


async def error_at_start(**settings: Any) -> TirjudgeError:
    with bind("127.0.0.1", port=0) as bound, pytest.raises(TirjudgeError) as raised:
        await serve_judge(bound, settings=ServerSettings(records="none", files="none", **settings))
    return raised.value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chat_url": "http://127.0.0.1:9"}, "--chat-url: given without --chat-model"),
        ({"chat_model": "m"}, "--chat-model: given without --chat-url"),
        ({"chat_url": "127.0.0.1:9", "chat_model": "m"}, "127.0.0.1:9 is not a URL"),
        ({"chat_url": "http://h", "chat_model": "m", "model": Path("/x")}, "--chat-url: given with --model, --engine"),
        ({"chat_url": "http://h", "chat_model": "m", "workers": 1}, "--chat-url: given with --model, --engine"),
        ({"chat_url": "http://h", "chat_model": "m", "judge": "embedded"}, "--judge, --chat-url: both given"),
        (
            {"chat_url": "http://h", "chat_model": "m", "chat_price_input": 1.0},
            "--chat-price-input, --chat-price-output: only one",
        ),
    ],
)
async def test_options_that_clash_are_refused(settings: dict[str, Any], message: str) -> None:
    assert str(await error_at_start(**settings)).startswith(message)


async def test_a_wrong_key_stops_the_start_and_names_the_option() -> None:
    with serving_chat([], refuses=lambda body: (401, WRONG_KEY)) as chat:
        error = await error_at_start(chat_url=chat.url, chat_model=MODEL, chat_api_key=KEY)
    assert isinstance(error, EngineRefused)
    assert KEY not in str(error)
    assert str(error).endswith("check --chat-api-key or TIRJUDGE_CHAT_API_KEY")


async def test_a_wrong_model_stops_the_start_and_lists_the_models() -> None:
    missing = {"error": {"message": "model 'x' not found", "type": "not_found_error"}}
    with serving_chat([], refuses=lambda body: (404, missing), models=["qwen3:8b"]) as chat:
        error = await error_at_start(chat_url=chat.url, chat_model="x")
    assert str(error).endswith("--chat-model and the account of the API key; its models: qwen3:8b")


async def test_a_busy_endpoint_does_not_stop_the_start(
    connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = [(429, {"retry-after": "900"}, {"error": {"message": "Limit"}})]
    with serving_chat(answer, busy=busy) as chat:
        async with served(chat, folder=tmp_path, connect=connect) as client:
            assert (await client.post("/v1/judge", json=PAIR)).status_code == 200
    assert f"{MODEL} is busy, the server starts anyway" in capsys.readouterr().err


@pytest.mark.slow
def test_a_refused_connection_ends_the_command_in_seconds(tmp_path: Path) -> None:
    with bind("127.0.0.1", port=0) as bound:
        url = url_of(bound)
        command = ["serve", "--port", "0", "--chat-url", url, "--chat-model", "m"]
        with run_command(*command, state=tmp_path) as process:
            _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"{url}/v1/chat/completions cannot be reached: connection refused for 2" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_command_serves_with_a_key_from_the_environment(tmp_path: Path) -> None:
    environment = {"TIRJUDGE_CHAT_API_KEY": KEY, "TIRJUDGE_LOG_LEVEL": "debug"}
    with serving_chat(answer) as chat:
        command = ["serve", "--chat-url", chat.url, "--chat-model", MODEL, "--allow-unsafe-sandbox"]
        with serve_command(*command, state=tmp_path, environment=environment) as server:
            response = httpx2.post(f"{server.url}/v1/judge", json=PAIR, timeout=60)
            assert httpx2.get(f"{server.url}/ready").json()["ready"]
            said = server.stop()
    assert response.json()["verdict"]["status"] == "decided"
    assert f"(model {MODEL}, sandbox" in server.ready_line
    assert chat.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in "".join(said) + server.ready_line
