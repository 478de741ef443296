"""Failures of the engine, the sandbox, the clock and the server: every request gets a judgment or an error, and a component
that works again is used again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.processes import descendants
from tests.servers import scripted_service
from tests.waiting import until
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.errors import DeadlineExceeded, EngineUnavailable, SandboxUnavailable, TurnRefused
from tirjudge.judge import Judge
from tirjudge.opening import open_model
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest, StopReason
from tirjudge_sandbox import SandboxPool
from tirjudge_server import readiness
from tirjudge_server.app import create_app
from tirjudge_server.call import Call
from tirjudge_server.circuit import NUM_FAILURES
from tirjudge_server.service import JudgeService
from tirjudge_server.worker import create_worker

SLEEPS = "```python\nimport time\ntime.sleep(8)\n```\n```output"
PRINTS = "```python\nprint(1)\n```\n```output"
HANGS_S = 3600.0
TIMEOUT_S = 120.0
"""Maximum seconds of a request or a wait. A request that takes longer hangs."""


def asked(**fields: Any) -> JudgeRequest:
    return JudgeRequest.model_validate(
        {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"], "tools": "off"} | fields
    )


def wait_for(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.02)


@pytest.mark.slow
def test_killed_engine_fails_judgment_and_is_used_again_after_restart(start, random_checkpoint: Path) -> None:
    model = ("--model", str(random_checkpoint))
    worker = start("worker", *model)
    url = start("serve", "--engine", worker.url).url
    slow = {"mode": "pointwise", "prompt": "p", "responses": [f"one {i}" for i in range(64)], "votes": 64}
    with ThreadPoolExecutor() as threads:
        asking = threads.submit(httpx2.post, f"{url}/v1/judge", json=slow, timeout=TIMEOUT_S)
        wait_for(lambda: httpx2.get(f"{url}/health").json()["running"] == 1)
        worker.kill()
        response = asking.result()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_unavailable")
    assert "retry-after" in response.headers
    wait_for(lambda: httpx2.get(f"{url}/ready").status_code == 503)
    start("worker", *model, "--port", worker.url.rpartition(":")[2])
    wait_for(lambda: httpx2.get(f"{url}/ready").status_code == 200)
    again = httpx2.post(f"{url}/v1/judge", json=slow | {"votes": 1, "responses": ["one"]}, timeout=TIMEOUT_S)
    assert again.status_code == 200


def hanging_service(**options: Any) -> JudgeService:
    """A service whose engine never responds."""
    return scripted_service(cycle(["never written"]), delay_s=HANGS_S, read_delay_s=HANGS_S, **options)


@pytest.mark.parametrize("stream", [False, True])
async def test_hanging_engine_fails_at_deadline(connect, stream: bool) -> None:
    service = hanging_service(max_deadline_s=0.4)
    async with connect(create_app(service)) as client, asyncio.timeout(TIMEOUT_S):
        response = await client.post("/v1/judge", json=asked(stream=stream).model_dump(mode="json"))
    assert "deadline_exceeded" in response.text
    assert response.status_code == (200 if stream else 504)
    assert (service.admission.num_running, service.admission.num_waiting) == (0, 0)


async def test_queued_requests_behind_hanging_engine_fail_at_deadline() -> None:
    service = hanging_service(max_concurrency=2, max_deadline_s=0.4)
    async with asyncio.timeout(TIMEOUT_S):
        answers = await asyncio.gather(
            *(service.answer(asked(prompt=str(n)), call=Call()) for n in range(20)), return_exceptions=True
        )
    assert {type(answer) for answer in answers} == {DeadlineExceeded}
    assert (service.admission.num_running, service.admission.num_waiting) == (0, 0)


async def test_verdict_is_forced_if_engine_hangs_in_a_turn() -> None:
    service = scripted_service(["never written"], delay_s=HANGS_S)
    judgment = await service.answer(asked(), call=Call(deadline_s=0.4))
    assert judgment.verdict.forced
    assert judgment.rollouts[0].stop_reason is StopReason.DEADLINE


class Corrupting(httpx2.AsyncBaseTransport):
    """Forwards requests to a worker and corrupts its completions."""

    def __init__(self, app: Any, *, spoil: Callable[[bytes], httpx2.Response]) -> None:
        self._transport = httpx2.ASGITransport(app=app)
        self._spoil = spoil

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._transport.handle_async_request(request)
        if not request.url.path.endswith("/completions"):
            return response
        return self._spoil(await response.aread())


def spoiled(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], httpx2.Response]:
    def spoil(body: bytes) -> httpx2.Response:
        answer = json.loads(body)
        return httpx2.Response(200, content=json.dumps(change(answer) or answer))

    return spoil


def _without_numbers(answer: dict[str, Any]) -> None:
    """Replace all log-probabilities by NaN. Only reads of verdicts have them."""
    logprobs = answer["choices"][0]["logprobs"] or {"top_logprobs": ()}
    for top in logprobs["top_logprobs"]:
        top.update(dict.fromkeys(top, math.nan))


def set_choice(**fields: Any) -> Callable[[bytes], httpx2.Response]:
    return spoiled(lambda answer: answer["choices"][0].update(fields))


GARBAGE: dict[str, Callable[[bytes], httpx2.Response]] = {
    "empty body": lambda body: httpx2.Response(200, content=b""),
    "truncated body": lambda body: httpx2.Response(200, content=body[: len(body) // 2]),
    "HTML page": lambda body: httpx2.Response(200, html="<html>Bad gateway</html>"),
    "not UTF-8": lambda body: httpx2.Response(200, content=b'{"choices": "\xff"}'),
    "a list": lambda body: httpx2.Response(200, json=[1, 2]),
    "a number": lambda body: httpx2.Response(200, json=7),
    "no choices": spoiled(lambda answer: {**answer, "choices": []}),
    "no logprobs": set_choice(logprobs=None),
    "no ids": set_choice(token_ids=None),
    "strings as ids": set_choice(token_ids=["a", "b"]),
    "negative ids": set_choice(token_ids=[-5]),
    "logprobs that are not numbers": spoiled(lambda answer: _without_numbers(answer)),
    "number as text": set_choice(text=12),
    "unknown finish reason": set_choice(finish_reason="because"),
    "strings as logprobs": set_choice(logprobs={"tokens": ["a"], "token_logprobs": ["low"], "top_logprobs": [{}]}),
    "an error": lambda body: httpx2.Response(500, json={"error": "oops"}),
    "a redirect": lambda body: httpx2.Response(307, headers={"location": "http://127.0.0.1:9/"}),
}


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_from_engine_is_a_server_failure_and_no_verdict(
    sandbox, connect, random_checkpoint, garbage: str
) -> None:
    async with open_model(f"embedded:{random_checkpoint}") as model:
        worker = create_worker(model.engine, name="random")
        engine = VLLMEngine("http://worker", transport=Corrupting(worker, spoil=GARBAGE[garbage]))
        service = JudgeService(Judge(engine=engine, tools=[PythonTool(sandbox)], profile=model.profile))
        async with connect(create_app(service)) as client, asyncio.timeout(TIMEOUT_S):
            response = await client.post("/v1/judge", json=asked().model_dump(mode="json"))
        await engine.aclose()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_unavailable")


@pytest.mark.parametrize("text", ["", "\x00" * 50, "�" * 50, "<preference>" * 200, "</preference>", "```output" * 3])
async def test_verdict_is_forced_after_garbage_from_model(make_service, text: str) -> None:
    judgment = await make_service(cycle([text])).answer(asked(tools="auto"), call=Call())
    assert judgment.verdict.forced


async def test_killed_sandbox_leaves_no_request_hanging(connect, until) -> None:
    scripts = [cycle([SLEEPS, "<preference>A</preference>"])]
    others = descendants(os.getpid(), containing="tirjudge_sandbox")
    async with SandboxPool(slots=2) as pool, asyncio.timeout(TIMEOUT_S):
        service = scripted_service(lambda _: next(scripts[-1]), sandbox=pool)
        async with connect(create_app(service)) as client:
            body = asked(tools="auto").model_dump(mode="json")
            asking = asyncio.create_task(client.post("/v1/judge", json=body))
            await until(lambda: pool.stats().num_idle < 2)
            for pid in descendants(os.getpid(), containing="tirjudge_sandbox") - others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            response = await asking
            assert response.status_code in (200, 503)
            # The program is lost, or runs again if it had not started.
            assert pool.stats().num_lost >= 1
            number = 0
            while True:
                number += 1
                scripts.append(cycle([PRINTS, "<preference>A</preference>"]))
                again = await client.post("/v1/judge", json=body | {"prompt": f"again {number}"})
                if again.status_code == 200 and again.json()["rollouts"][0]["turns"][0]["output"] == "1":
                    return
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("jump_s", [-(10**8), 10**8])
async def test_clock_jump_does_not_move_deadline(make_service, monkeypatch, jump_s: int) -> None:
    service = make_service(["```python\nprint(1)\n```\n```output", "<preference>A</preference>"])
    clock = time.time
    moved = {"s": 0}
    monkeypatch.setattr(time, "time", lambda: clock() + moved["s"])

    async def on_turn(order: object, turn: object) -> None:
        moved["s"] = jump_s

    judgment = await service.answer(asked(tools="auto"), call=Call(deadline_s=600.0), on_turn=on_turn)
    assert judgment.rollouts[0].stop_reason is StopReason.VERDICT
    # A duration that contains the jump would be negative or at least 10**8 s.
    assert 0 <= judgment.timing.total_s < 10**7
    assert 0 <= judgment.timing.queue_s < 10**7


@pytest.mark.slow
def test_sigterm_under_load_answers_accepted_requests(start, random_checkpoint: Path) -> None:
    model = ("--model", str(random_checkpoint))
    server = start("serve", *model, "--grace-s", "0.5", "--max-concurrency", "2")
    body = {"mode": "pointwise", "prompt": "p", "votes": 64, "temperature": 1.0}

    def ask(number: int) -> int | str:
        try:
            sent = body | {"responses": [f"one {number}"] * 4}
            return httpx2.post(f"{server.url}/v1/judge", json=sent, timeout=TIMEOUT_S).status_code
        except httpx2.TimeoutException:
            return "hung"
        except httpx2.TransportError:
            return "refused"

    with ThreadPoolExecutor(max_workers=32) as threads:
        asking = [threads.submit(ask, number) for number in range(64)]
        wait_for(lambda: httpx2.get(f"{server.url}/health").json()["waiting"] >= 16)
        server.process.send_signal(signal.SIGTERM)
        answers = [asked.result() for asked in asking]
    assert set(answers) <= {200, 503, "refused"}
    assert 503 in answers
    _, err = server.process.communicate(timeout=TIMEOUT_S)
    assert server.process.returncode == 0
    assert "Traceback" not in err


async def test_dead_engine_gets_no_requests_until_trial_succeeds(connect, monkeypatch) -> None:
    monkeypatch.setattr(readiness, "RETRY_S", 0.05)
    said: list[str] = []
    engine = ScriptedEngine(lambda sequence: said[-1] if said else gone(), label_probs={"A": 0.9})
    service = JudgeService(Judge(engine=engine))
    for number in range(NUM_FAILURES):
        with pytest.raises(EngineUnavailable, match="gone"):
            await service.answer(asked(prompt=str(number)), call=Call())
    num_calls = len(engine.calls)
    app = create_app(service)
    async with connect(app) as client, asyncio.timeout(TIMEOUT_S):
        for stream in (False, True):
            refused = await client.post("/v1/judge", json=asked(stream=stream).model_dump(mode="json"))
            assert refused.status_code == 503
            assert "does not work" in refused.json()["error"]["message"]
            assert int(refused.headers["retry-after"]) >= 1
        assert len(engine.calls) == num_calls
        async with app.router.lifespan_context(app):
            while (await client.get("/ready")).json()["problem"] != "gone":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            said.append("<preference>A</preference>")
            await service.readiness.wait()
            assert (await client.post("/v1/judge", json=asked().model_dump(mode="json"))).status_code == 200


def gone() -> str:
    raise EngineUnavailable("gone")


async def test_queued_requests_fail_when_circuit_opens() -> None:
    engine = ScriptedEngine(lambda _: gone(), delay_s=0.05)
    service = JudgeService(Judge(engine=engine), max_concurrency=1)
    async with asyncio.timeout(TIMEOUT_S):
        answers = await asyncio.gather(
            *(service.answer(asked(prompt=str(n)), call=Call()) for n in range(30)), return_exceptions=True
        )
    assert {type(answer) for answer in answers} == {EngineUnavailable}
    assert len(engine.calls) == NUM_FAILURES


async def test_refused_turns_do_not_open_the_circuit_unless_the_trial_is_refused_too(monkeypatch, connect) -> None:
    monkeypatch.setattr(readiness, "RETRY_S", 0.01)
    refuses_all = False

    def write(prompt: str) -> str:
        if refuses_all or "refused" in prompt:
            raise TurnRefused("HTTP 400: bad request")
        return "<preference>A</preference>"

    service = JudgeService(Judge(engine=ScriptedEngine(write)))
    app = create_app(service)
    async with connect(app) as client, app.router.lifespan_context(app), asyncio.timeout(TIMEOUT_S):
        await service.readiness.wait()
        body = {"mode": "pairwise", "prompt": "refused", "responses": ["a", "b"], "tools": "off"}
        for _ in range(2 * NUM_FAILURES):
            response = await client.post("/v1/judge", json=body)
            assert (response.status_code, response.json()["error"]["code"]) == (502, "engine_refused")
        assert (await client.post("/v1/judge", json=body | {"prompt": "fine"})).status_code == 200
        refuses_all = True
        await client.post("/v1/judge", json=body)
        await until(lambda: service.readiness.engine.is_open)


async def test_requests_without_tools_are_judged_without_sandbox(make_service) -> None:
    service = make_service(cycle(["<preference>A</preference>"]))
    for _ in range(NUM_FAILURES):
        service.readiness.doubt(SandboxUnavailable("gone"))
    with pytest.raises(SandboxUnavailable, match="gone"):
        await service.answer(asked(tools="auto"), call=Call())
    assert (await service.answer(asked(), call=Call())).verdict.status == "decided"


async def test_occasional_failures_do_not_open_circuit(make_service) -> None:
    texts = cycle(["fails", "<preference>A</preference>"])
    service = make_service(lambda _: gone() if (text := next(texts)) == "fails" else text)
    for number in range(4 * NUM_FAILURES):
        if number % 2 == 0:
            with pytest.raises(EngineUnavailable, match=r"^gone$"):
                await service.answer(asked(prompt=str(number)), call=Call())
        else:
            assert (await service.answer(asked(prompt=str(number)), call=Call())).verdict.status == "decided"
