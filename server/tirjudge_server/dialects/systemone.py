"""System One: `POST /v1/systemone`, named questions about a state. Each question is one judgment over its possible answers.

The protocol has no answer type for an abstention. An answer of type `refusal`, as in OpenAI's Decisions, is skipped by the
client, which ignores unknown types. If every question failed because of the server, the response is an HTTP error.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from tirjudge.formats.texts import fill
from tirjudge.types import JudgeRequest, Judgment, Mode, Text
from tirjudge_server.cost import Cost, question_cost
from tirjudge_server.dialects.base import Dialect, DialectEndpoint
from tirjudge_server.dialects.bodies import ForeignRequest, text_of
from tirjudge_server.dialects.context import DialectContext
from tirjudge_server.failure import FailureRow, FailureStyle, MissingScore, missing_in
from tirjudge_server.markers import Ambiguous, check_line, line_between
from tirjudge_server.scoring import ResponseGroup, ResponseScore, failed, judge_request, no_score

MAX_QUESTIONS = 400
"""Maximum number of questions in a request."""

MAX_ANSWERS = 255
"""Maximum number of possible answers to a question."""

Content = Text | dict[str, Any] | list[Any]
"""A text, or JSON that is shown to the judge as text."""

YES, NO = "Yes", "No"


class SystemOneOutcomes(ForeignRequest):
    """Descriptions of the two answers to a yes-or-no question."""

    true: Content | None = None
    """Description of the answer yes, which the judge sees. None or empty: none."""
    false: Content | None = None
    """Description of the answer no, which the judge sees. None or empty: none."""


class SystemOneNoul(ForeignRequest):
    """A yes-or-no question."""

    type: Literal["noul"]
    """Always `noul`."""
    instructions: Content | None = None
    """The question, or a statement. The answer has the probability of yes. None: empty."""
    criteria: SystemOneOutcomes | None = None
    """Descriptions of yes and no. None: none."""


class SystemOneChoice(ForeignRequest):
    """A question whose answer is one of several names."""

    type: Literal["choice"]
    """Always `choice`."""
    instructions: Content | None = None
    """The question. None: empty."""
    criteria: dict[Text, Content | None] = Field(min_length=1, max_length=MAX_ANSWERS)
    """Name of each possible answer -> its description, which the judge sees. None or empty: no description. A single
    name is the answer without a judgment."""


class SystemOneScore(ForeignRequest):
    """A question whose answer is one of several levels, numbered from 0."""

    type: Literal["score"]
    """Always `score`."""
    instructions: Content | None = None
    """The question. None: empty."""
    criteria: list[Content] = Field(min_length=1, max_length=MAX_ANSWERS)
    """Descriptions of the levels, from level 0. The score of the answer is the expected level. A single level is the
    answer without a judgment."""


Question = Annotated[SystemOneNoul | SystemOneChoice | SystemOneScore, Field(discriminator="type")]


class SystemOne(ForeignRequest):
    """Questions about a state."""

    state: Content
    """The text that the questions are about."""
    questions: dict[Text, Question] = Field(min_length=1, max_length=MAX_QUESTIONS)
    """Name -> question."""
    model: Text | None = None
    """Ignored: a server has one judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The judge's probabilities of the answers to one question."""

    probabilities: Sequence[float]
    label_mass: float
    """Total probability of the answers' labels."""

    @property
    def top(self) -> int:
        """Index of the most probable answer."""
        return max(range(len(self.probabilities)), key=lambda index: self.probabilities[index])

    @property
    def confidence(self) -> float:
        """Probability of the most probable answer, times `label_mass`."""
        return self.probabilities[self.top] * self.label_mass


CERTAIN = _Found(probabilities=(1.0,), label_mass=1.0)
"""The result of a question with a single possible answer."""


