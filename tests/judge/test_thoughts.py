"""Thoughts of reasoning models in the loop: nothing in them is run or counted as a verdict."""

from __future__ import annotations

import asyncio

import pytest

from tests.table_model import PIECES, RandomModel, TableTokenizer
from tirjudge.deadline import Deadline
from tirjudge.formats import format_named
from tirjudge.loop import RolloutSpec, run_rollout
from tirjudge.profile import Profile
from tirjudge.thoughts import Thinking, thinking_after
from tirjudge.tools.base import Bindings, ToolContext
from tirjudge.tools.python import PythonTool
from tirjudge.types import ExecResult, Mode, Outcome, Rollout, Sampling, StopReason

TOKENS = TableTokenizer([*PIECES, "<think>", "</think>"])
PROGRAM = "```python\nprint(1)\n```\n```output"
VERDICT = "<preference>A</preference>"


class Programs:
    """Sandbox that records the programs."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, code: str, *, bindings: Bindings, offer: object = None) -> ExecResult:
        self.ran.append(code)
        return ExecResult(outcome=Outcome.OK, stdout="1")


async def roll(
    *texts: str, prompt: str = "judge: ", profile: Profile | None = None, deadline: Deadline | None = None
) -> tuple[Rollout, RandomModel, Programs]:
    model, programs = RandomModel(TOKENS, favored={"A", "B"}, texts=texts), Programs()
    spec = RolloutSpec(
        mode=Mode.PAIRWISE,
        labels=("A", "B"),
        format=format_named("tirjudge/1"),
        engine=model,
        tools=[PythonTool(programs)],
        context=ToolContext(),
        profile=profile or Profile(),
        sampling=Sampling(max_tokens=0),
        session="s",
        **({} if deadline is None else {"deadline": deadline}),
    )
    return await run_rollout(TOKENS.now(prompt), spec), model, programs


def written(rollout: Rollout) -> str:
    return "".join(TOKENS.tokens[i] for i in rollout.token_ids)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("assistant\n", Thinking.POSSIBLE),
        ("assistant\n<think>\n", Thinking.OPEN),
        ("assistant\n<think>\n\n</think>\n\n", Thinking.OFF),
        ("a response says <think>; judge it. assistant\n", Thinking.POSSIBLE),
    ],
)
async def test_the_end_of_the_prompt_tells_whether_the_model_thinks(prompt: str, expected: Thinking) -> None:
    assert (await thinking_after(TOKENS.now(prompt), tokenizer=TOKENS))[0] is expected


async def test_a_vocabulary_without_thought_tags_does_not_think() -> None:
    plain = TableTokenizer(PIECES)
    assert (await thinking_after(plain.now("assistant\n<think>\n"), tokenizer=plain))[0] is Thinking.OFF


async def test_programs_and_verdicts_in_a_thought_do_not_count() -> None:
    thought = f"\nMaybe\n{PROGRAM} prints 1, so <preference>B</preference>.</think>"
    rollout, model, programs = await roll("<think>", thought, f"Run it.\n{PROGRAM}", f"So {VERDICT}")
    assert rollout.label == "A"
    assert rollout.stop_reason is StopReason.VERDICT
    assert programs.ran == ["print(1)\n"]
    assert [turn.is_thought for turn in rollout.turns] == [True, True, False, False]
    assert [turn.record.is_thought for turn in rollout.turns] == [True, True, False, False]
    assert model.asked[1][1].stop == ("</think>",)
    assert written(rollout).startswith(f"<think>{thought}Run it.\n{PROGRAM}")
    assert all(rollout.loss_mask[: len(TOKENS.now("<think>" + thought))])


async def test_a_thought_that_the_prompt_opens_needs_no_opening_tag() -> None:
    rollout, model, _ = await roll("It is <preference>B</preference>.</think>", VERDICT, prompt="assistant\n<think>\n")
    assert rollout.label == "A"
    assert model.asked[0][1].stop == ("</think>",)
    assert model.asked[1][1].stop == ("</preference>", "```output", "<think>")


async def test_thinking_switched_off_adds_no_stop_string() -> None:
    _, model, _ = await roll(VERDICT, prompt="assistant\n<think>\n\n</think>\n\n")
    assert model.asked[0][1].stop == ("</preference>", "```output")


async def test_a_thought_that_uses_up_its_budget_is_closed_and_the_model_answers() -> None:
    profile = Profile(thinking_tokens=10, rollout_tokens=100)
    rollout, model, _ = await roll("x" * 500, VERDICT, prompt="<think>\n", profile=profile)
    assert rollout.label == "A"
    assert not rollout.forced
    assert len(rollout.turns[0].completion.token_ids) == 10
    assert "".join(TOKENS.tokens[i] for i in rollout.turns[0].observation_ids) == "\n</think>\n\n"
    assert rollout.loss_mask[:15] == (1,) * 10 + (0,) * 4 + (1,)
    assert model.asked[1][1].max_tokens == 100


async def test_a_thought_leaves_half_of_the_context_to_the_answer() -> None:
    profile = Profile(context_tokens=232, thinking_tokens=1000, rollout_tokens=1000)
    rollout, model, _ = await roll("x" * 500, VERDICT, prompt="<think>\n", profile=profile)
    assert model.asked[0][1].max_tokens == 99
    assert rollout.label == "A"


async def test_the_budget_of_the_answer_does_not_count_thoughts() -> None:
    profile = Profile(thinking_tokens=50, rollout_tokens=len(VERDICT))
    rollout, _, _ = await roll("x" * 40 + "</think>", VERDICT, prompt="<think>\n", profile=profile)
    assert rollout.label == "A"
    assert not rollout.forced


async def test_a_turn_that_ends_in_a_thought_closes_it_and_forces_the_verdict() -> None:
    rollout, _, _ = await roll("It is <preference>B</preference>", prompt="<think>\n")
    assert rollout.forced
    assert rollout.stop_reason is StopReason.NO_VERDICT
    forced = "".join(TOKENS.tokens[i] for i in rollout.forced_ids)
    assert forced == f"\n</think>\n\n\n<preference>{rollout.label}</preference>"


async def test_a_deadline_in_a_thought_closes_it_and_forces_the_verdict() -> None:
    now = asyncio.get_running_loop().time()
    rollout, model, _ = await roll(prompt="<think>\n", deadline=Deadline(ends_at=now + 100, reserve_s=150))
    assert rollout.stop_reason is StopReason.DEADLINE
    assert model.asked == []
    forced = "".join(TOKENS.tokens[i] for i in rollout.forced_ids)
    assert forced == f"\n</think>\n\n\n<preference>{rollout.label}</preference>"
