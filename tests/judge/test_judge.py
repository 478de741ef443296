"""Judging requests with a scripted engine: orders, votes, groups and limits."""

import asyncio
import re
from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import EngineUnavailable
from tirjudge.judge import MAX_ROLLOUTS, Judge, content_order
from tirjudge.profile import Profile
from tirjudge.tools.base import Bindings
from tirjudge.tools.python import PythonTool
from tirjudge.types import ExecResult, JudgeRequest, Mode, Outcome, TurnRecord


class Echo:
    """Sandbox whose programs print the names of their variables."""

    async def run(self, code: str, *, bindings: Bindings, offer: object = None) -> ExecResult:
        return ExecResult(outcome=Outcome.OK, stdout=str(sorted(bindings)))


def longest(sequence: str) -> str:
    """Return the letter of the longest response shown."""
    shown = {m[1].upper(): m[2] for m in re.finditer(r"<response_([a-z]+)>\n(.*?)\n</response", sequence, re.DOTALL)}
    return max(shown, key=lambda label: len(shown[label]))


def picks_longest() -> ScriptedEngine:
    """Return an engine that always chooses the longest response."""
    return ScriptedEngine(
        lambda sequence: f"<preference>{longest(sequence)}</preference>",
        label_probs=lambda sequence: {chr(i): 0.01 for i in range(65, 91)} | {longest(sequence): 0.7},
    )


def num_rollouts(engine: ScriptedEngine) -> int:
    return sum(sampling.allowed_token_ids is None for _, sampling, _ in engine.calls)


def judge(engine: ScriptedEngine, profile: Profile | None = None) -> Judge:
    return Judge(engine=engine, tools=[PythonTool(Echo())], profile=profile or Profile(name="m"))


def pairwise(**fields) -> JudgeRequest:
    return JudgeRequest.model_validate(
        {"mode": "pairwise", "prompt": "p", "responses": ["short", "the longer one"], **fields}
    )


async def test_the_order_shown_does_not_depend_on_the_order_sent() -> None:
    there, back = pairwise(), pairwise(responses=["the longer one", "short"])
    assert [there.responses[i] for i in content_order(there)] == [back.responses[i] for i in content_order(back)]
    a, b = await judge(picks_longest()).judge(there), await judge(picks_longest()).judge(back)
    assert (a.verdict.best, b.verdict.best) == (1, 0)


def test_the_content_order_depends_on_prompt_and_seed_and_is_balanced() -> None:
    first = sum(content_order(pairwise(prompt=f"p{i}"))[0] for i in range(400))
    assert 150 < first < 250
    assert len({content_order(pairwise(seed=i)) for i in range(20)}) == 2


async def test_both_orders_are_shown_and_agree() -> None:
    judgment = await judge(picks_longest()).judge(pairwise(orders="both"))
    assert sorted(r.order for r in judgment.rollouts) == [[0, 1], [1, 0]]
    assert (judgment.verdict.status, judgment.verdict.best) == ("decided", 1)


async def test_a_judge_that_always_chooses_a_results_in_a_tie() -> None:
    engine = ScriptedEngine(["<preference>A</preference>"] * 2, label_probs={"A": 0.9, "B": 0.1})
    verdict = (await judge(engine).judge(pairwise(orders="both"))).verdict
    assert (verdict.status, verdict.reason) == ("tie", "orders_disagree")


async def test_votes_that_agree_stop_early() -> None:
    engine = picks_longest()
    judgment = await judge(engine).judge(pairwise(votes=7))
    assert num_rollouts(engine) == 4
    assert judgment.usage.rollouts == 4
    assert judgment.verdict.best == 1


async def test_votes_differ_in_seed_and_are_sampled_while_one_vote_is_greedy() -> None:
    engine = ScriptedEngine(["<preference>A</preference>"] * 4, label_probs={"A": 0.9})
    await judge(engine).judge(pairwise(votes=3))
    voted = [sampling for _, sampling, _ in engine.calls if sampling.allowed_token_ids is None]
    assert len({s.seed for s in voted}) == len(voted) == 2
    assert {s.temperature for s in voted} == {1.0}
    await judge(engine).judge(pairwise())
    assert engine.calls[-2][1].temperature == 0.0


@pytest.mark.parametrize("count", [2, 5, 26])
async def test_listwise_judges_up_to_a_group_in_one_prompt(count: int) -> None:
    engine = picks_longest()
    request = JudgeRequest(mode=Mode.LISTWISE, prompt="p", responses=["x" * (i + 1) for i in range(count)])
    verdict = (await judge(engine).judge(request)).verdict
    assert num_rollouts(engine) == 1
    assert verdict.best == count - 1
    assert verdict.probabilities is not None
    assert sum(verdict.probabilities) == pytest.approx(1.0)


