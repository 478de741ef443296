from __future__ import annotations

import asyncio
import socket

import pytest

from tirjudge.client import AsyncClient
from tirjudge.errors import DeadlineExceeded, EngineNotListening, EngineUnavailable, PromptTooLong, SandboxBusy
from tirjudge.http.exchange import RequestRefused
from tirjudge.http.protocol import Problem
from tirjudge.http.retry_events import tell_of_pause
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_harness.pacing import Pace
from tirjudge_harness.run_store import JudgmentStore, RunStopped, read_judgments
from tirjudge_harness.runner import MAX_FAILURES, Runner, key_of, run_all

IDENTITY = {"model": "judge", "fingerprint": "0123"}


def request(number: int, **fields) -> JudgeRequest:
    return JudgeRequest(mode=Mode.PAIRWISE, prompt=f"p{number}", responses=["a", "b"], **fields)


@pytest.fixture
async def answers(tmp_path):
    async with JudgmentStore(tmp_path / "run") as opened:
        yield opened


def runner_of(judge, *, answers: JudgmentStore, most: int = 8) -> Runner:
    return Runner(judge, identity=IDENTITY, store=answers, pace=Pace(most=most))


async def ask(runner: Runner, *requests: JudgeRequest) -> dict[int, Judgment | Exception]:
    """Run all requests. Return the judgment or error of each, by its position."""
    done: dict[int, Judgment | Exception] = {}
    await run_all(list(enumerate(requests)), runner=runner, on_done=done.__setitem__)
    return done


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "other"},
        {"responses": ["b", "a"]},
        {"reference": "c"},
        {"mode": Mode.LISTWISE},
        {"seed": 1},
        {"votes": 3},
        {"orders": "both"},
        {"tools": "off"},
        {"max_tool_calls": 1},
        {"rubric": "brief"},
    ],
)
def test_the_key_depends_on_every_field_that_affects_the_judgment(change: dict) -> None:
    key = key_of(request(1), identity=IDENTITY)
    assert key_of(request(1).model_copy(update=change), identity=IDENTITY) != key
    assert key_of(request(1), identity=IDENTITY | {"fingerprint": "4567"}) != key
    assert len(key) == 64


def test_the_key_does_not_depend_on_the_transport() -> None:
    key = key_of(request(1), identity=IDENTITY)
    assert key_of(request(1, stream=True), identity=dict(reversed(IDENTITY.items()))) == key


async def test_concurrent_identical_requests_are_sent_once(answers, first_is_best) -> None:
    runner = runner_of(first_is_best, answers=answers)
    done = await ask(runner, request(1), request(1), request(2), request(1))
    await ask(runner, request(2))
    assert sorted(first_is_best.prompts) == ["p1", "p2"]
    assert sorted(done) == [0, 1, 2, 3]
    assert runner.num_asked == 2


async def test_a_later_run_sends_only_missing_requests(tmp_path, first_is_best) -> None:
    for asked in ([1, 2], [1, 2, 3]):
        async with JudgmentStore(tmp_path) as answers:
            await ask(runner_of(first_is_best, answers=answers), *map(request, asked))
    assert sorted(first_is_best.prompts) == ["p1", "p2", "p3"]
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 3


async def test_a_failure_is_recorded_and_retried_by_the_next_run(tmp_path, first_is_best) -> None:
    async def fails(asked: JudgeRequest) -> Judgment:
        if asked.prompt == "p1":
            raise EngineUnavailable("no GPU")
        if asked.prompt == "p2":
            raise DeadlineExceeded("too late")
        return await first_is_best(asked)

    async with JudgmentStore(tmp_path) as answers:
        done = await ask(runner_of(fails, answers=answers), *map(request, range(5)))
    assert [type(done[number]).__name__ for number in range(5)] == [
        "Judgment",
        "EngineUnavailable",
        "DeadlineExceeded",
        "Judgment",
        "Judgment",
    ]
    judgments, failures = read_judgments(tmp_path)
    assert len(judgments) == 3
    assert {failure.error for failure in failures} == {"EngineUnavailable: no GPU", "DeadlineExceeded: too late"}
    async with JudgmentStore(tmp_path) as answers:
        await ask(runner_of(first_is_best, answers=answers), *map(request, range(5)))
    judgments, failures = read_judgments(tmp_path)
    assert (len(judgments), failures) == (5, [])


