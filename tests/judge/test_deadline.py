"""Judgments that run out of time: turns and programs are interrupted, verdicts are forced, and nothing hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest

from tirjudge.deadline import NEVER, Deadline
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import DeadlineExceeded
from tirjudge.judge import Judge
from tirjudge.loop import OUT_OF_TIME
from tirjudge.tools.base import Bindings
from tirjudge.tools.python import PythonTool, Sandbox
from tirjudge.types import Completion, ExecResult, JudgeRequest, Outcome, Sampling, StopReason

PROGRAM = "Let me see.\n```python\nprint(1)\n```\n```output"
DEADLINE_S = 60.0
FORCES_AT, READS_UNTIL, GIVES_UP_AT = 55.0, 59.5, 61.0
"""Instants of a deadline of 60 s, in seconds from its start."""


class Clock:
    """The clock of the running event loop. A hanging call advances it, so that no test waits for a deadline."""

    def __init__(self, real: Callable[[], float]) -> None:
        self._real = real
        self._started = real()
        self._skipped_s = 0.0

    def time(self) -> float:
        return self._real() + self._skipped_s

    async def hang(self, *, past: float) -> None:
        """Hang, with the clock half a second past an instant (seconds from the start of the test)."""
        self._skipped_s += max(0.0, past + 0.5 - (self.time() - self._started))
        await asyncio.Event().wait()


@pytest.fixture
async def clock() -> AsyncIterator[Clock]:
    loop = asyncio.get_running_loop()
    clock = Clock(loop.time)
    loop.time = clock.time  # type: ignore[method-assign]
    yield clock
    del loop.time


class Prints:
    """Sandbox whose programs print 7."""

    async def run(self, code: str, *, bindings: Bindings, offer: object = None) -> ExecResult:
        return ExecResult(outcome=Outcome.OK, stdout="7\n")


class Hangs:
    """Sandbox whose programs hang until the deadline."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    async def run(self, code: str, *, bindings: Bindings, offer: object = None) -> ExecResult:
        await self.clock.hang(past=FORCES_AT)
        raise AssertionError("not cancelled")


class HangingEngine(ScriptedEngine):
    """Engine that generates its texts and then hangs until the deadline; with `reads=False`, its label reads hang too."""

    def __init__(
        self,
        *texts: str,
        clock: Clock,
        reads: bool = True,
        label_probs: Callable[[str], Mapping[str, float]] = lambda sequence: {"A": 0.2, "B": 0.6},
    ) -> None:
        super().__init__(texts, label_probs=label_probs)
        self.clock, self.reads, self.num_left = clock, reads, len(texts)

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        if sampling.allowed_token_ids is not None:
            if not self.reads:
                await self.clock.hang(past=READS_UNTIL)
        elif self.num_left == 0:
            await self.clock.hang(past=FORCES_AT)
        else:
            self.num_left -= 1
        return await super().generate(token_ids, sampling=sampling, session=session)


def judge(engine: ScriptedEngine, *, sandbox: Sandbox | None = None) -> Judge:
    return Judge(engine=engine, tools=[PythonTool(sandbox or Prints())])


def pairwise(**fields: object) -> JudgeRequest:
    defaults = {"mode": "pairwise", "prompt": "p", "responses": ["x", "y"], "deadline_s": DEADLINE_S}
    return JudgeRequest.model_validate(defaults | fields)


async def test_a_turn_past_the_deadline_is_interrupted_and_the_verdict_forced(clock: Clock) -> None:
    judgment = await judge(HangingEngine(clock=clock)).judge(pairwise())
    (rollout,) = judgment.rollouts
    assert rollout.stop_reason is StopReason.DEADLINE
    assert rollout.turns == []
    assert judgment.verdict.status == "decided"
    assert judgment.verdict.forced
    assert judgment.verdict.label_mass == pytest.approx(0.8)


