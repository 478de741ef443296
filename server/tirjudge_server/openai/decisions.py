"""`/v1/decisions`: questions about an input, each answered with probabilities.

Every question is one judgment of which option is right about the input, so that its probabilities are those of the
judge's labels: a predicate compares "true" with "false" (pairwise), a choice or a score its options (pairwise for two,
listwise for more; more than a prompt holds in groups). Options are shown in an order drawn from their content.
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
from tirjudge.types import JudgeRequest, Mode, Text, Verdict
from tirjudge_server.call import Call, call_of
from tirjudge_server.cost import Cost, question_cost
from tirjudge_server.markers import Ambiguous, ambiguous, check_line, check_turns, line_between
from tirjudge_server.openai.wire import Content, Foreign, judge_request, merged, receive, usage_of
from tirjudge_server.service import JudgeService
from tirjudge_web.connection import while_connected

DECISIONS_PATH = "/v1/decisions"
MAX_QUESTIONS = 400
TRUE, FALSE = "True. The statement holds.", "False. The statement does not hold."


class PredicateQuestion(Foreign):
    type: Literal["predicate"]
    instructions: Content
    name: Text | None = None


class ChoiceOption(Foreign):
    value: Text | StrictBool
    description: Text | None = None


class ChoiceQuestion(Foreign):
    type: Literal["choice"]
    instructions: Content
    choices: list[ChoiceOption] = Field(min_length=2, max_length=255)
    name: Text | None = None

    @model_validator(mode="after")
    def _choices_differ(self) -> ChoiceQuestion:
        if len({(type(option.value), option.value) for option in self.choices}) < len(self.choices):
            raise ValueError("choices: the same value given twice; each must be unique")
        return self


class DecisionLevel(Foreign):
    label: Text
    description: Text | None = None


class ScoreQuestion(Foreign):
    type: Literal["score"]
    instructions: Content
    levels: list[DecisionLevel] = Field(min_length=2, max_length=10)
    name: Text | None = None


Question = Annotated[PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]


class DecisionMessage(Foreign):
    type: Literal["message"] = "message"
    role: Literal["user", "developer", "system", "assistant"]
    content: Content


class DecisionToolCall(Foreign):
    type: Literal["function_call", "custom_tool_call"]
    name: Text
    call_id: Text
    arguments: Text = ""
    input: Text = ""


class DecisionToolOutput(Foreign):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: Text
    output: Content


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
    model: Text
    input: Text | Annotated[list[DecisionItem], Field(min_length=1)]
    questions: list[Question] = Field(min_length=1, max_length=MAX_QUESTIONS)
    judge: dict[str, Any] = Field(default_factory=dict)
    """Ours: `orders`, `votes`, `tools` and the other options of a `JudgeRequest`, for every question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOptions:
    """What a question's judgment chooses from."""

    texts: tuple[str, ...]

    @property
    def mode(self) -> Mode:
        return Mode.PAIRWISE if len(self.texts) == 2 else Mode.LISTWISE


def router(service: JudgeService, *, max_body_bytes: int) -> APIRouter:
    """The endpoint.

    Args:
        service: judges.
        max_body_bytes: a larger request is refused.
    """
    routes = APIRouter()

    @routes.post(DECISIONS_PATH)
    async def decisions(request: Request) -> Response:
        """Answer questions about an input."""
        asked = await receive(request, DecisionRequest, service=service, max_bytes=max_body_bytes)
        call = call_of(request, dialect="openai.decisions")
        answer = await while_connected(request.receive, answer_decisions(service, asked, call=call))
        return JSONResponse(answer)

    return routes


async def answer_decisions(service: JudgeService, asked: DecisionRequest, *, call: Call) -> dict[str, Any]:
    """The answers to all questions, in order.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded: a
            question that could not be judged is no refusal by the model, so that none is answered.
    """
    given = input_text(asked.input)
    await asyncio.to_thread(_check_one_reading, asked, given=given)
    # What is wrong with `judge` is told before anything is judged.
    first = request_of(asked, asked.questions[0], given=given, service=service)
    _check_cost(asked, given=given, like=first, service=service)
    requests = (request_of(asked, question, given=given, service=service) for question in asked.questions)
    judgments = await service.answer_all(requests, call=call)
    answers, usages = [], []
    for question, judgment in zip(asked.questions, judgments, strict=True):
        if isinstance(judgment, Exception):
            raise judgment
        answers.append(answer_of(question, judgment.verdict))
        usages.append(judgment.usage)
    return {
        "model": service.judge.profile.name,
        "answers": answers,
        "usage": usage_of(
            input_tokens=sum(usage.input_tokens for usage in usages),
            cached_tokens=sum(usage.cached_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
        ),
    }


def _check_cost(asked: DecisionRequest, *, given: str, like: JudgeRequest, service: JudgeService) -> None:
    """
    Raises:
        Refused: 413, the questions cost too much together.
    """
    size, chars = service.judge.profile.group_size, len(_template()) + len(given)
    costs = (
        question_cost(chars + len(question.instructions), options_of(question).texts, like=like, group_size=size)
        for question in asked.questions
    )
    service.cost_limits.check(sum(costs, Cost()), param="questions")


def request_of(
    asked: DecisionRequest,
    question: PredicateQuestion | ChoiceQuestion | ScoreQuestion,
    *,
    given: str,
    service: JudgeService,
) -> JudgeRequest:
    """The judgment that answers one question.

    Args:
        asked: the whole request.
        question: one of its questions.
        given: its `input_text`.
        service: judges.

    Raises:
        Refused: `judge` holds no options of a request.
    """
    options = options_of(question)
    values = {"input": given, "instructions": question.instructions}
    found = {
        "mode": options.mode,
        "model": asked.model,
        "prompt": fill(_template(), values),
        "responses": list(options.texts),
    }
    return judge_request(merged(asked.judge, found), service=service)


def _check_one_reading(asked: DecisionRequest, *, given: str) -> None:
    """A text must not spell what stands between the texts: the line before the instructions, or the name of another item.

    Raises:
        Refused: one does.
    """
    instructions = (question.instructions for question in asked.questions)
    try:
        check_line(line_between(_template(), "input", "instructions"), texts=[given, *instructions])
        if not isinstance(asked.input, str) and _sole_user_text(asked.input) is None:
            for item in asked.input:
                check_turns(_item_text(item))
    except Ambiguous as error:
        raise ambiguous(error, param="input", fix="leave the marker out, or write it in other words") from error


@cache
def _template() -> str:
    return (
        resources.files("tirjudge_server.openai")
        .joinpath("prompts", "decision.txt")
        .read_text(encoding="utf-8")
        .strip()
    )


def options_of(question: PredicateQuestion | ChoiceQuestion | ScoreQuestion) -> DecisionOptions:
    match question:
        case PredicateQuestion():
            return DecisionOptions(texts=(TRUE, FALSE))
        case ChoiceQuestion():
            # Where booleans stand beside strings, these are quoted: `"true"` is not `true`.
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
    """The input as one text; a single user message stands there without its role."""
    if isinstance(given, str):
        return given
    alone = _sole_user_text(given)
    return alone if alone is not None else "\n\n".join(_item_text(item) for item in given)


def _sole_user_text(given: Sequence[DecisionMessage | DecisionToolCall | DecisionToolOutput]) -> str | None:
    """The text of a single user message; None if the input is anything else."""
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
    """What a verdict says to a question; an abstention is a refusal."""
    chances = verdict.probabilities
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