async def test_an_unavailable_judge_stops_the_run_with_advice(tmp_path, first_is_best) -> None:
    asked: list[int] = []

    async def gone_after_two(one: JudgeRequest) -> Judgment:
        asked.append(1)
        if len(asked) > 2:
            raise EngineUnavailable("connection refused")
        return await first_is_best(one)

    async with JudgmentStore(tmp_path) as answers:
        with pytest.raises(RunStopped) as stopped:
            await ask(runner_of(gone_after_two, answers=answers, most=1), *map(request, range(50)))
    assert str(stopped.value) == (
        f"run stopped: 5 consecutive requests failed within 0 s: connection refused; judgments are stored in {tmp_path}, "
        "run the same command again to continue"
    )
    assert len(asked) == 2 + MAX_FAILURES
    assert len(read_judgments(tmp_path)[0]) == 2


async def test_an_answer_between_failures_keeps_the_run_going(answers, first_is_best) -> None:
    async def fails_mostly(one: JudgeRequest) -> Judgment:
        if int(str(one.prompt)[1:]) % 3:
            raise EngineUnavailable("flaky")
        return await first_is_best(one)

    done = await ask(runner_of(fails_mostly, answers=answers, most=1), *map(request, range(30)))
    assert sum(isinstance(one, Judgment) for one in done.values()) == 10


async def test_invalid_requests_do_not_stop_the_run(answers) -> None:
    async def too_long(one: JudgeRequest) -> Judgment:
        raise PromptTooLong("9000 tokens")

    done = await ask(runner_of(too_long, answers=answers), *map(request, range(20)))
    assert all(isinstance(one, PromptTooLong) for one in done.values())


async def test_an_invalid_api_key_stops_the_run(answers) -> None:
    async def refuses(one: JudgeRequest) -> Judgment:
        raise RequestRefused(Problem(message="key: it is revoked", type="authentication_error"))

    with pytest.raises(RunStopped, match="run stopped: the judge refuses the requests: key: it is revoked"):
        await ask(runner_of(refuses, answers=answers, most=1), *map(request, range(20)))
    assert len(answers.judgments) == 0


async def test_only_a_judge_that_refuses_every_request_stops_the_run(answers, make_judgment) -> None:
    asked: list[str] = []

    async def refuses(one: JudgeRequest) -> Judgment:
        asked.append(str(one.prompt))
        if one.prompt == "p0":
            return make_judgment()
        raise RequestRefused(Problem(message="no such model", type="invalid_request_error"))

    with pytest.raises(RunStopped, match="no such model"):
        await ask(runner_of(refuses, answers=answers, most=1), *map(request, range(1, 20)))
    assert len(asked) == MAX_FAILURES
    done = await ask(runner_of(refuses, answers=answers, most=1), *map(request, range(20)))
    assert sum(isinstance(one, RequestRefused) for one in done.values()) == 19


async def test_two_failures_stop_the_run_after_a_minute_without_an_answer(answers, monkeypatch) -> None:
    now = iter(range(0, 10_000, 40))
    monkeypatch.setattr("tirjudge_harness.runner.monotonic", lambda: float(next(now)))

    async def gone(one: JudgeRequest) -> Judgment:
        raise EngineUnavailable("no answer")

    with pytest.raises(RunStopped, match=r"2 consecutive requests failed within \d+ s: no answer"):
        await ask(runner_of(gone, answers=answers, most=1), *map(request, range(20)))


async def test_concurrent_requests_do_not_exceed_the_limit(answers, make_judgment) -> None:
    under_way, most = 0, 0

    async def counts(one: JudgeRequest) -> Judgment:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return make_judgment()

    await ask(runner_of(counts, answers=answers, most=5), *map(request, range(40)))
    assert most == 5


