"""Turn the body of a chat or text completion into judgments, and judgments into the choices of an answer.

The request to judge is searched for in this order:

1. `judge` in the body. The messages are the prompt, unless `judge` names one.
2. A JSON object in the last user message, if the header is `X-Tirjudge-Request: json`.
3. One of the judge prompts that `templates` reads.

A chat without a request to judge is answered as a conversation, if the model can chat.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field, StrictBool

from tirjudge.concurrency import gather_fail_fast
from tirjudge.http.protocol import invalid, parse_json, shown
from tirjudge.token_counts import total_of
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
from tirjudge_server.openai.own_words import check_rubric, own_rubrics
from tirjudge_server.openai.templates import recognise
from tirjudge_server.openai.wire import Foreign, judge_request, refuse
from tirjudge_server.service import JudgeService
from tirjudge_web.cost import check_json
from tirjudge_web.errors import Refused

MAX_STOPS = 64
"""Maximum number of stop strings. The content is searched for each of them."""

MAX_CHOICES = 16
"""Maximum value of `n`."""

REQUEST_HEADER = "x-tirjudge-request"
"""Header with the value `json`: the last user message is a request as JSON. Without the header such a message is plain text,
so that a chat that quotes JSON from an untrusted source does not trigger a judgment."""

UNSUPPORTED_SAMPLING: Mapping[str, tuple[Any, ...]] = {
    "logit_bias": (None, {}),
    "frequency_penalty": (None, 0, 0.0),
    "presence_penalty": (None, 0, 0.0),
}
"""Sampling options that no endpoint supports -> values that are accepted because they have no effect."""


class StreamOptions(Foreign):
    """OpenAI's `stream_options`."""

    include_usage: StrictBool = False
    """Whether the last chunk before `[DONE]` has the token counts in `usage`."""


class CompletionOptions(Foreign):
    """Fields that chat and text completions share."""

    model: Text
    """Name of the served judge. Another name is refused with a 404."""
    n: int = Field(default=1, ge=1, le=MAX_CHOICES, strict=True)
    """Number of choices. Judgments have consecutive seeds. A stream has one choice."""
    temperature: float | None = Field(default=None, ge=0.0, le=2.0, strict=True)
    """Sampling temperature. None: 1 for a conversation; for a judgment, the default of a `JudgeRequest`."""
    top_p: float | None = Field(default=None, gt=0.0, le=1.0, strict=True)
    """Nucleus sampling mass of a conversation. None: 1, the whole vocabulary. For a judgment, a value other than 1 is
    refused."""
    max_tokens: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Ignored for a judgment, and thus for every text completion."""
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] | None = None
    """Seed of the sampling, and of the response order of a judgment. Each further choice adds 1. None: 0 for a
    judgment; a conversation is then not reproducible."""
    stop: Text | Annotated[list[Text], Field(max_length=MAX_STOPS)] | None = None
    """One or more strings. The content is cut before the first of them that occurs. They do not stop the model. Empty
    strings are ignored."""
    stream: StrictBool = False
    """Whether to send the answer as server-sent events. A chat sends each turn when it ends, then the content. A text
    completion sends the content only. Refused in a batch."""
    stream_options: StreamOptions | None = None
    """Options of a stream. Ignored without `stream`."""
    response_format: dict[str, Any] | None = None
    """Form of the content. None or the type `text`: the form that the judge prompt names, otherwise the verdict as
    JSON. `json_schema`: a JSON object with the properties of the schema, such as `label`, `score` or `reasoning`.
    Another type, such as `json_object`: the verdict as JSON. For a conversation, types other than `text` are
    refused."""
    judge: dict[str, Any] | None = None
    """An extension of OpenAI's format: all or some fields of a `JudgeRequest`. For a judgment, they take precedence over
    `model`, `temperature` and `seed`. For a conversation, only `tools` and `max_tool_calls` are accepted."""

    @property
    def token_limit(self) -> int | None:
        """Maximum number of tokens that the model writes in a conversation. None: the limit of the model's profile."""
        return self.max_tokens

    @property
    def stops(self) -> list[str]:
        """The stop strings."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatJudging:
    """A chat that asks for judgments."""

    requests: tuple[JudgeRequest, ...]
    """One request per choice."""
    form: Form
    """Form of the content of each choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerShape:
    """The answer format of one endpoint: the fields that are not the same for chat and text completions.

    A whole answer is one JSON object; a streamed answer consists of chunks. `choice_fields` adds the fields that all choices
    share.
    """

    object: str
    """`object` of a whole answer."""
    chunk_object: str
    """`object` of a chunk."""
    id_prefix: str
    """Beginning of the answer's id."""
    whole: Callable[[AnswerChoice], dict[str, Any]]
    """Returns the fields of a choice in a whole answer."""
    opening: dict[str, Any] | None
    """Fields of the choice in the first chunk. None: no opening chunk."""
    turn: Callable[[str], dict[str, Any] | None]
    """Returns the fields of the choice in the chunk for one turn. None: no chunk for turns."""
    answer: Callable[[AnswerChoice], dict[str, Any]]
    """Returns the fields of the choice in the chunk with the answer."""
    end: dict[str, Any]
    """Fields of the choice in the last chunk."""


