"""Function calls in records: they are part of the chain, are erased with the texts that they contain, and are replayed."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from sqlalchemy import text

from tests.judgments import build_rollout, build_turn
from tirjudge.tools.functions import ToolFunction, function
from tirjudge.types import CallRecord, Judgment, Outcome
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_server.app import create_app
from tirjudge_server.call import Call
from tirjudge_server.records.audit import export, verify
from tirjudge_server.records.record import OfferedFunction, versions_of
from tirjudge_server.records.replayed_calls import ReplayedCalls
from tirjudge_server.records.store import Records, open_records
from tirjudge_server.service import JudgeService

SECRET = "print('the patient is called Ada')"
CALL = CallRecord(
    function="run",
    version="1",
    arguments={"code": SECRET},
    arguments_sha256="a" * 64,
    result={"outcome": "ok", "stdout": "42"},
    result_sha256="b" * 64,
    num_bytes=40,
    ms=12.5,
)


def with_call(judgment: Judgment, call: CallRecord = CALL) -> Judgment:
    turns = [
        build_turn(Outcome.OK, code="run(response_a)", output="").model_copy(update={"calls": [call]}),
        build_turn(),
    ]
    return judgment.model_copy(update={"rollouts": [build_rollout(turns=turns), build_rollout(turns=[build_turn()])]})


async def keep(store: Records, request: Any, judgment_of: Callable[..., Judgment], call: CallRecord = CALL) -> Judgment:
    asked = Call()
    return await store.store(request, with_call(judgment_of(asked), call), call=asked)


# The chain.


async def test_a_judgment_with_calls_is_stored_unchanged(store, request_of, judgment_of) -> None:
    judgment = await keep(store, request_of(functions=["run"], candidate_code="refuse"), judgment_of)
    record = await store.read(judgment.id)
    assert record.judgment == judgment
    assert (record.values["request"]["functions"], record.values["request"]["candidate_code"]) == (["run"], "refuse")
    assert (
        "calls" not in (await store.read((await store.store(request_of(), judgment_of(Call()), call=Call())).id)).values
    )


async def test_a_changed_result_of_a_call_is_found(store, request_of, judgment_of) -> None:
    judgment = await keep(store, request_of(), judgment_of)
    assert verify(store.database).broken is None
    with store.database.writing() as connection:
        connection.execute(text("UPDATE records SET content = replace(content, '\"42\"', '\"43\"')"))
    broken = verify(store.database).broken
    assert broken is not None
    assert (broken.seq, broken.record_id) == (1, judgment.id)
    assert "was changed" in broken.reason


# Erasing.


@pytest.mark.parametrize("field", ["request.responses", "request.prompt", "request.reference", "turns", "calls"])
async def test_calls_are_erased_with_the_texts_that_they_may_contain(
    store, request_of, judgment_of, field: str
) -> None:
    judgment = await keep(store, request_of(reference="five"), judgment_of)
    await store.erase(judgment.id, fields=[field])
    record = await store.read(judgment.id)
    assert set(record.content.erased) == {field, "calls"}
    assert all(turn.calls == [] for rollout in record.judgment.rollouts for turn in rollout.turns)
    (line, _) = export(store.database)
    assert SECRET not in str(line)
    assert CALL.arguments_sha256 not in str(line)  # a hash allows its text to be guessed and confirmed
    assert verify(store.database).broken is None


async def test_calls_are_kept_if_only_the_caller_is_erased(store, request_of, judgment_of) -> None:
    judgment = await keep(store, request_of(), judgment_of)
    await store.erase(judgment.id, fields=["caller"])
    assert (await store.read(judgment.id)).judgment == judgment


async def test_calls_are_not_stored_if_responses_are_withheld(
    database_url, open_store, request_of, judgment_of
) -> None:
    store = open_store(database_url, withheld=frozenset({"request.responses"}))
    judgment = await keep(store, request_of(), judgment_of)
    record = await store.read(judgment.id)
    assert record.content.withheld == ("calls", "request.responses")
    assert SECRET not in record.content.dump()
    assert verify(store.database).broken is None


async def test_pruning_erases_calls(store, request_of, judgment_of) -> None:
    judgment = await keep(store, request_of(), judgment_of)
    assert await store.prune(before_ms=1e15) == 1
    assert "calls" in (await store.read(judgment.id)).content.erased


# Answers from the records.


@pytest.mark.parametrize(("is_deterministic", "is_reused"), [(True, True), (False, False)])
async def test_a_judgment_with_calls_is_reused_if_their_functions_are_deterministic(
    store, request_of, judgment_of, is_deterministic: bool, is_reused: bool
) -> None:
    offered = OfferedFunction(version="1", parameters=["code"], is_deterministic=is_deterministic)
    store.versions = replace(store.versions, functions={"run": offered})
    judgment = await keep(store, request_of(), judgment_of)
    assert await store.recall(request_of(), call=Call()) == (judgment if is_reused else None)


# Replays.

BODY = {"mode": "pairwise", "prompt": "Print.", "responses": ["print(1)", "print(2)"]}


def program(code: str) -> str:
    return f"```python\n{code}\n```\n```output"


@asynccontextmanager
async def replaying(
    service: JudgeService, connect: Any, sqlite_path: Any, **fields: Any
) -> AsyncIterator[tuple[httpx2.AsyncClient, Judgment]]:
    """Judge a request; yield a client, and the judgment."""
    versions = versions_of(service.judge, fingerprint="f" * 16, isolation=service.isolation)
    async with open_records(str(sqlite_path), versions=versions) as records:
        service.records = records
        async with connect(create_app(service, records=records)) as client:
            answer = await client.post("/v1/judge", json=BODY | fields)
            assert answer.status_code == 200, answer.text
            yield client, Judgment.model_validate_json(answer.content)


@pytest.fixture
def replayed(make_service: Any, connect: Any, sqlite_path: Any) -> Callable[..., Any]:
    async def replay(
        code: str,
        *,
        offered: Sequence[ToolFunction] = FUNCTIONS,
        later: Sequence[ToolFunction] | None = None,
        **fields: Any,
    ) -> tuple[Judgment, dict[str, Any]]:
        """Judge with a program and replay the judgment; return both. `later`: functions of the server at the replay."""
        texts = itertools.cycle([program(code), "<preference>A</preference>"])
        service = make_service(texts, functions=offered, fingerprint="f" * 16)
        async with replaying(service, connect, sqlite_path, **fields) as (client, judgment):
            if later is not None:
                service.judge = replace(service.judge, tools=[replace(service.judge.tools[0], functions=later)])
            answer = await client.post(f"/v1/judgments/{judgment.id}/replay")
            assert answer.status_code == 200, answer.text
        return judgment, answer.json()

    return replay


TESTS = """\
cases = [{"stdin": "", "stdout": "1"}, {"stdin": "", "stdout": "3"}]
print([tests(code, cases).passed for code in responses.values()])
r = run(response_a)
print(r.outcome, r.seconds)
try:
    run(response_a, call=7)