@pytest.mark.parametrize("count", [27, 60, 200])
async def test_listwise_judges_any_number_in_groups_and_compares_the_winners(count: int) -> None:
    engine = picks_longest()
    request = JudgeRequest(mode=Mode.LISTWISE, prompt="p", responses=["x" * (i + 1) for i in range(count)])
    judgment = await judge(engine, Profile(name="m", context_tokens=200_000, all_responses_chars=10**9)).judge(request)
    assert judgment.verdict.best == count - 1
    assert judgment.verdict.probabilities is not None
    assert sum(judgment.verdict.probabilities) == pytest.approx(1.0)
    assert max(len(r.order) for r in judgment.rollouts) <= 26
    shown = {i for r in judgment.rollouts for i in r.order}
    assert shown == set(range(count))


async def test_a_group_shrinks_until_its_prompt_fits_the_context() -> None:
    profile = Profile(name="m", context_tokens=4000, rollout_tokens=500)
    request = JudgeRequest(mode=Mode.LISTWISE, prompt="p", responses=["x" * (700 + i) for i in range(8)])
    judgment = await judge(picks_longest(), profile).judge(request)
    assert judgment.verdict.best == 7
    assert max(len(r.order) for r in judgment.rollouts) < 8


async def test_pointwise_judges_each_response_alone() -> None:
    engine = ScriptedEngine(["<score>3</score>", "<score>9</score>"], label_probs={"3": 0.5, "9": 0.5})
    judgment = await judge(engine).judge(JudgeRequest(mode=Mode.POINTWISE, prompt="p", responses=["a", "b"]))
    assert [r.order for r in judgment.rollouts] == [[0], [1]]
    assert judgment.verdict.scores is not None


async def test_programs_find_the_responses_in_the_order_shown() -> None:
    program = "```python\nprint(1)\n```\n```output"
    engine = ScriptedEngine([program, "<preference>A</preference>"], label_probs={"A": 0.9})
    judgment = await judge(engine).judge(pairwise())
    assert judgment.rollouts[0].turns[0].output == "['prompt', 'response_a', 'response_b', 'responses']"


async def test_the_callback_gets_each_turn() -> None:
    seen: list[tuple[list[int], TurnRecord]] = []

    async def on_turn(order: Sequence[int], turn: TurnRecord) -> None:
        seen.append((list(order), turn))

    program = "```python\nprint(1)\n```\n```output"
    engine = ScriptedEngine([program, "<preference>A</preference>"], label_probs={"A": 0.9})
    judgment = await judge(engine).judge(pairwise(), on_turn=on_turn)
    assert [turn for _, turn in seen] == judgment.rollouts[0].turns
    assert {tuple(order) for order, _ in seen} == {tuple(judgment.rollouts[0].order)}


async def test_usage_counts_every_token_once() -> None:
    engine = ScriptedEngine(["<preference>A</preference>"], label_probs={"A": 0.9})
    judgment = await judge(engine).judge(pairwise())
    assert judgment.usage.output_tokens == len("<preference>A</preference>")
    assert judgment.usage.input_tokens == len(engine.calls[0][0])
    assert judgment.usage.tool_calls == 0


async def test_a_judge_without_tools_accepts_only_requests_without_tools() -> None:
    bare = Judge(engine=picks_longest(), tools=())
    with pytest.raises(ValueError, match=r'tools: "auto" given.*send "off"'):
        await bare.judge(pairwise())
    assert (await bare.judge(pairwise(tools="off"))).verdict.best == 1


