"""Chats that ask for no judgment. The rollout loop runs, with Python, and the last turn is the answer.

Models that were trained on the judge format refuse such chats, because they answer every prompt with a verdict.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tirjudge.deadline import Deadline
from tirjudge.errors import DeadlineExceeded
from tirjudge.formats.blocks import OUTPUT_FENCE, observation_text
from tirjudge.http.protocol import invalid
from tirjudge.loop import RolloutSpec, run_rollout
from tirjudge.token_counts import counts_of
from tirjudge.tools.base import ToolContext
from tirjudge.types import ChatMessage, JudgeRequest, Judgment, Mode, Rollout, Sampling, StopReason, Turn, TurnRecord
from tirjudge_server.call import Call
from tirjudge_server.openai.capacity import place
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import Refused

OnTurn = Callable[[TurnRecord], Awaitable[None]]
"""Called with each finished turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationQuestion:
    """One chat to answer."""

    messages: tuple[ChatMessage, ...]
    model: str | None
    """Requested model. None: the served one."""
    tools: bool
    """Whether the model may run Python."""
    max_tool_calls: int
    max_tokens: int | None
    """Maximum number of tokens that the model writes in all turns together. None: the limit of its profile."""
    temperature: float
    top_p: float
    seed: int | None
    """Seed of the sampling. None: not reproducible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChoice:
    """One choice of an answer, before an endpoint formats it."""

    content: str | None
    """Text of the answer. None: there is no text, and `refusal` has the reason."""
    refusal: str | None = None
    """Reason why there is no content. None: the answer has content."""
    reasoning: str
    """Text of the turns before the answer, with their programs and the programs' output."""
    finish_reason: Literal["stop", "length", "content_filter"]
    input_tokens: int | None
    """None, as in the other counts: the endpoint of the model does not report them."""
    cached_tokens: int | None
    """Input tokens that the engine read from its prefix cache."""
    output_tokens: int | None
    """All tokens that the model wrote, reasoning included."""
    reasoning_tokens: int | None
    judgment: Judgment | None = None
    """The judgment. None: this is a conversation."""


def check_model_chats(service: JudgeService) -> None:
    """Check that the model can answer a chat that asks for no judgment.

    Raises:
        Refused: The model was trained on the judge format.
    """
    if not service.judge.profile.was_trained_on_format:
        return
    message = (
        "messages: nothing to judge found, and this model was trained to judge, not to chat; send "
        '`judge`: {"mode", "responses"} in the body, or one of the prompts listed in docs/openai.md, or a request as JSON '
        "in the last user message with the header X-Tirjudge-Request: json"
    )
    raise Refused(invalid(message, param="messages", code="not_a_judgment"))


def shown_text(messages: Sequence[ChatMessage]) -> str:
    """Return the chat as the text of one user message, because engines render a single user message.

    System messages are put before a single user message. Longer conversations name the role of each message.
    """
    if all(message.role == "system" for message in messages[:-1]) and messages[-1].role == "user":
        return "\n\n".join(message.content for message in messages)
    return "\n\n".join(f"{message.role}: {message.content}" for message in messages)


async def converse(
    service: JudgeService, question: ConversationQuestion, *, call: Call, on_turn: OnTurn | None = None
) -> AnswerChoice:
    """Answer a chat.

    Args:
        service: Runs the model.
        question: The chat.
        call: The call to charge and trace.
        on_turn: Called with each finished turn.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded
    """
    if not service.judge.engine.facts.generates:
        message = "the judge of this server writes no text, so it cannot chat; send a request for a judgment"
        raise Refused(invalid(message, param="model", code="no_model"))
    text = shown_text(question.messages)
    tools = "auto" if question.tools else "off"
    needs = JudgeRequest(mode=Mode.POINTWISE, prompt=text, responses=[""], model=question.model, tools=tools)
    async with place(service, needs, call=call) as deadline:
        rollout = await _run(service, question, text=text, deadline=deadline, on_turn=on_turn)
    if rollout.stop_reason is StopReason.DEADLINE and not rollout.turns:
        raise DeadlineExceeded("the deadline of this request passed before the model had written anything")
    return _answered(rollout)


async def _run(
    service: JudgeService, question: ConversationQuestion, *, text: str, deadline: Deadline, on_turn: OnTurn | None
) -> Rollout:
    """Run the rollout loop without labels and without a forced verdict. It ends when the model ends its answer."""
    judge = service.judge
    profile = judge.profile
    if question.max_tokens is not None:
        profile = profile.model_copy(update={"rollout_tokens": min(question.max_tokens, profile.rollout_tokens)})

    async def report(turn: Turn) -> None:
        if on_turn is not None:
            await on_turn(turn.record)

    spec = RolloutSpec(
        mode=Mode.POINTWISE,
        labels=(),
        format=judge.format,
        engine=judge.engine,
        tools=judge.tools if question.tools else (),
        context=ToolContext(bindings={"prompt": text}),
        profile=profile,
        sampling=Sampling(max_tokens=0, temperature=question.temperature, top_p=question.top_p, seed=question.seed),
        session=f"chat_{uuid.uuid4().hex}",
        max_tool_calls=question.max_tool_calls,
        force_verdict=False,
        deadline=deadline,
        on_turn=report,
    )
    async with judge.weights.enter():
        return await run_rollout(await judge.engine.tokenizer.encode_prompt(text), spec)


def turn_text(turn: TurnRecord) -> str:
    """Return the text of a turn, followed by the output of its program in the form that the model reads."""
    if turn.output is None:
        return turn.text
    opening = "" if turn.text.endswith(OUTPUT_FENCE) else f"\n{OUTPUT_FENCE}"
    return turn.text + opening + observation_text(turn.output)


def _answered(rollout: Rollout) -> AnswerChoice:
    """Return the answer of a rollout: its last turn, unless that turn ran a program. The other turns are the reasoning."""
    turns = rollout.turns
    num_thinking = len(turns) if not turns or turns[-1].result is not None else len(turns) - 1
    said = "".join(turn.completion.text for turn in turns[num_thinking:])
    thoughts = replace(rollout, turns=turns[:num_thinking])
    counts = counts_of([rollout])
    ended = rollout.stop_reason not in (StopReason.LENGTH, StopReason.TOOL_BUDGET, StopReason.DEADLINE)
    is_filtered = rollout.stop_reason is StopReason.CONTENT_FILTER
    return AnswerChoice(
        content=said.removesuffix(OUTPUT_FENCE),
        reasoning="".join(turn_text(turn.record) for turn in turns[:num_thinking]),
        finish_reason="content_filter" if is_filtered else "stop" if ended else "length",
        input_tokens=counts.prompt,
        cached_tokens=counts.cached,
        output_tokens=counts.completion,
        reasoning_tokens=counts_of([thoughts]).completion,
    )
