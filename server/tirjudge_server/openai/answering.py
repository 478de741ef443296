"""From the fields of a completion to its answers, before they have the shape of an endpoint.

What is to be judged is found, in this order, in `judge` in the body (then the messages are the prompt, unless it names
one), in a JSON object in the last user message if the header `X-Tirjudge-Request: json` says that it is one, or in one of the
judge prompts of `templates`. A chat with none of these goes through the loop as it is, if the model can chat.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from tirjudge.concurrency import gather_fail_fast
from tirjudge.http.protocol import invalid, parse_json, shown
from tirjudge.types import ChatMessage, JudgeRequest, Judgment, Text, TurnRecord
from tirjudge_server.call import Call
from tirjudge_server.coalescing import InFlightJudgment
from tirjudge_server.cost import Cost
from tirjudge_server.openai.conversation import (
    AnswerChoice,
    ConversationQuestion,
    check_model_chats,
    converse,
    turn_text,
)
from tirjudge_server.openai.forms import Form, JsonForm, json_form
from tirjudge_server.openai.templates import recognise
from tirjudge_server.openai.wire import Foreign, judge_request, refuse
from tirjudge_server.service import JudgeService
from tirjudge_web.cost import check_json
from tirjudge_web.errors import Refused

MAX_STOPS = 64
"""Most stop strings: the content is searched for each of them."""

MAX_CHOICES = 16

REQUEST_HEADER = "x-tirjudge-request"
"""`json`: the last user message is a request as JSON. Without it, such a message is text like any other: a chat that quotes a
stranger's JSON asks for no judgment."""


class StreamOptions(Foreign):
    include_usage: bool = False


