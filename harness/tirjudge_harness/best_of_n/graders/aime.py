"""Grade integers from 0 to 999, such as AIME answers: the last `\\boxed{}`, or the last number if there is no box."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tirjudge_harness.best_of_n.graders.final_answer import MAX_DIGITS, last_boxed, last_number, number_text
from tirjudge_harness.best_of_n.graders.grade import Grade, read_facts

_DECORATION = re.compile(r"\\text\s*\{[^{}]*\}|\\[,;!: ]|\^\{?\\circ\}?|\\\(|\\\)|[\s$~]")


def _digits(value: object) -> object:
    """Gold answers are numbers, or strings that may have leading zeros."""
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


class _Facts(BaseModel):
    model_config = ConfigDict(extra="ignore")

    answer: Annotated[int, Field(ge=0, le=999), BeforeValidator(_digits)]


class AimeGrader:
    """Facts: `answer`, an integer from 0 to 999. Votes are for integers: 007 and 7 are the same answer."""

    async def grade(self, responses: Sequence[str], *, facts: Mapping[str, Any]) -> list[Grade]:
        gold = read_facts(_Facts, facts).answer
        answers = [integer_answer(response) for response in responses]
        return [Grade(correct=answer == gold, answer=None if answer is None else str(answer)) for answer in answers]


def integer_answer(response: str) -> int | None:
    """Return the final integer of a response.

    None: the content of the last box is not an integer, or the response has no box and its last number is not an
    integer.
    """
    boxed = last_boxed(response)
    if boxed is None:
        number = last_number(response)
        return None if number is None or "." in number_text(number) else int(number)
    text = _DECORATION.sub("", boxed).rpartition("=")[2].replace("{,}", "").replace(",", "").rstrip(".")
    return int(text) if re.fullmatch(r"-?\d+", text) and len(text) <= MAX_DIGITS else None