OnTurn = Callable[[str], Awaitable[None]]
"""Called with the text of each turn that is not the answer itself."""


def choice_fields(fields: Mapping[str, Any], *, index: int = 0, ended: AnswerChoice | None = None) -> dict[str, Any]:
    """Return a choice of an answer or of a chunk.

    Args:
        fields: The endpoint's own fields, from its `AnswerShape`.
        index: Index of the choice.
        ended: The finished choice, for its finish reason and verdict. None: more chunks of the choice follow.
    """
    return {
        "index": index,
        **fields,
        "logprobs": None,
        "finish_reason": None if ended is None else ended.finish_reason,
        **({} if ended is None else verdict_fields(ended)),
    }


def refuse_unsupported(
    fields: Mapping[str, Any],
    *,
    neutral_values: Mapping[str, tuple[Any, ...]],
    hints: Mapping[str, str],
) -> None:
    """Refuse a body that uses an unsupported field.

    Args:
        fields: Fields of the body that its model does not declare.
        neutral_values: Unsupported fields, each with the values that do not change the answer and are accepted.
        hints: Field -> advice for the error message.

    Raises:
        Refused: An unsupported field has an unsupported value.
    """
    for name, values in neutral_values.items():
        if name in fields and fields[name] not in values:
            raise refuse(name, fields[name], hint=hints.get(name, "this server does not support it; leave it out"))


def announces_json(header: str | None) -> bool:
    """Whether the header announces a request as JSON in the last user message.

    Args:
        header: Value of `X-Tirjudge-Request`. None: the header is absent.

    Raises:
        Refused: The value is not `json`.
    """
    if header is not None and header.strip().lower() != "json":
        message = f'{REQUEST_HEADER}: {shown(header)} given; expected: "json", or no such header'
        raise Refused(invalid(message, param=REQUEST_HEADER, code="invalid_value"))
    return header is not None


def interpret(
    service: JudgeService, body: CompletionOptions, messages: Sequence[ChatMessage], *, is_json: bool = False
) -> ChatJudging | ConversationQuestion:
    """Decide whether a chat asks for judgments or for a conversation.

    Args:
        service: Judges the requests.
        body: The body.
        messages: The chat.
        is_json: Whether the last user message is a request as JSON.

    Raises:
        Refused: The chat has no request to judge and the model cannot chat, or a field is invalid.
    """
    judging = judging_in(service, body, messages, is_json=is_json)
    return _conversation(service, body, messages) if judging is None else judging


