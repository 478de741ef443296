"""The loop on token ids, with a scripted engine (one id per byte) and a scripted sandbox."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge.engines.scripted import END_OF_TURN, ScriptedEngine
from tirjudge.errors import PromptTooLong, SandboxUnavailable
from tirjudge.formats.blocks import observation_text
from tirjudge.formats.tirjudge_1 import FORMAT
from tirjudge.labels import read_labels
from tirjudge.loop import RolloutSpec, encode_observation, run_rollout
from tirjudge.profile import Profile
from tirjudge.tools.base import Bindings, ToolContext
from tirjudge.tools.python import PythonTool
from tirjudge.turn_costs import generation_cost
from tirjudge.types import (
    Completion,
    ExecResult,
    Mode,
    Outcome,
    Rollout,
    Sampling,
    StopReason,
    TokenUsage,
    ToolCall,
    Turn,
    TurnRecord,
)

PROMPT = list(b"judge this: ")
PROGRAM = "Let me see.\n```python\nprint(1)\n```\n```output"


class Programs:
    """Sandbox that returns scripted results in order and records the programs."""

    def __init__(self, *results: ExecResult) -> None:
        self.results = list(results)
        self.ran: list[str] = []

    async def run(self, code: str, *, bindings: Bindings, offer: object = None) -> ExecResult:
        self.ran.append(code)
        if not self.results:
            raise SandboxUnavailable("gone")
        return self.results.pop(0)


def printed(text: str) -> ExecResult:
    return ExecResult(outcome=Outcome.OK, stdout=text)


async def roll(
    engine: ScriptedEngine,
    *results: ExecResult,
    tools: bool = True,
    profile: Profile | None = None,
    sampling: Sampling | None = None,
    **kw,
) -> Rollout:
    sandbox = Programs(*results)
    rollout = await run_rollout(
        PROMPT,
        RolloutSpec(
            mode=Mode.PAIRWISE,
            labels=("A", "B"),
            format=FORMAT,
            engine=engine,
            tools=[PythonTool(sandbox)] if tools else [],
            context=ToolContext(),
            profile=profile or Profile(),
            sampling=sampling or Sampling(max_tokens=0, seed=3),
            session="s",
            **kw,
        ),
    )
    assert len(sandbox.ran) == sum(t.code not in (None, "") for t in rollout.turns)
    return rollout


def script(*texts: str, a: float = 0.2, b: float = 0.6) -> ScriptedEngine:
    return ScriptedEngine(texts, label_probs={"A": a, "B": b})


async def test_a_program_runs_and_its_output_is_appended() -> None:
    engine = script(PROGRAM, "So <preference>B</preference>")
    rollout = await roll(engine, printed("7\n"))
    assert rollout.stop_reason is StopReason.VERDICT
    assert rollout.label == "B"
    assert [turn.code for turn in rollout.turns] == ["print(1)\n", None]
    assert rollout.turns[0].output == "7"
    text = engine.tokenizer.decode(rollout.token_ids)
    assert text == PROGRAM + "\n7\n```\nSo <preference>B</preference>"


async def test_only_sampled_tokens_carry_loss() -> None:
    rollout = await roll(script(PROGRAM, "<preference>B</preference>"), printed("7\n"))
    observation = "\n7\n```\n"
    expected = [1] * len(PROGRAM) + [0] * len(observation) + [1] * len("<preference>B</preference>")
    assert list(rollout.loss_mask) == expected
    assert [p != 0.0 for p in rollout.logprobs] == [bool(bit) for bit in expected]


async def test_each_turns_prompt_is_a_prefix_of_the_next() -> None:
    engine = script(PROGRAM, PROGRAM, "<preference>A</preference>")
    rollout = await roll(engine, printed("1"), printed("2"))
    asked = [ids for ids, sampling, _ in engine.calls if sampling.allowed_token_ids is None]
    assert asked[0] == tuple(PROMPT)
    for earlier, later in pairwise(asked):
        assert later[: len(earlier)] == earlier
    assert (*rollout.prompt_ids, *rollout.token_ids)[: len(asked[-1])] == asked[-1]
    assert {session for _, _, session in engine.calls} == {"s"}


async def test_probabilities_come_from_the_verdict_position() -> None:
    engine = script("I say <preference>A</preference>", a=0.25, b=0.5)
    rollout = await roll(engine)
    ids, sampling, _ = engine.calls[-1]
    assert engine.tokenizer.decode(ids).endswith("I say <preference>")
    assert sampling.max_tokens == 1
    assert {k: math.exp(v) for k, v in rollout.label_logprobs.items()} == pytest.approx({"A": 0.25, "B": 0.5})


async def test_a_calibrated_profile_softens_probabilities_and_keeps_their_sum() -> None:
    rollout = await roll(script("<preference>A</preference>", a=0.09, b=0.81), profile=Profile(label_temperature=2.0))
    assert {k: math.exp(v) for k, v in rollout.label_logprobs.items()} == pytest.approx({"A": 0.225, "B": 0.675})
    assert rollout.label == "A"


async def test_the_probability_of_programs_lowers_the_confidence_if_the_profile_says_so() -> None:
    """The scripted model gives each token the log-probability -0.5."""

    async def judged(profile: Profile) -> Rollout:
        engine = script(PROGRAM, "<preference>B</preference>", a=0.1, b=0.7)
        return await roll(engine, printed("1"), profile=profile, sampling=Sampling(max_tokens=0, logprobs=False))

    plain = await judged(Profile())
    assert (plain.program_probability, plain.is_unsure) == (None, False)
    rollout = await judged(Profile(program_weight=0.01, checked_from=0.9))
    num_tokens = len(rollout.turns[0].completion.token_ids)
    assert rollout.program_probability == pytest.approx(math.exp(-0.5 * num_tokens))
    assert rollout.turns[1].probability is None
    weight = math.exp(-0.005 * num_tokens)
    assert {k: math.exp(v) for k, v in rollout.label_logprobs.items()} == pytest.approx(
        {"A": weight * 0.1 + (1 - weight) * 0.4, "B": weight * 0.7 + (1 - weight) * 0.4}
    )
    assert weight < 0.9
    assert rollout.is_unsure
    assert not (await judged(Profile(program_weight=0.01, checked_from=weight - 0.01))).is_unsure


@pytest.mark.parametrize(
    ("line", "share"), [('CHECK {"A": 1, "B": 2}', 1.0), ('CHECK {"A": 2, "B": 2}', 0.25), ("1", 0.25)]
)
async def test_a_verdict_that_no_check_implies_has_less_weight_if_the_profile_says_so(line: str, share: float) -> None:
    engine = script(PROGRAM, "<preference>B</preference>", a=0.1, b=0.7)
    rollout = await roll(engine, printed(line), profile=Profile(unchecked_weight=0.25))
    assert rollout.label == "B"
    assert {k: math.exp(v) for k, v in rollout.label_logprobs.items()} == pytest.approx(
        {"A": share * 0.1 + (1 - share) * 0.4, "B": share * 0.7 + (1 - share) * 0.4}
    )


async def test_a_rollout_without_a_verdict_is_forced_to_the_more_probable_label() -> None:
    rollout = await roll(script("I cannot say.", a=0.2, b=0.6))
    assert rollout.stop_reason is StopReason.NO_VERDICT
    assert rollout.label == "B"
    assert rollout.forced
    assert bytes(rollout.forced_ids).decode() == "\n<preference>B</preference>"
    assert rollout.loss_mask[-len(rollout.forced_ids) :] == (0,) * len(rollout.forced_ids)


async def test_without_force_verdict_no_verdict_is_forced() -> None:
    rollout = await roll(script("I cannot say."), force_verdict=False)
    assert rollout.label is None
    assert rollout.label_logprobs == {}
    assert not rollout.forced


async def test_a_label_that_was_not_offered_is_malformed() -> None:
    assert (await roll(script("<preference>C</preference>"))).stop_reason is StopReason.MALFORMED


async def test_a_call_past_the_budget_is_not_run() -> None:
    rollout = await roll(script(PROGRAM, PROGRAM), printed("1"), max_tool_calls=1)
    assert rollout.stop_reason is StopReason.TOOL_BUDGET
    assert rollout.num_calls == 1
    assert rollout.turns[1].code is None
    assert rollout.turns[1].result is None


async def test_without_tools_nothing_runs_and_the_fence_is_not_a_stop_string() -> None:
    engine = script(PROGRAM + " <preference>A</preference>")
    rollout = await roll(engine, tools=False)
    assert rollout.label == "A"
    assert engine.calls[0][1].stop == ("</preference>",)


async def test_a_block_at_the_end_of_a_turn_without_a_fence_is_run() -> None:
    plain = "```python\nprint(1)\n```\n"
    rollout = await roll(script(plain, "<preference>A</preference>"), printed("7"))
    opening = "\n```output\n7\n```\n"
    first = rollout.turns[0]
    assert END_OF_TURN not in first.completion.token_ids
    assert bytes(first.observation_ids).decode() == opening
    assert list(rollout.loss_mask[: len(plain) + len(opening)]) == [1] * len(plain) + [0] * len(opening)


async def test_an_output_block_without_a_program_is_refused_and_counts_as_a_call() -> None:
    rollout = await roll(script("```output", "<preference>A</preference>"))
    assert rollout.turns[0].result is not None
    assert rollout.turns[0].result.outcome is Outcome.REFUSED
    assert rollout.num_calls == 1


async def test_a_failed_program_shows_its_error_and_the_loop_continues() -> None:
    failed = ExecResult(outcome=Outcome.ERROR, error="NameError: name 'x' is not defined")
    rollout = await roll(script(PROGRAM, "<preference>A</preference>"), failed)
    assert rollout.turns[0].output == "NameError: name 'x' is not defined"
    assert rollout.label == "A"


async def test_a_sandbox_failure_raises() -> None:
    with pytest.raises(SandboxUnavailable, match="gone"):
        await roll(script(PROGRAM))


async def test_long_output_is_cut_to_its_token_budget() -> None:
    rollout = await roll(
        script(PROGRAM, "<preference>A</preference>"), printed("x" * 5000), profile=Profile(observation_tokens=100)
    )
    assert len(rollout.turns[0].observation_ids) <= 100
    assert "[output cut]" in (rollout.turns[0].output or "")


async def test_the_token_budget_ends_a_rollout_and_leaves_room_for_the_verdict() -> None:
    profile = Profile(context_tokens=100, rollout_tokens=1000)
    rollout = await roll(script("x" * 500), profile=profile)
    assert rollout.stop_reason is StopReason.LENGTH
    assert rollout.forced
    assert len(rollout.prompt_ids) + len(rollout.token_ids) <= 100


async def test_output_never_exceeds_the_context() -> None:
    profile = Profile(context_tokens=len(PROMPT) + len(PROGRAM) + 60, rollout_tokens=1000)
    rollout = await roll(script(PROGRAM, "y" * 100), printed("x" * 500), profile=profile)
    assert len(rollout.prompt_ids) + len(rollout.token_ids) <= profile.context_tokens


async def test_a_prompt_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(PromptTooLong, match="12 tokens"):
        await roll(script("x"), profile=Profile(context_tokens=40))


async def test_labels_of_several_tokens_share_the_probability_of_their_first_token() -> None:
    engine = ScriptedEngine([], label_probs={"1": 0.5, "0": 0.4, "2": 0.25})
    read = await read_labels(PROMPT, labels=("1", "2", "10"), engine=engine, session="s")
    assert {k: math.exp(v) for k, v in read.items()} == pytest.approx({"1": 0.3, "2": 0.25, "10": 0.2})


@given(
    st.lists(
        st.sampled_from(
            [PROGRAM, "```output", "plain words", "```python\nx\n```", "<preference>C</preference>", "ünï ```python"]
        ),
        max_size=4,
    ),
    st.text(max_size=30),
)
async def test_ids_mask_and_logprobs_have_equal_lengths(texts: list[str], output: str) -> None:
    rollout = await roll(script(*texts, "<preference>A</preference>"), *[printed(output)] * 5)
    assert len(rollout.token_ids) == len(rollout.loss_mask) == len(rollout.logprobs)
    sampled = sum(len(turn.completion.token_ids) for turn in rollout.turns)
    assert sum(rollout.loss_mask) == sampled
    assert all(bit == 1 or logprob == 0.0 for bit, logprob in zip(rollout.loss_mask, rollout.logprobs, strict=True))
    assert rollout.label in ("A", "B")


@pytest.mark.parametrize("num_tokens", range(25))
async def test_an_observation_is_cut_to_any_budget(num_tokens: int) -> None:
    tokenizer = ScriptedEngine([]).tokenizer
    call = ToolCall(tool="python", source="print()")
    output, ids = await encode_observation(
        printed("x" * 200), call=call, format=FORMAT, tokenizer=tokenizer, num_tokens=num_tokens
    )
    assert len(ids) <= max(num_tokens, len(observation_text("")))
    assert observation_text(output).encode() == bytes(ids)


async def test_program_output_does_not_count_as_generated_tokens() -> None:
    profile = Profile(rollout_tokens=len(PROGRAM) + 40)
    rollout = await roll(script(PROGRAM, "<preference>A</preference>"), printed("x" * 300), profile=profile)
    assert rollout.stop_reason is StopReason.VERDICT


async def test_a_label_is_read_where_the_model_wrote_it() -> None:
    engine = script("<preference> B </preference>")
    rollout = await roll(engine)
    assert rollout.label == "B"
    assert engine.tokenizer.decode(engine.calls[-1][0]).endswith("<preference> ")


async def test_a_forced_verdict_does_not_follow_an_end_of_turn_token() -> None:
    engine = script("I cannot say.")
    rollout = await roll(engine)
    assert END_OF_TURN not in rollout.token_ids
    assert END_OF_TURN not in engine.calls[-1][0]


async def test_a_call_without_a_program_does_not_count_as_a_program() -> None:
    rollout = await roll(script("```output", "<preference>A</preference>"))
    assert (rollout.num_calls, rollout.num_programs) == (1, 0)
    assert rollout.turns[0].code is None


async def test_turns_have_their_tokens_and_durations() -> None:
    engine = script(PROGRAM, "So <preference>B</preference>")
    rollout = await roll(engine, ExecResult(outcome=Outcome.OK, stdout="7", wall_s=0.25))
    first, last = (turn.record for turn in rollout.turns)
    assert (first.num_tokens, last.num_tokens) == (len(PROGRAM), len("So <preference>B</preference>"))
    assert (first.tool_ms, last.tool_ms) == (250.0, None)
    assert first.engine_ms is not None


async def test_the_loop_measures_a_tool_that_does_not_measure_itself() -> None:
    rollout = await roll(script(PROGRAM, "So <preference>B</preference>"), printed("7"))
    result = rollout.turns[0].result
    assert result is not None
    assert result.wall_s > 0


def test_a_turn_without_tokens_and_durations_loads_and_is_written_as_before() -> None:
    written = {"text": "t", "code": None, "output": None, "outcome": None}
    turn = TurnRecord.model_validate(written)
    assert (turn.num_tokens, turn.engine_ms, turn.tool_ms) == (None, None, None)
    assert turn.model_dump(mode="json") == written
    assert generation_cost(turn) == ""


def test_tokens_that_an_endpoint_does_not_report_are_not_counted() -> None:
    completion = Completion(text="t", token_ids=(1, 2), logprobs=(), finish_reason="stop")
    counted = replace(completion, counted=TokenUsage(prompt=None, completion=None))
    assert Turn(completion=completion).record.num_tokens == 2
    assert Turn(completion=counted).record.num_tokens is None
    turn = TurnRecord(text="t", code=None, output=None, outcome=None, num_tokens=1, engine_ms=1234.5)
    assert generation_cost(turn) == "1 token, 1,234 ms"
