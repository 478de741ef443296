"""`/v1/decisions`: questions about an input, each answered with probabilities.

Each question is one judgment: which option is right about the input. The probabilities of the answer are the probabilities
of the judge's labels. A predicate compares "true" with "false" (pairwise). A choice or a score compares its options
(pairwise for two, listwise for more, in groups if one prompt cannot hold them). The order in which the options are shown
is derived from their content.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Discriminator, Field, StrictBool, Tag, model_validator

from tirjudge.formats.texts import fill
from tirjudge.token_counts import total_of
from tirjudge.types import JudgeRequest, Mode, Text, Verdict
from tirjudge_server.call import Call, call_of
from tirjudge_server.cost import Cost, question_cost
from tirjudge_server.markers import Ambiguous, ambiguous, check_line, check_turns, line_between
from tirjudge_server.openai.bodies import DecisionAnswers
from tirjudge_server.openai.wire import Content, Foreign, judge_request, merged, receive, usage_of
from tirjudge_server.service import JudgeService
from tirjudge_web.connection import while_connected
from tirjudge_web.openapi import answers_with

DECISIONS_PATH = "/v1/decisions"
MAX_QUESTIONS = 400
"""Maximum number of questions in a request."""
TRUE, FALSE = "True. The statement holds.", "False. The statement does not hold."
"""The two options of a predicate. The model sees them."""


class PredicateQuestion(Foreign):
    """Whether a statement about the input is true."""

    type: Literal["predicate"]
    """Always `predicate`."""
    instructions: Content
    """The statement. The answer has the probability that it is true."""
    name: Text | None = None
    """Name that the answer repeats. The judge does not see it. None: no name."""


class ChoiceOption(Foreign):
    """One option of a choice."""

    value: Text | StrictBool
    """The option, as the judge sees it and as the answer repeats it. It must be unique in the question."""
    description: Text | None = None
    """Meaning of the option, which the judge sees after the value. None: the judge sees the value alone."""


class ChoiceQuestion(Foreign):
    """Which of several options is right."""

    type: Literal["choice"]
    """Always `choice`."""
    instructions: Content
    """The question."""
    choices: list[ChoiceOption] = Field(min_length=2, max_length=255)
    """The options. The answer has the probability of each."""
    name: Text | None = None
    """Name that the answer repeats. The judge does not see it. None: no name."""

    @model_validator(mode="after")
    def _choices_differ(self) -> ChoiceQuestion:
        if len({(type(option.value), option.value) for option in self.choices}) < len(self.choices):
            raise ValueError("choices: the same value given twice; each must be unique")
        return self


class DecisionLevel(Foreign):
    """One level of a score."""

    label: Text
    """Name of the level, as the judge sees it and as the answer repeats it."""
    description: Text | None = None
    """Meaning of the level, which the judge sees after the label. None: the judge sees the label alone."""


class ScoreQuestion(Foreign):
    """Which of several ordered levels is right."""

    type: Literal["score"]
    """Always `score`."""
    instructions: Content
    """The question."""
    levels: list[DecisionLevel] = Field(min_length=2, max_length=10)
    """The levels, which are numbered from 0 in this order. The score of the answer is the expected number."""
    name: Text | None = None
    """Name that the answer repeats. The judge does not see it. None: no name."""


Question = Annotated[PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]


class DecisionMessage(Foreign):
    """A message of the input."""

    type: Literal["message"] = "message"
    """Always `message`."""
    role: Literal["user", "developer", "system", "assistant"]
    """Author of the message. The judge sees it before the content, unless a user message is the whole input."""
    content: Content
    """Text, or parts that hold text, which are joined by line breaks. None: empty. Other parts, such as images, are
    refused."""


class DecisionToolCall(Foreign):
    """A tool call in the input."""

    type: Literal["function_call", "custom_tool_call"]
    """`function_call` has `arguments`, and `custom_tool_call` has `input`."""
    name: Text
    """Name of the tool."""
    call_id: Text
    """Id of the call, which the judge sees. It is not compared with the ids of outputs."""
    arguments: Text = ""
    """Arguments of the call, which the judge sees as they are."""
    input: Text = ""
    """Input of the call, which the judge sees if `arguments` is empty."""


class DecisionToolOutput(Foreign):
    """The output of a tool call in the input."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    """`function_call_output` for a `function_call`, `custom_tool_call_output` for a `custom_tool_call`."""
    call_id: Text
    """Id of the call, which the judge sees. It is not compared with the ids of calls."""
    output: Content
    """Output of the tool: text, or parts that hold text, which are joined by line breaks. None: empty. Other parts are
    refused."""


def _kind(item: Any) -> str:
    kind = item.get("type") if isinstance(item, Mapping) else None
    if kind in ("function_call", "custom_tool_call"):
        return "call"
    return "output" if kind in ("function_call_output", "custom_tool_call_output") else "message"


DecisionItem = Annotated[
    Annotated[DecisionMessage, Tag("message")]
    | Annotated[DecisionToolCall, Tag("call")]
    | Annotated[DecisionToolOutput, Tag("output")],
    Discriminator(_kind),
]


class DecisionRequest(Foreign):
    """Body of a decision request."""

    model: Text
    """Name of the served judge. Another name is refused with a 404."""
    input: Text | Annotated[list[DecisionItem], Field(min_length=1)]
    """What the questions are about: a text, or messages and tool calls."""
    questions: list[Question] = Field(min_length=1, max_length=MAX_QUESTIONS)
    """The questions. Each is one judgment. If one cannot be judged, the whole request fails."""
    judge: dict[str, Any] = Field(default_factory=dict)
    """An extension of OpenAI's format: `orders`, `votes`, `tools` and the other options of a `JudgeRequest`, for every
    question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOptions:
    """The options that the judgment of a question compares."""

    texts: tuple[str, ...]

    @property
    def mode(self) -> Mode:
        """Pairwise for two options, otherwise listwise."""
        return Mode.PAIRWISE if len(self.texts) == 2 else Mode.LISTWISE