def judging_in(
    service: JudgeService,
    body: CompletionOptions,
    messages: Sequence[ChatMessage],
    *,
    is_json: bool,
    param: str = "messages",
) -> ChatJudging | None:
    """Return the judgments that a chat asks for; None if the chat has no request to judge.

    Args:
        service: Judges the requests.
        body: The body.
        messages: The chat.
        is_json: Whether the last user message is a request as JSON.
        param: Field of the body that holds the messages, for error messages.

    Raises:
        Refused: The request is invalid, the prompt is ambiguous, or a field is not supported for judgments.
    """
    format = service.judge.format
    form, fields = _found(body, messages, is_json=is_json, param=param)
    if fields is None:
        return None
    if fields.get("rubric") in own_rubrics(format):
        fields = {name: value for name, value in fields.items() if name != "rubric"}
    if body.response_format is not None and body.response_format.get("type") != "text":
        form = json_form(body.response_format)
    if body.top_p not in (None, 1.0):
        raise refuse("top_p", body.top_p, hint="a judgment is sampled from the whole vocabulary; leave it out")
    sampled = {"temperature": body.temperature, "seed": body.seed, "model": body.model}
    given = {name: value for name, value in sampled.items() if value is not None}
    first = judge_request({**given, **fields, "stream": False}, service=service)
    if not is_json and "rubric" not in (body.judge or {}):
        check_rubric(first, format=format, param=param)
    seeded = [first.model_copy(update={"seed": (first.seed + index) % 2**63}) for index in range(body.n)]
    return ChatJudging(requests=tuple(seeded), form=form)


def _found(
    body: CompletionOptions, messages: Sequence[ChatMessage], *, is_json: bool, param: str
) -> tuple[Form, dict[str, Any] | None]:
    """Return the form of the answer and the fields of the request to judge. The fields are None without a request."""
    judge = body.judge or {}
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
    """Parse a request written as JSON.

    Raises:
        Refused: The text is not a JSON object with a list `responses`, or holds too many values.
    """
    check_json(text.encode(), param=param)
    try:
        value = parse_json(text.encode())
    except (ValueError, RecursionError) as error:
        raise _not_json(f"not JSON: {error}", param=param) from error
    if not isinstance(value, dict) or not isinstance(value.get("responses"), list):
        raise _not_json("not a JSON object with a list `responses`", param=param)
    return value


def _not_json(why: str, *, param: str) -> Refused:
    message = (
        f"{param}: the header {REQUEST_HEADER} says that the last user message is a request as JSON, but it is {why}"
    )
    return Refused(invalid(message, param=param, code="invalid_value"))


def _conversation(
    service: JudgeService, body: CompletionOptions, messages: Sequence[ChatMessage]
) -> ConversationQuestion:
    check_model_chats(service)
    if body.response_format is not None and body.response_format.get("type") != "text":
        hint = "only verdicts can be returned as JSON; ask for JSON in the messages instead"
        raise refuse("response_format", body.response_format, hint=hint)
    judge = body.judge or {}
    unfit = sorted(judge.keys() - {"tools", "max_tool_calls"})
    if unfit:
        raise refuse(f"judge.{unfit[0]}", judge[unfit[0]], hint="without `responses` there is nothing to judge")
    # `tools` and `max_tool_calls` are validated as fields of a request.
    options = judge_request({**judge, "mode": "pointwise", "prompt": "", "responses": [""]}, service=service)
    return ConversationQuestion(
        messages=tuple(messages),
        model=body.model,
        tools=options.offers_tools,
        max_tool_calls=options.max_tool_calls,
        max_tokens=body.token_limit,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=body.seed,
    )