class CompletionOptions(Foreign):
    """What chat and text completions have in common."""

    model: Text
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    temperature: float | None = Field(default=None, ge=0.0, le=2.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    stop: Text | Annotated[list[Text], Field(max_length=MAX_STOPS)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    judge: dict[str, Any] | None = None
    """Ours: the fields of a `JudgeRequest`, or some of them."""

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatJudging:
    """A chat that asks for judgments, one a choice."""

    requests: tuple[JudgeRequest, ...]
    form: Form


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerShape:
    """What the answers of an endpoint look like, whole and in chunks."""

    object: str
    chunk_object: str
    id_prefix: str
    choice: Callable[[AnswerChoice, int], dict[str, Any]]
    """The choice with an index, of a whole answer."""
    opening: dict[str, Any] | None
    """The choice in the first chunk; None: there is no such chunk."""
    turn: Callable[[str], dict[str, Any] | None]
    """The choice that tells of a turn; None: it is not told."""
    answer: Callable[[AnswerChoice], dict[str, Any]]
    end: Callable[[AnswerChoice], dict[str, Any]]


OnTurn = Callable[[str], Awaitable[None]]
"""Told of each turn that is not the answer itself."""


def refuse_unsupported(
    fields: Mapping[str, Any],
    *,
    harmless: Mapping[str, tuple[Any, ...]],
    hints: Mapping[str, str],
) -> None:
    """
    Args:
        fields: of a body that we do not read.
        harmless: those that would change the answer and cannot be honoured, with the values that ask for nothing.
        hints: what to do instead.

    Raises:
        Refused: one of them asks for something.
    """
    for name, values in harmless.items():
        if name in fields and fields[name] not in values:
            raise refuse(name, fields[name], hint=hints.get(name, "this server cannot honour it; leave it out"))


def says_json(header: str | None) -> bool:
    """Whether the request header says that the last user message is a request as JSON.

    Raises:
        Refused: it says something else.
    """
    if header is not None and header.strip().lower() != "json":
        message = f'{REQUEST_HEADER}: {shown(header)} given; it is "json", or left out'
        raise Refused(invalid(message, param=REQUEST_HEADER, code="invalid_value"))
    return header is not None


def interpret(
    service: JudgeService, asked: CompletionOptions, messages: Sequence[ChatMessage], *, is_json: bool = False
) -> ChatJudging | ConversationQuestion:
    """What is wanted: judgments, or the loop's own words.

    Args:
        service: judges.
        asked: the body.
        messages: the chat.
        is_json: its last user message is a request as JSON.

    Raises:
        Refused: neither can be had.
    """
    judging = judging_in(service, asked, messages, is_json=is_json)
    return _conversation(service, asked, messages) if judging is None else judging


def judging_in(
    service: JudgeService,
    asked: CompletionOptions,
    messages: Sequence[ChatMessage],
    *,
    is_json: bool,
    param: str = "messages",
) -> ChatJudging | None:
    """The judgments that are wanted; None if nothing to judge is found.

    Args:
        service: judges.
        asked: the body.
        messages: the chat.
        is_json: its last user message is a request as JSON.
        param: the field of the body that holds the messages, for a refusal.

    Raises:
        Refused: what is found makes no request, has more than one reading, or wants what no judgment has.
    """
    form, fields = _found(asked, messages, is_json=is_json, param=param)
    if fields is None:
        return None
    if asked.response_format is not None and asked.response_format.get("type") != "text":
        form = json_form(asked.response_format)
    if asked.top_p not in (None, 1.0):
        raise refuse("top_p", asked.top_p, hint="a judgment is sampled from the whole vocabulary; leave it out")
    sampled = {"temperature": asked.temperature, "seed": asked.seed, "model": asked.model}
    given = {name: value for name, value in sampled.items() if value is not None}
    first = judge_request({**given, **fields, "stream": False}, service=service)
    seeded = [first.model_copy(update={"seed": (first.seed + index) % 2**63}) for index in range(asked.n)]
    return ChatJudging(requests=tuple(seeded), form=form)


def _found(
    asked: CompletionOptions, messages: Sequence[ChatMessage], *, is_json: bool, param: str
) -> tuple[Form, dict[str, Any] | None]:
    """The form of the answer, and the fields of the request to judge; None if there is none."""
    judge = asked.judge or {}
    if "responses" in judge:
        return JsonForm(), {"prompt": [message.model_dump() for message in messages], **judge}
    last = next((message.content for message in reversed(messages) if message.role == "user"), "")
    if is_json:
        return JsonForm(), {**_json_request(last, param=param), **judge}
    instruction = "\n".join(message.content for message in messages if message.role == "system")
    recognised = recognise(last, instruction=instruction, param=param)
    if recognised is None:
        return JsonForm(), None
    return recognised.form, {**recognised.fields, **judge}


def _json_request(text: str, *, param: str) -> dict[str, Any]:
    """A request written as JSON.

    Raises:
        Refused: the text is something else, or has too many values.
    """
    check_json(text.encode(), param=param)
    try:
        value = parse_json(text.encode())
    except (ValueError, RecursionError) as error:
        raise _not_json(f"not JSON: {error}", param=param) from error
    if not isinstance(value, dict) or not isinstance(value.get("responses"), list):
        raise _not_json("no JSON object with a list `responses` in it", param=param)
    return value


def _not_json(why: str, *, param: str) -> Refused:
    message = (
        f"{param}: the header {REQUEST_HEADER} says that the last user message is a request as JSON, but it is {why}"
    )
    return Refused(invalid(message, param=param, code="invalid_value"))


def _conversation(
    service: JudgeService, asked: CompletionOptions, messages: Sequence[ChatMessage]
) -> ConversationQuestion:
    check_model_chats(service)
    if asked.response_format is not None and asked.response_format.get("type") != "text":
        hint = "only a verdict is given as JSON; ask for it in the messages instead"
        raise refuse("response_format", asked.response_format, hint=hint)
    judge = asked.judge or {}
    unfit = sorted(judge.keys() - {"tools", "max_tool_calls"})
    if unfit:
        raise refuse(f"judge.{unfit[0]}", judge[unfit[0]], hint="without `responses` there is nothing to judge")
    # Validated as the fields of a request are, since they are the same.
    options = judge_request({**judge, "mode": "pointwise", "prompt": "", "responses": [""]}, service=service)
    return ConversationQuestion(
        messages=tuple(messages),
        model=asked.model,
        tools=options.offers_tools,
        max_tool_calls=options.max_tool_calls,
        max_tokens=asked.max_tokens,
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        seed=asked.seed,
    )


async def choose(
    service: JudgeService,
    wanted: ChatJudging | ConversationQuestion,
    asked: CompletionOptions,
    *,
    call: Call,
    on_turn: OnTurn | None = None,
) -> list[AnswerChoice]:
    """`n` answers, side by side.

    Args:
        on_turn: told of the turns of a chat that is no judgment.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded
    """
    if isinstance(wanted, ChatJudging):
        judgments = await _judged(service, wanted, call=call)
        return [_from_judgment(judgment, form=wanted.form, stops=asked.stops) for judgment in judgments]
    num_chars = sum(len(message.content) for message in wanted.messages)
    service.cost_limits.check(Cost(rollouts=asked.n, chars=asked.n * num_chars), param="messages")
    seeds = [None if wanted.seed is None else (wanted.seed + index) % 2**63 for index in range(asked.n)]

    async def tell(turn: TurnRecord) -> None:
        if on_turn is not None and turn.output is not None:
            await on_turn(turn_text(turn))

    answers = [converse(service, replace(wanted, seed=seed), call=call, on_turn=tell) for seed in seeds]
    return [_cut(answer, stops=asked.stops) for answer in await gather_fail_fast(answers)]


async def complete(
    service: JudgeService,
    wanted: ChatJudging | ConversationQuestion,
    asked: CompletionOptions,
    *,
    call: Call,
    shape: AnswerShape,
) -> dict[str, Any]:
    """The whole answer.

    Raises:
        Refused, QueueFull, ...: as `choose`.
    """
    choices = await choose(service, wanted, asked, call=call)
    judgment = choices[0].judgment
    return {
        "id": f"{shape.id_prefix}{uuid.uuid4().hex}",
        "object": shape.object,
        "created": int(time.time()),
        "model": service.judge.profile.name,
        # Of the weights behind the first answer; of those that are served now, if it is no judgment.
        "system_fingerprint": service.fingerprint if judgment is None else judgment.model_version,
        "choices": [shape.choice(choice, index) for index, choice in enumerate(choices)],
        "usage": usage(choices),
    }


async def follow(
    in_flight: InFlightJudgment, *, form: Form, stops: Sequence[str], on_turn: OnTurn
) -> list[AnswerChoice]:
    """The one answer that a judgment in flight becomes, with each of its turns on the way."""

    async def tell(order: Sequence[int], turn: TurnRecord) -> None:
        await on_turn(turn_text(turn))

    return [_from_judgment(await in_flight.judgment(tell), form=form, stops=stops)]


async def _judged(service: JudgeService, wanted: ChatJudging, *, call: Call) -> list[Judgment]:
    if len(wanted.requests) == 1:
        return [await service.answer(wanted.requests[0], call=call)]
    service.cost_limits.check(sum(map(service.cost_of, wanted.requests), Cost()), param="n")
    judgments = await service.answer_all(wanted.requests, call=call)
    failures = [judgment for judgment in judgments if isinstance(judgment, Exception)]
    if failures:
        raise failures[0]
    return [judgment for judgment in judgments if isinstance(judgment, Judgment)]


def _from_judgment(judgment: Judgment, *, form: Form, stops: Sequence[str]) -> AnswerChoice:
    said, usage = form.say(judgment), judgment.usage
    choice = AnswerChoice(
        content=said.content,
        refusal=said.refusal,
        reasoning="\n".join(turn_text(turn) for rollout in judgment.rollouts for turn in rollout.turns),
        finish_reason="stop",
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.output_tokens,
        judgment=judgment,
    )
    return _cut(choice, stops=stops)


def _cut(choice: AnswerChoice, *, stops: Sequence[str]) -> AnswerChoice:
    """The choice up to the first stop string in its content."""
    content = None if choice.content is None else cut_at(choice.content, stops=stops)
    return choice if content == choice.content else replace(choice, content=content, finish_reason="stop")


def cut_at(text: str, *, stops: Sequence[str]) -> str:
    """The text up to the first stop string in it."""
    ends = [text.index(stop) for stop in stops if stop and stop in text]
    return text[: min(ends, default=len(text))]


def verdict_fields(choice: AnswerChoice) -> dict[str, Any]:
    """What a choice says beyond OpenAI's fields."""
    if choice.judgment is None:
        return {}
    return {"judgment_id": choice.judgment.id, "verdict": choice.judgment.verdict.model_dump(mode="json")}


def usage(choices: Sequence[AnswerChoice]) -> dict[str, Any]:
    """Tokens of all choices; a prompt that was read several times counts each time."""
    prompt, completion = sum(c.input_tokens for c in choices), sum(c.output_tokens for c in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(c.cached_tokens for c in choices)},
        "completion_tokens_details": {"reasoning_tokens": sum(c.reasoning_tokens for c in choices)},
    }