def router(service: JudgeService, *, max_body_bytes: int) -> APIRouter:
    """Return the endpoint.

    Args:
        service: Judges the questions.
        max_body_bytes: Maximum size of a request body. A larger one is refused with 413.
    """
    routes = APIRouter()

    @routes.post(DECISIONS_PATH, responses=answers_with(DecisionAnswers))
    async def decisions(request: Request) -> Response:
        """Answer questions about an input."""
        body = await receive(request, DecisionRequest, service=service, max_bytes=max_body_bytes)
        call = call_of(request, dialect="openai.decisions")
        answer = await while_connected(request.receive, answer_decisions(service, body, call=call))
        return JSONResponse(answer)

    return routes


async def answer_decisions(service: JudgeService, body: DecisionRequest, *, call: Call) -> dict[str, Any]:
    """Return the answers to all questions, in order.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded: One
            question could not be judged. The whole request fails then, because such a question is not a refusal by the
            model.
    """
    given = input_text(body.input)
    await asyncio.to_thread(_check_one_reading, body, given=given)
    # Building the first request reports errors in `judge` before any question is judged.
    first = request_of(body, body.questions[0], given=given, service=service)
    _check_cost(body, given=given, like=first, service=service)
    requests = (request_of(body, question, given=given, service=service) for question in body.questions)
    judgments = await service.answer_all(requests, call=call)
    answers, usages = [], []
    for question, judgment in zip(body.questions, judgments, strict=True):
        if isinstance(judgment, Exception):
            raise judgment
        answers.append(answer_of(question, judgment.verdict))
        usages.append(judgment.usage)
    return {
        "model": service.judge.profile.name,
        "answers": answers,
        "usage": usage_of(
            input_tokens=total_of(usage.input_tokens for usage in usages),
            cached_tokens=total_of(usage.cached_tokens for usage in usages),
            output_tokens=total_of(usage.output_tokens for usage in usages),
        ),
    }


def _check_cost(body: DecisionRequest, *, given: str, like: JudgeRequest, service: JudgeService) -> None:
    """
    Raises:
        Refused: 413, the total cost of the questions is over the limit.
    """
    size, chars = service.judge.profile.group_size, len(_template()) + len(given)
    costs = (
        question_cost(chars + len(question.instructions), options_of(question).texts, like=like, group_size=size)
        for question in body.questions
    )
    service.cost_limits.check(sum(costs, Cost()), param="questions")


