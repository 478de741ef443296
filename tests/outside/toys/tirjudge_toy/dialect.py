"""A toy dialect: `POST /toy/marks` with a question and answers gives each answer a mark from 0 to 10, or null."""

from pydantic import Field

from tirjudge_server.dialects import (
    Dialect,
    DialectContext,
    DialectEndpoint,
    FailureRow,
    FailureStyle,
    ForeignRequest,
    ResponseGroup,
    ResponseScore,
    scored,
)


class ToyMarks(ForeignRequest):
    question: str
    answers: list[str] = Field(min_length=1)


def read(body: ToyMarks, context: DialectContext) -> list[ResponseGroup | None]:
    if not body.question:
        return [None for _ in body.answers]
    return [ResponseGroup(prompt=body.question, responses=tuple(body.answers))]


def write(body: ToyMarks, scores: list[ResponseScore], context: DialectContext) -> dict[str, object]:
    return {"judge": context.model, "marks": [None if score.value is None else 10 * score.value for score in scores]}


DIALECT = Dialect(
    name="toy",
    endpoints=[DialectEndpoint(path="/toy/marks", body=ToyMarks, reply=scored(read, write), summary="Mark answers.")],
    deadline_s=60.0,
    failures=FailureRow(judge=FailureStyle.MARKED, server=FailureStyle.ERROR),
)