async def reply(asked: SystemOne, context: DialectContext) -> dict[str, Any]:
    """Answer all questions, each with one judgment."""
    state, questions = text_of(asked.state) or "", list(asked.questions.values())
    known = await asyncio.to_thread(_known, questions, state=state)
    open_ones = [question for question, answer in zip(questions, known, strict=True) if answer is None]
    if open_ones:
        _check_cost(open_ones, state=state, context=context)
    answered = iter(await context.batch.ask_all([partial(_request, state, one, context=context) for one in open_ones]))
    found = [_found(next(answered)) if answer is None else answer for answer in known]
    context.note([ResponseScore(value=one.confidence) if isinstance(one, _Found) else one for one in found])
    answers = zip(asked.questions.items(), found, strict=True)
    return {
        "id": f"sysone-{uuid.uuid4().hex}",
        "object": "systemone",
        "created": int(time.time()),
        "model": context.model,
        "answers": {name: _answer(question, one) for (name, question), one in answers},
        "usage": {"input_tokens": context.batch.input_tokens, "output_tokens": context.batch.output_tokens},
    }


@cache
def _template() -> str:
    return resources.files("tirjudge_server.dialects").joinpath("systemone.txt").read_text(encoding="utf-8").strip()


def _known(
    questions: Sequence[SystemOneNoul | SystemOneChoice | SystemOneScore], *, state: str
) -> list[_Found | ResponseScore | None]:
    """The result of each question that needs no judgment, because it has one answer or is ambiguous; None: not known."""
    unreadable = _unreadable(state)
    return [
        CERTAIN if len(_texts(question)) == 1 else unreadable or _unreadable(text_of(question.instructions) or "")
        for question in questions
    ]


def _unreadable(text: str) -> ResponseScore | None:
    try:
        check_line(line_between(_template(), "state", "instructions"), texts=[text])
    except Ambiguous as error:
        return no_score(MissingScore.UNREADABLE, reason=str(error))
    return None


def _check_cost(
    questions: Sequence[SystemOneNoul | SystemOneChoice | SystemOneScore], *, state: str, context: DialectContext
) -> None:
    """Check the total cost of the questions.

    Raises:
        Refused: 413, the total cost exceeds a limit.
    """
    size, like = context.batch.service.judge.profile.group_size, _request(state, questions[0], context=context)
    costs = (
        question_cost(
            len(_template()) + len(state) + len(text_of(question.instructions) or ""),
            _texts(question),
            like=like,
            group_size=size,
        )
        for question in questions
    )
    context.cost_limits.check(sum(costs, Cost()), param="questions")


def _request(
    state: str, question: SystemOneNoul | SystemOneChoice | SystemOneScore, *, context: DialectContext
) -> JudgeRequest:
    """The judge request for a question with several possible answers."""
    texts = _texts(question)
    values = {"state": state, "instructions": text_of(question.instructions) or ""}
    group = ResponseGroup(prompt=fill(_template(), values), responses=tuple(texts))
    mode = Mode.PAIRWISE if len(texts) == 2 else Mode.LISTWISE
    return judge_request(group, mode=mode, responses=texts, scoring=context.scoring)


def _texts(question: SystemOneNoul | SystemOneChoice | SystemOneScore) -> list[str]:
    """The possible answers, as texts for the judge."""
    match question:
        case SystemOneNoul():
            criteria = question.criteria or SystemOneOutcomes()
            return [_described(YES, criteria.true), _described(NO, criteria.false)]
        case SystemOneChoice():
            return [_described(name, description) for name, description in question.criteria.items()]
        case SystemOneScore():
            return [_described(str(level), description) for level, description in enumerate(question.criteria)]


def _described(name: str, description: Content | None) -> str:
    text = text_of(description)
    return name if text is None else f"{name}: {text}"


def _found(answer: Judgment | Exception) -> _Found | ResponseScore:
    """The probabilities from a judgment, or a missing score."""
    if isinstance(answer, Exception):
        return failed(answer)
    verdict = answer.verdict
    if verdict.status == "abstained" or verdict.final_probabilities is None:
        return no_score(missing_in(verdict) or MissingScore.ABSTAINED, reason=verdict.reason or "abstained")
    label_mass = 1.0 if verdict.label_mass is None else verdict.label_mass
    return _Found(probabilities=verdict.final_probabilities, label_mass=label_mass)