async def choose(
    service: JudgeService,
    wanted: ChatJudging | ConversationQuestion,
    body: CompletionOptions,
    *,
    call: Call,
    on_turn: OnTurn | None = None,
) -> list[AnswerChoice]:
    """Compute the `n` choices concurrently.

    Args:
        service: Judges the requests.
        wanted: The judgments or the conversation.
        body: The body.
        call: The call to charge and trace.
        on_turn: Called with each turn of a conversation. Not called for judgments.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded
    """
    if isinstance(wanted, ChatJudging):
        judgments = await _judged(service, wanted, call=call)
        return [_from_judgment(judgment, form=wanted.form, stops=body.stops) for judgment in judgments]
    num_chars = sum(len(message.content) for message in wanted.messages)
    service.cost_limits.check(Cost(rollouts=body.n, chars=body.n * num_chars), param="messages")
    seeds = [None if wanted.seed is None else (wanted.seed + index) % 2**63 for index in range(body.n)]

    async def report(turn: TurnRecord) -> None:
        if on_turn is not None and turn.output is not None:
            await on_turn(turn_text(turn))

    answers = [converse(service, replace(wanted, seed=seed), call=call, on_turn=report) for seed in seeds]
    return [_cut(answer, stops=body.stops) for answer in await gather_fail_fast(answers)]


async def complete(
    service: JudgeService,
    wanted: ChatJudging | ConversationQuestion,
    body: CompletionOptions,
    *,
    call: Call,
    shape: AnswerShape,
) -> dict[str, Any]:
    """Return the whole answer.

    Raises:
        Refused, QueueFull, ...: See `choose`.
    """
    choices = await choose(service, wanted, body, call=call)
    judgment = choices[0].judgment
    return {
        "id": f"{shape.id_prefix}{uuid.uuid4().hex}",
        "object": shape.object,
        "created": int(time.time()),
        "model": service.judge.profile.name,
        # Version of the weights that made the first judgment; for a conversation, of the weights served now.
        "system_fingerprint": service.fingerprint if judgment is None else judgment.model_version,
        "choices": [
            choice_fields(shape.whole(choice), index=index, ended=choice) for index, choice in enumerate(choices)
        ],
        "usage": usage(choices),
    }


async def follow(
    in_flight: InFlightJudgment, *, form: Form, stops: Sequence[str], on_turn: OnTurn
) -> list[AnswerChoice]:
    """Wait for a judgment in flight and return its one choice.

    Args:
        in_flight: The judgment.
        form: Form of the content.
        stops: Stop strings.
        on_turn: Called with the text of each turn.
    """

    async def report(order: Sequence[int], turn: TurnRecord) -> None:
        await on_turn(turn_text(turn))

    return [_from_judgment(await in_flight.judgment(report), form=form, stops=stops)]


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
    formatted, usage = form.write(judgment), judgment.usage
    choice = AnswerChoice(
        content=formatted.content,
        refusal=formatted.refusal,
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
    """Return the choice with its content cut at the first stop string."""
    content = None if choice.content is None else cut_at(choice.content, stops=stops)
    return choice if content == choice.content else replace(choice, content=content, finish_reason="stop")


def cut_at(text: str, *, stops: Sequence[str]) -> str:
    """Return the text before the first stop string in it."""
    ends = [text.index(stop) for stop in stops if stop and stop in text]
    return text[: min(ends, default=len(text))]


def verdict_fields(choice: AnswerChoice) -> dict[str, Any]:
    """Return the fields that extend OpenAI's format: judgment id and verdict. Empty for a conversation."""
    if choice.judgment is None:
        return {}
    return {"judgment_id": choice.judgment.id, "verdict": choice.judgment.verdict.model_dump(mode="json")}


def usage(choices: Sequence[AnswerChoice]) -> dict[str, Any] | None:
    """Return the token counts of all choices; None if the endpoint of the model reports none. A prompt that was read
    several times counts each time."""
    prompt, completion = total_of(c.input_tokens for c in choices), total_of(c.output_tokens for c in choices)
    if prompt is None or completion is None:
        return None
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": total_of(c.cached_tokens for c in choices)},
        "completion_tokens_details": {"reasoning_tokens": total_of(c.reasoning_tokens for c in choices)},
    }
