"""A chat that asks for no judgment: the same loop, with Python, and its last words as the answer.

Only for a model that was not trained on our prompts alone; one that was would answer anything with a verdict.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tirjudge.deadline import Deadline
from tirjudge.errors import DeadlineExceeded
from tirjudge.formats.tirjudge_1 import OUTPUT_FENCE, observation_text
from tirjudge.http.protocol import invalid
from tirjudge.loop import RolloutSpec, run_rollout
from tirjudge.tools.base import ToolContext
from tirjudge.types import ChatMessage, JudgeRequest, Judgment, Mode, Rollout, Sampling, StopReason, Turn, TurnRecord
from tirjudge_server.call import Call
from tirjudge_server.openai.capacity import place
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import Refused

OnTurn = Callable[[TurnRecord], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationQuestion:
    """One chat."""

    messages: tuple[ChatMessage, ...]
    model: str | None
    tools: bool
    max_tool_calls: int
    max_tokens: int | None
    """Of all that the model writes; None: what its profile allows."""
    temperature: float
    top_p: float
    seed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChoice:
    """One answer, before it has the shape of an endpoint."""

    content: str | None
    refusal: str | None = None
    reasoning: str
    """The turns before the answer, with their programs and what these printed."""
    finish_reason: Literal["stop", "length"]
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    judgment: Judgment | None = None
    """None: it was no judgment."""


def check_model_chats(service: JudgeService) -> None:
    """Whether the model can do more than judge.

    Raises:
        Refused: it cannot.
    """
    if not service.judge.profile.was_trained_on_format:
        return
    message = (
        "messages: nothing to judge was found in them, and this model was trained to judge, not to chat; send "
        '`judge`: {"mode", "responses"} in the body, one of the prompts that docs/openai.md lists, or a request as JSON '
        "in the last user message with the header X-Tirjudge-Request: json"
    )
    raise Refused(invalid(message, param="messages", code="not_a_judgment"))


def shown_text(messages: Sequence[ChatMessage]) -> str:
    """The chat as one user message, which is all that an engine's template is asked to render: a system message stands
    before a single user message, and longer conversations have their roles named."""
    if all(message.role == "system" for message in messages[:-1]) and messages[-1].role == "user":
        return "\n\n".join(message.content for message in messages)
    return "\n\n".join(f"{message.role}: {message.content}" for message in messages)


async def converse(
    service: JudgeService, asked: ConversationQuestion, *, call: Call, on_turn: OnTurn | None = None
) -> AnswerChoice:
    """Answer a chat.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded
    """
    text = shown_text(asked.messages)
    tools = "auto" if asked.tools else "off"
    needs = JudgeRequest(mode=Mode.POINTWISE, prompt=text, responses=[""], model=asked.model, tools=tools)
    async with place(service, needs, call=call) as deadline:
        rollout = await _run(service, asked, text=text, deadline=deadline, on_turn=on_turn)
    if rollout.stop_reason is StopReason.DEADLINE and not rollout.turns:
        raise DeadlineExceeded("the time for this answer was up before the model had written anything")
    return _answered(rollout)


async def _run(
    service: JudgeService, asked: ConversationQuestion, *, text: str, deadline: Deadline, on_turn: OnTurn | None
) -> Rollout:
    """No label is offered and none is forced, so that the loop ends where the model ends."""
    judge = service.judge
    profile = judge.profile
    if asked.max_tokens is not None:
        profile = profile.model_copy(update={"rollout_tokens": min(asked.max_tokens, profile.rollout_tokens)})

    async def tell(turn: Turn) -> None:
        if on_turn is not None:
            await on_turn(turn.record)

    spec = RolloutSpec(
        mode=Mode.POINTWISE,
        labels=(),
        format=judge.format,
        engine=judge.engine,
        tools=judge.tools if asked.tools else (),
        context=ToolContext(bindings={"prompt": text}),
        profile=profile,
        sampling=Sampling(max_tokens=0, temperature=asked.temperature, top_p=asked.top_p, seed=asked.seed),
        session=f"chat_{uuid.uuid4().hex}",
        max_tool_calls=asked.max_tool_calls,
        force_verdict=False,
        deadline=deadline,
        on_turn=tell,
    )
    async with judge.weights.enter():
        return await run_rollout(await judge.engine.tokenizer.encode_prompt(text), spec)


def turn_text(turn: TurnRecord) -> str:
    """A turn with what its program printed, as the model itself has it before it."""
    if turn.output is None:
        return turn.text
    opening = "" if turn.text.endswith(OUTPUT_FENCE) else f"\n{OUTPUT_FENCE}"
    return turn.text + opening + observation_text(turn.output)


def _answered(rollout: Rollout) -> AnswerChoice:
    """The last turn is the answer if no program of it was run; whatever came before it is how the model got there."""
    turns = rollout.turns
    num_thinking = len(turns) if not turns or turns[-1].result is not None else len(turns) - 1
    said = "".join(turn.completion.text for turn in turns[num_thinking:])
    num_tokens = [len(turn.completion.token_ids) for turn in turns]
    ended = rollout.stop_reason not in (StopReason.LENGTH, StopReason.TOOL_BUDGET, StopReason.DEADLINE)
    return AnswerChoice(
        content=said.removesuffix(OUTPUT_FENCE),
        reasoning="".join(turn_text(turn.record) for turn in turns[:num_thinking]),
        finish_reason="stop" if ended else "length",
        input_tokens=len(rollout.prompt_ids),
        cached_tokens=sum(turn.completion.num_cached for turn in turns),
        output_tokens=sum(num_tokens),
        reasoning_tokens=sum(num_tokens[:num_thinking]),
    )