except ToolError as error:
    print(error)
try:
    walk()
except NameError:
    print("no such function")"""


async def test_calls_are_answered_from_the_record(replayed) -> None:
    judgment, replay = await replayed(TESTS, orders="both", later=())
    assert judgment.usage.function_calls == 8
    assert replay["same"], replay
    assert [each["calls_fed_back"] for each in replay["programs"]] == [4, 4]
    assert all("reason" not in each and "calls_run_again" not in each for each in replay["programs"])


async def test_large_results_are_computed_again(replayed) -> None:
    code = "r = run(\"print('x' * 65536)\")\nprint(len(r.stdout), r.stdout[:3], run(response_a).outcome)"
    judgment, replay = await replayed(code)
    first, second = judgment.rollouts[0].turns[0].calls
    assert (first.result, second.result is None) == (None, False), first.num_bytes
    assert replay["same"], replay
    assert (replay["programs"][0]["calls_fed_back"], replay["programs"][0]["calls_run_again"]) == (1, 1)


async def test_a_large_result_of_an_absent_function_is_a_difference(replayed) -> None:
    _, replay = await replayed("print(len(run(\"print('x' * 65536)\").stdout))", later=())
    (ran,) = replay["programs"]
    assert (replay["same"], ran["result"]) == (False, "differs")
    assert ran["reason"] == "the result of run was too large to keep, and run cannot be called again here"
    assert "calls_fed_back" not in ran


async def test_calls_that_differ_are_reported(replayed) -> None:
    _, replay = await replayed("import time\nrun(f'print({time.monotonic_ns()})')")
    (ran,) = replay["programs"]
    assert (ran["result"], ran["reason"]) == ("differs", "the record of the judgment has no such call of run")


def test_recorded_calls_that_are_not_made_are_a_difference() -> None:
    calls = ReplayedCalls([CALL, CALL], offered={"run": ["code"]}, present=FUNCTIONS)
    assert calls.difference == "2 recorded calls were not made, such as one of run"
    assert ReplayedCalls([], offered={}, present=()).difference is None


async def test_the_state_of_a_function_does_not_change_a_replay(replayed) -> None:
    numbers = itertools.count()

    @function(name="evidence.next")
    async def next_number(step: int) -> int | None:
        "Return the next number."
        return next(numbers) * step or None

    code = "print(evidence.next(5), evidence.next(5), evidence.next(step=7), evidence.next(5))"
    judgment, replay = await replayed(code, offered=[next_number])
    assert judgment.rollouts[0].turns[0].output == "None 5 14 15"
    assert replay["same"], replay
    assert next(numbers) == 4


async def test_execution_of_a_response_is_treated_as_in_the_judgment(replayed) -> None:
    judgment, replay = await replayed("exec(response_a)", candidate_code="refuse")
    assert "CandidateCodeRefused" in judgment.rollouts[0].turns[0].output
    assert replay["same"], replay


async def test_a_program_is_offered_the_functions_that_its_request_named(replayed) -> None:
    _, replay = await replayed("print('run' in globals(), 'tests' in globals())", functions=["run"])
    assert replay["same"], replay