async def test_retries_inside_the_client_reduce_the_concurrency_limit(answers, make_judgment) -> None:
    async def waits(one: JudgeRequest) -> Judgment:
        await asyncio.get_running_loop().create_task(sent_away())
        return make_judgment()

    async def sent_away() -> None:
        tell_of_pause(0.5)

    runner = runner_of(waits, answers=answers, most=12)
    await ask(runner, request(1))
    assert (runner.pace.limit, runner.pace.num_refusals) == (6, 1)


async def test_a_busy_server_reduces_the_concurrency_limit(answers, make_judgment) -> None:
    bodies = [b"", make_judgment().model_dump_json().encode()]
    heads = [b"429 Too Many Requests\r\nretry-after-ms: 1", b"200 OK\r\ncontent-type: application/json"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        body = bodies.pop(0)
        writer.write(
            b"HTTP/1.1 %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (heads.pop(0), len(body)) + body
        )
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncClient(f"http://127.0.0.1:{port}") as client:
            runner = runner_of(client.judge, answers=answers, most=12)
            done = await ask(runner, request(1))
    assert isinstance(done[0], Judgment)
    assert (runner.pace.limit, runner.pace.num_refusals) == (6, 1)


async def test_a_refused_connection_stops_the_run_after_the_first_request(answers, tmp_path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # no process listens on this port
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        async with AsyncClient(url, connect_retry_s=0.05) as client:
            with pytest.raises(RunStopped) as stopped:
                await ask(runner_of(client.judge, answers=answers, most=1), *map(request, range(20)))
    assert str(stopped.value).startswith(f"run stopped: {url} cannot be reached: connection refused")
    assert str(stopped.value).endswith(f"stored in {tmp_path / 'run'}, run the same command again to continue")
    assert len(read_judgments(tmp_path / "run")[1]) == 1


async def test_an_unreachable_chat_endpoint_stops_the_run_after_the_first_request(answers) -> None:
    async def unreachable(one: JudgeRequest) -> Judgment:
        raise EngineNotListening("http://chat cannot be reached")

    with pytest.raises(RunStopped, match="http://chat cannot be reached"):
        await ask(runner_of(unreachable, answers=answers, most=1), request(1))


async def test_a_request_is_retried_after_the_given_time_if_the_sandbox_is_busy(answers, make_judgment) -> None:
    asked: list[int] = []

    async def full_once(one: JudgeRequest) -> Judgment:
        asked.append(1)
        if len(asked) == 1:
            raise SandboxBusy("full", retry_after_s=0.001)
        return make_judgment()

    runner = runner_of(full_once, answers=answers)
    done = await ask(runner, request(1))
    assert isinstance(done[0], Judgment)
    assert (len(asked), runner.pace.limit) == (2, 4)


async def test_a_cancelled_caller_does_not_cancel_a_shared_request(answers, make_judgment) -> None:
    may_answer = asyncio.Event()

    async def slow(one: JudgeRequest) -> Judgment:
        await may_answer.wait()
        return make_judgment()

    runner = runner_of(slow, answers=answers)
    first, second = (asyncio.create_task(runner.judge(request(1))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0.01)
    may_answer.set()
    assert isinstance(await second, Judgment)
    assert first.cancelled()


async def test_the_slot_of_a_cancelled_caller_is_passed_on(answers, make_judgment) -> None:
    gates: dict[str, asyncio.Event] = {f"p{number}": asyncio.Event() for number in range(3)}

    async def gated(one: JudgeRequest) -> Judgment:
        await gates[str(one.prompt)].wait()
        return make_judgment()

    runner = runner_of(gated, answers=answers, most=1)
    tasks = [asyncio.create_task(runner.judge(request(number))) for number in range(3)]
    await asyncio.sleep(0.01)
    tasks[1].cancel()
    gates["p0"].set()
    gates["p2"].set()
    assert isinstance(await asyncio.wait_for(tasks[2], 30), Judgment)