async def test_turns_before_the_deadline_are_kept_for_the_forced_verdict(clock: Clock) -> None:
    engine = HangingEngine(PROGRAM, clock=clock)
    judgment = await judge(engine).judge(pairwise())
    (rollout,) = judgment.rollouts
    assert [turn.output for turn in rollout.turns] == ["7"]
    assert (rollout.stop_reason, judgment.verdict.forced) == (StopReason.DEADLINE, True)
    assert engine.tokenizer.decode(engine.calls[-1][0]).endswith("\n7\n```\n\n<preference>")


async def test_a_program_past_the_deadline_times_out(clock: Clock) -> None:
    judgment = await judge(HangingEngine(PROGRAM, clock=clock), sandbox=Hangs(clock)).judge(pairwise())
    (rollout,) = judgment.rollouts
    assert [turn.outcome for turn in rollout.turns] == [Outcome.TIMEOUT]
    assert rollout.turns[0].output == OUT_OF_TIME.error
    assert (rollout.stop_reason, judgment.verdict.forced) == (StopReason.DEADLINE, True)


async def test_without_force_verdict_a_judgment_abstains_at_its_deadline(clock: Clock) -> None:
    request = pairwise(force_verdict=False)
    judgment = await judge(HangingEngine(PROGRAM, clock=clock), sandbox=Hangs(clock)).judge(request)
    assert (judgment.verdict.status, judgment.verdict.reason) == ("abstained", "deadline")


async def test_a_verdict_that_is_not_read_in_time_is_an_abstention(clock: Clock) -> None:
    engine = HangingEngine("<preference>A</preference>", clock=clock, reads=False)
    judgment = await judge(engine).judge(pairwise())
    assert (judgment.verdict.status, judgment.verdict.reason) == ("abstained", "deadline")
    assert judgment.rollouts[0].turns[0].text == "<preference>A</preference>"


async def test_an_engine_that_hangs_raises_deadline_exceeded(clock: Clock) -> None:
    with pytest.raises(DeadlineExceeded):
        await judge(HangingEngine(clock=clock, reads=False)).judge(pairwise())


async def test_a_tokenizer_that_hangs_raises_deadline_exceeded(clock: Clock) -> None:
    engine = ScriptedEngine([])

    async def hang(text: str) -> list[int]:
        await clock.hang(past=GIVES_UP_AT)
        return []

    engine.tokenizer.encode_prompt = hang  # type: ignore[method-assign]
    with pytest.raises(DeadlineExceeded):
        await judge(engine).judge(pairwise())


async def test_no_further_votes_are_cast_near_the_deadline(clock: Clock) -> None:
    reads = iter([{"A": 0.9}, {"B": 0.9}])
    engine = HangingEngine(clock=clock, label_probs=lambda sequence: next(reads))
    judgment = await judge(engine).judge(pairwise(votes=3))
    assert judgment.verdict.reason == "votes_split"
    assert judgment.usage.rollouts == 2
    assert {rollout.stop_reason for rollout in judgment.rollouts} == {StopReason.DEADLINE}


async def test_every_rollout_of_a_tournament_is_forced_at_the_deadline(clock: Clock) -> None:
    engine = HangingEngine(clock=clock, label_probs=lambda sequence: {"A": 0.9})
    judgment = await judge(engine).judge(pairwise(mode="listwise", responses=[f"r{i}" for i in range(60)]))
    assert judgment.verdict.status == "decided"
    assert len(judgment.rollouts) == 4
    assert all(rollout.stop_reason is StopReason.DEADLINE for rollout in judgment.rollouts)


async def test_the_reserve_for_the_verdict_is_a_share_of_the_time_with_a_maximum() -> None:
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


async def test_a_timeout_error_of_the_sandbox_is_not_treated_as_the_deadline() -> None:
    class TimesOut:
        async def run(self, code: str, *, bindings: Bindings, offer: object = None) -> ExecResult:
            raise TimeoutError("of the sandbox")

    with pytest.raises(TimeoutError, match="of the sandbox"):
        await judge(ScriptedEngine([PROGRAM]), sandbox=TimesOut()).judge(pairwise())