def request_of(
    body: DecisionRequest,
    question: PredicateQuestion | ChoiceQuestion | ScoreQuestion,
    *,
    given: str,
    service: JudgeService,
) -> JudgeRequest:
    """Return the request whose judgment answers one question.

    Args:
        body: The whole request.
        question: One of its questions.
        given: Its `input_text`.
        service: Judges the questions.

    Raises:
        Refused: `judge` holds an invalid option.
    """
    options = options_of(question)
    values = {"input": given, "instructions": question.instructions}
    found = {
        "mode": options.mode,
        "model": body.model,
        "prompt": fill(_template(), values),
        "responses": list(options.texts),
    }
    return judge_request(merged(body.judge, found), service=service)


def _check_one_reading(body: DecisionRequest, *, given: str) -> None:
    """Check that no text contains a separator: the template's line before the instructions, or the name of an item.

    Raises:
        Refused: A text contains one, so that the prompt is ambiguous.
    """
    instructions = (question.instructions for question in body.questions)
    try:
        check_line(line_between(_template(), "input", "instructions"), texts=[given, *instructions])
        if not isinstance(body.input, str) and _sole_user_text(body.input) is None:
            for item in body.input:
                check_turns(_item_text(item))
    except Ambiguous as error:
        raise ambiguous(error, param="input", fix="remove the marker, or reword it") from error


@cache
def _template() -> str:
    return (
        resources.files("tirjudge_server.openai")
        .joinpath("prompts", "decision.txt")
        .read_text(encoding="utf-8")
        .strip()
    )


def options_of(question: PredicateQuestion | ChoiceQuestion | ScoreQuestion) -> DecisionOptions:
    """Return the options of a question, as texts."""
    match question:
        case PredicateQuestion():
            return DecisionOptions(texts=(TRUE, FALSE))
        case ChoiceQuestion():
            # Among booleans, strings are quoted, so that `"true"` differs from `true`.
            is_text = all(isinstance(option.value, str) for option in question.choices)
            values = [
                str(option.value) if is_text else json.dumps(option.value, ensure_ascii=False)
                for option in question.choices
            ]
            texts = [
                _described(value, option.description) for value, option in zip(values, question.choices, strict=True)
            ]
        case ScoreQuestion():
            texts = [_described(level.label, level.description) for level in question.levels]
    return DecisionOptions(texts=tuple(texts))


def _described(name: str, description: str | None) -> str:
    return name if description is None else f"{name}: {description}"


def input_text(given: str | Sequence[DecisionMessage | DecisionToolCall | DecisionToolOutput]) -> str:
    """Return the input as one text. A single user message is given without its role."""
    if isinstance(given, str):
        return given
    alone = _sole_user_text(given)
    return alone if alone is not None else "\n\n".join(_item_text(item) for item in given)


def _sole_user_text(given: Sequence[DecisionMessage | DecisionToolCall | DecisionToolOutput]) -> str | None:
    """Return the text of the input if it is a single user message, otherwise None."""
    first = given[0]
    return first.content if len(given) == 1 and isinstance(first, DecisionMessage) and first.role == "user" else None


def _item_text(item: DecisionMessage | DecisionToolCall | DecisionToolOutput) -> str:
    match item:
        case DecisionMessage():
            return f"{item.role}: {item.content}"
        case DecisionToolCall():
            return f"{item.type} {item.call_id}: {item.name}({item.arguments or item.input})"
        case DecisionToolOutput():
            return f"{item.type} {item.call_id}: {item.output}"


def answer_of(question: PredicateQuestion | ChoiceQuestion | ScoreQuestion, verdict: Verdict) -> dict[str, Any]:
    """Return the answer to a question in OpenAI's format. An abstention is a refusal."""
    chances = verdict.final_probabilities
    if verdict.status == "abstained" or chances is None:
        return {"type": "refusal", "name": question.name}
    top = max(range(len(chances)), key=lambda index: chances[index])
    confidence = chances[top] * (verdict.label_mass if verdict.label_mass is not None else 1.0)
    match question:
        case PredicateQuestion():
            return {"type": "predicate", "name": question.name, "probability": chances[0]}
        case ChoiceQuestion():
            values = [option.value for option in question.choices]
            listed = [{"value": value, "probability": p} for value, p in zip(values, chances, strict=True)]
            found = {"choice": values[top], "confidence": confidence, "probabilities": listed}
        case ScoreQuestion():
            levels = enumerate(zip(question.levels, chances, strict=True))
            listed = [{"value": index, "label": level.label, "probability": p} for index, (level, p) in levels]
            expected = sum(index * p for index, p in enumerate(chances))
            found = {"score": expected, "confidence": confidence, "probabilities": listed}
    return {"type": question.type, "name": question.name, **found}
