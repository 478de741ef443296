"""Judgments that run out of time: turns and programs are cut off, verdicts forced, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tirjudge.deadline import NEVER, Deadline
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import DeadlineExceeded
from tirjudge.judge import Judge
from tirjudge.loop import OUT_OF_TIME
from tirjudge.tools.base import Bindings
from tirjudge.tools.python import PythonTool, Sandbox
from tirjudge.types import ExecResult, JudgeRequest, Outcome, StopReason

PROGRAM = "Let me see.\n```python\nprint(1)\n```\n```output"
FOR_EVER = 3600.0


class Prints:
    """Takes its time and prints 7."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.seconds = seconds

    async def run(self, code: str, *, bindings: Bindings) -> ExecResult:
        await asyncio.sleep(self.seconds)
        return ExecResult(outcome=Outcome.OK, stdout="7\n")


def engine(*texts: str, **delays: float) -> ScriptedEngine:
    return ScriptedEngine(texts, label_probs={"A": 0.2, "B": 0.6}, **delays)


def judge(engine: ScriptedEngine, *, sandbox: Sandbox | None = None) -> Judge:
    return Judge(engine=engine, tools=[PythonTool(sandbox or Prints())])


def pairwise(**fields: object) -> JudgeRequest:
    return JudgeRequest.model_validate({"mode": "pairwise", "prompt": "p", "responses": ["x", "y"], **fields})


async def test_a_turn_that_would_run_past_the_deadline_is_cut_off_and_the_verdict_forced() -> None:
    judgment = await judge(engine("never said", delay_s=FOR_EVER)).judge(pairwise(deadline_s=0.5))
    (rollout,) = judgment.rollouts
    assert rollout.stop_reason is StopReason.DEADLINE
    assert rollout.turns == []
    assert judgment.verdict.status == "decided"
    assert judgment.verdict.forced
    assert judgment.verdict.label_mass == pytest.approx(0.8)


async def test_what_was_found_before_the_deadline_is_kept_for_the_forced_verdict() -> None:
    delays = itertools.chain([0.0], itertools.repeat(FOR_EVER))
    scripted = engine(PROGRAM, "never said")
    generate = scripted.generate

    async def slower(token_ids, *, sampling, session):
        if sampling.allowed_token_ids is None:
            await asyncio.sleep(next(delays))
        return await generate(token_ids, sampling=sampling, session=session)

    scripted.generate = slower  # type: ignore[method-assign]
    judgment = await judge(scripted).judge(pairwise(deadline_s=0.5))
    (rollout,) = judgment.rollouts
    assert [turn.output for turn in rollout.turns] == ["7"]
    assert (rollout.stop_reason, judgment.verdict.forced) == (StopReason.DEADLINE, True)
    assert scripted.tokenizer.decode(scripted.calls[-1][0]).endswith("\n7\n```\n\n<preference>")


async def test_a_program_gets_the_time_that_is_left() -> None:
    scripted = engine(PROGRAM, "never asked for")
    judgment = await judge(scripted, sandbox=Prints(seconds=FOR_EVER)).judge(pairwise(deadline_s=0.5))
    (rollout,) = judgment.rollouts
    assert [turn.outcome for turn in rollout.turns] == [Outcome.TIMEOUT]
    assert rollout.turns[0].output == OUT_OF_TIME.error
    assert (rollout.stop_reason, judgment.verdict.forced) == (StopReason.DEADLINE, True)


async def test_a_judgment_that_may_not_be_forced_abstains_at_its_deadline() -> None:
    scripted = engine(PROGRAM, "never asked for")
    request = pairwise(deadline_s=1.0, force_verdict=False)
    judgment = await judge(scripted, sandbox=Prints(seconds=FOR_EVER)).judge(request)
    assert (judgment.verdict.status, judgment.verdict.reason) == ("abstained", "deadline")


async def test_a_verdict_that_cannot_be_read_in_time_is_an_abstention() -> None:
    scripted = engine("<preference>A</preference>", read_delay_s=FOR_EVER)
    judgment = await judge(scripted).judge(pairwise(deadline_s=1.0))
    assert (judgment.verdict.status, judgment.verdict.reason) == ("abstained", "deadline")
    assert judgment.rollouts[0].turns[0].text == "<preference>A</preference>"


async def test_an_engine_that_answers_nothing_in_time_made_no_judgment() -> None:
    with pytest.raises(DeadlineExceeded):
        await judge(engine("never said", delay_s=FOR_EVER, read_delay_s=FOR_EVER)).judge(pairwise(deadline_s=1.0))


async def test_a_tokenizer_that_hangs_makes_no_judgment_either() -> None:
    scripted = engine()

    async def hang(text: str) -> list[int]:
        await asyncio.sleep(FOR_EVER)
        return []

    scripted.tokenizer.encode_prompt = hang  # type: ignore[method-assign]
    with pytest.raises(DeadlineExceeded):
        await judge(scripted).judge(pairwise(deadline_s=1.0))


async def test_no_further_votes_are_cast_when_time_is_nearly_up() -> None:
    said = iter(["<preference>A</preference>", "<preference>B</preference>"])
    scripted = ScriptedEngine(lambda _: next(said, "never said"), label_probs={"A": 0.5, "B": 0.5}, delay_s=0.45)
    judgment = await judge(scripted).judge(pairwise(votes=3, deadline_s=0.5))
    assert judgment.usage.rollouts == 2
    assert {rollout.stop_reason for rollout in judgment.rollouts} == {StopReason.DEADLINE}


async def test_every_rollout_of_a_tournament_is_forced_when_time_is_up() -> None:
    scripted = ScriptedEngine(lambda _: "never said", label_probs={"A": 0.9}, delay_s=FOR_EVER)
    request = JudgeRequest.model_validate(
        {"mode": "listwise", "prompt": "p", "responses": [f"r{i}" for i in range(60)], "deadline_s": 3.0}
    )
    judgment = await judge(scripted).judge(request)
    assert judgment.verdict.status == "decided"
    assert len(judgment.rollouts) == 4
    assert all(rollout.stop_reason is StopReason.DEADLINE for rollout in judgment.rollouts)


async def test_time_for_the_verdict_is_kept_and_is_a_part_of_all_the_time() -> None:
    short, long = Deadline.after(10.0), Deadline.after(1000.0)
    assert (short.reserve_s, long.reserve_s) == (2.0, 5.0)
    for deadline in (short, long):
        assert deadline.forces_at is not None
        assert deadline.reads_until is not None
        assert deadline.ends_at is not None
        assert deadline.forces_at < deadline.reads_until < deadline.ends_at
        assert not deadline.is_near
    assert Deadline.after(None) is NEVER
    assert not NEVER.is_near


async def test_a_time_limit_of_the_sandbox_itself_is_not_taken_for_the_deadline() -> None:
    class TimesOut:
        async def run(self, code: str, *, bindings: Bindings) -> ExecResult:
            raise TimeoutError("the sandbox's own")

    with pytest.raises(TimeoutError, match="own"):
        await judge(engine(PROGRAM), sandbox=TimesOut()).judge(pairwise(deadline_s=30.0))