def _answer(
    question: SystemOneNoul | SystemOneChoice | SystemOneScore, found: _Found | ResponseScore
) -> Mapping[str, Any]:
    if isinstance(found, ResponseScore):
        return {"type": "refusal", "reason": f"{found.missing}: {found.reason}"}
    match question:
        case SystemOneNoul():
            return {"type": "noul", "noul": found.probabilities[0]}
        case SystemOneChoice():
            names = list(question.criteria)
            return {
                "type": "choice",
                "choice": names[found.top],
                "confidence": found.confidence,
                "probabilities": dict(zip(names, found.probabilities, strict=True)),
            }
        case SystemOneScore():
            levels = [str(level) for level in range(len(question.criteria))]
            return {
                "type": "score",
                "score": sum(level * p for level, p in enumerate(found.probabilities)),
                "confidence": found.confidence,
                "legend": dict(zip(levels, question.criteria, strict=True)),
                "probabilities": dict(zip(levels, found.probabilities, strict=True)),
            }


class SystemOneNoulAnswer(BaseModel):
    """Answer to a question of type `noul`."""

    type: Literal["noul"]
    """Always `noul`."""
    noul: float
    """Probability that the statement is true."""


class SystemOneChoiceAnswer(BaseModel):
    """Answer to a choice."""

    type: Literal["choice"]
    """Always `choice`."""
    choice: str
    """Name of the most probable criterion."""
    confidence: float
    """Its probability, times the probability of all labels together."""
    probabilities: dict[str, float]
    """Name of a criterion -> its probability."""


class SystemOneScoreAnswer(BaseModel):
    """Answer to a score."""

    type: Literal["score"]
    """Always `score`."""
    score: float
    """The expected level."""
    confidence: float
    """Probability of the most probable level, times the probability of all labels together."""
    legend: dict[str, Any]
    """Level, from 0 -> its criterion."""
    probabilities: dict[str, float]
    """Level, from 0 -> its probability."""


class SystemOneRefusal(BaseModel):
    """A question without an answer."""

    type: Literal["refusal"]
    """Always `refusal`. Clients ignore answers of this type."""
    reason: str
    """Why there is no answer."""


class SystemOneUsage(BaseModel):
    """Token counts of all questions."""

    input_tokens: int | None
    """Number of tokens that the model read. None: the endpoint of the model does not report it."""
    output_tokens: int | None
    """Number of tokens that the model wrote. None: the endpoint of the model does not report it."""


class SystemOneAnswers(BaseModel):
    """Answers to named questions."""

    id: str
    """Id of the response."""
    object: Literal["systemone"]
    """Always `systemone`."""
    created: int
    """Unix time in seconds."""
    model: str
    """Name of the judge."""
    answers: dict[str, SystemOneNoulAnswer | SystemOneChoiceAnswer | SystemOneScoreAnswer | SystemOneRefusal]
    """Name of a question -> its answer."""
    usage: SystemOneUsage
    """Token counts of all questions."""


DIALECT = Dialect(
    name="systemone",
    endpoints=[
        DialectEndpoint(
            path="/v1/systemone",
            body=SystemOne,
            answer=SystemOneAnswers,
            reply=reply,
            summary="Answer named questions about a state.",
            examples={
                "Two questions": {
                    "state": "Customer: My parcel is broken. Agent: I send you a new one today.",
                    "questions": {
                        "solved": {"type": "noul", "instructions": "The agent solves the problem."},
                        "tone": {
                            "type": "choice",
                            "criteria": {"kind": "The agent is kind.", "rude": "The agent is rude."},
                        },
                    },
                }
            },
        )
    ],
    deadline_s=9.0,
    # The client ignores answers of an unknown type, and retries after an HTTP error.
    failures=FailureRow(judge=FailureStyle.MARKED, server=FailureStyle.ERROR),
)