async def test_an_engine_failure_fails_the_judgment() -> None:
    def down(sequence: str) -> str:
        raise EngineUnavailable("down")

    with pytest.raises(EngineUnavailable, match="down"):
        await judge(ScriptedEngine(down)).judge(pairwise(orders="both"))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"responses": []}, "responses"),
        ({"responses": ["one"]}, "pairwise compares exactly 2 responses, 1 given"),
        ({"mode": "listwise", "responses": ["one"]}, "at least 2 responses, 1 given"),
        ({"mode": "tournament"}, "mode"),
        ({"responses": ["x"] * 2000, "mode": "listwise"}, "responses"),
        ({"colour": "blue"}, "colour"),
        ({"votes": 0}, "votes"),
        ({"prompt": [{"role": "user"}]}, "content"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_the_error_of_an_invalid_request_names_the_field(fields: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        pairwise(**fields)


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    request = pairwise(responses=["ok \ud83d", "\ud83d\ude00 fine"])
    assert request.responses == ["ok \ufffd", "😀 fine"]


async def test_a_group_of_one_is_not_judged() -> None:
    request = JudgeRequest(mode=Mode.LISTWISE, prompt="p", responses=["x" * (i + 1) for i in range(5)], orders="both")
    judgment = await judge(picks_longest(), Profile(name="m", group_size=2)).judge(request)
    assert judgment.verdict.best == 4
    assert all(len(rollout.order) == 2 for rollout in judgment.rollouts)
    orders = [tuple(rollout.order) for rollout in judgment.rollouts]
    assert len(set(orders)) == len(orders)


async def test_the_confidence_of_groups_is_that_of_the_best() -> None:
    request = JudgeRequest(mode=Mode.LISTWISE, prompt="p", responses=["x" * (i + 1) for i in range(4)])
    verdict = (await judge(picks_longest(), Profile(name="m", group_size=2)).judge(request)).verdict
    assert verdict.probabilities is not None
    assert verdict.best is not None
    assert verdict.confidence == pytest.approx(verdict.probabilities[verdict.best] * (verdict.label_mass or 0))


async def test_a_prompt_with_many_tokens_per_character_is_shortened() -> None:
    profile = Profile(name="m", context_tokens=3000, rollout_tokens=600, prompt_chars=1200)
    judgment = await judge(picks_longest(), profile).judge(pairwise(prompt="海" * 1200))
    assert judgment.verdict.status == "decided"


async def test_concurrent_rollouts_of_a_request_are_limited() -> None:
    running = most = 0

    class Counting:
        async def run(self, code: str, *, bindings: Bindings, offer: object = None) -> ExecResult:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return ExecResult(outcome=Outcome.OK)

    def script(sequence: str) -> str:
        return "<score>5</score>" if "```\n" in sequence[-8:] else "```python\nx\n```\n```output"

    counting = Judge(engine=ScriptedEngine(script, label_probs={"5": 0.9}), tools=[PythonTool(Counting())])
    await counting.judge(JudgeRequest(mode=Mode.POINTWISE, prompt="p", responses=["r"] * 50))
    assert 1 < most <= MAX_ROLLOUTS


async def test_max_tool_calls_0_uses_the_prompt_without_tools() -> None:
    engine = picks_longest()
    await judge(engine).judge(pairwise(max_tool_calls=0))
    assert b"```python" not in bytes(engine.calls[0][0])
    with pytest.raises(ValidationError, match=r"max_tool_calls: 0 given with tools \"on\""):
        pairwise(max_tool_calls=0, tools="on")


@pytest.mark.parametrize("field", ["votes", "seed", "stream", "force_verdict"])
def test_strings_are_not_converted_to_numbers_or_booleans(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        pairwise(**{field: "1"})


async def test_programs_find_the_reference_and_the_prompt_has_all_optional_sections() -> None:
    engine = ScriptedEngine(
        ["```python\nprint(1)\n```\n```output", "<preference>A</preference>"], label_probs={"A": 0.9}
    )
    request = pairwise(
        reference="the truth", criteria=[{"name": "Tone", "text": "It is kind.", "weight": 0.5}], rubric="Be strict."
    )
    judgment = await judge(engine).judge(request)
    assert judgment.rollouts[0].turns[0].output == str(["prompt", "reference", "response_a", "response_b", "responses"])
    seen = engine.tokenizer.decode(engine.calls[0][0])
    assert "<reference>\nthe truth\n</reference>" in seen
    assert "<criteria>\n1. Tone (weight 0.5): It is kind.\n</criteria>" in seen
    assert "<rubric>\nBe strict.\n</rubric>" in seen


async def test_long_optional_sections_are_shortened_until_the_prompt_fits() -> None:
    engine = picks_longest()
    profile = Profile(name="m", context_tokens=4096, rollout_tokens=1024)
    criteria = [{"text": f"criterion {i} " + "c" * 4000} for i in range(8)]
    request = pairwise(reference="r" * 50_000, criteria=criteria, rubric="b" * 50_000)
    judgment = await judge(engine, profile).judge(request)
    assert judgment.verdict.best == 1
    assert len(engine.calls[0][0]) <= 4096 - 1024


@pytest.mark.parametrize(
    "wrong",
    [
        {"criteria": []},
        {"criteria": [{"text": ""}]},
        {"criteria": [{"text": "x", "weight": 0}]},
        {"criteria": [{"text": "x", "weight": float("inf")}]},
        {"criteria": [{"text": "x", "colour": "blue"}]},
        {"deadline_s": 0},
        {"deadline_s": float("nan")},
    ],
)
def test_invalid_criteria_and_deadlines_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        pairwise(**wrong)
