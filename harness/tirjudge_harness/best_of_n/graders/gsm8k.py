"""Grade by the last number in a response, as usual for GSM8K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tirjudge_harness.best_of_n.graders.final_answer import last_number, number_text
from tirjudge_harness.best_of_n.graders.grade import Grade, read_facts


class _Facts(BaseModel):
    model_config = ConfigDict(extra="ignore")

    answer: Annotated[str, Field(coerce_numbers_to_str=True)]

    @model_validator(mode="after")
    def _ends_with_a_number(self) -> _Facts:
        if last_number(self.answer) is None:
            raise ValueError(f"answer: expected a number, or a solution that ends with one, got {self.answer!r}")
        return self


class Gsm8kGrader:
    """Facts: `answer`, a number or a solution that ends with one. Votes count numbers; 18.0 and 18 are equal."""

    async def grade(self, responses: Sequence[str], *, facts: Mapping[str, Any]) -> list[Grade]:
        gold = last_number(read_facts(_Facts, facts).answer)
        return [_grade(last_number(response), gold=gold) for response in responses]


def _grade(number: Decimal | None, *, gold: Decimal | None) -> Grade:
    return Grade(correct=number == gold and number is not None, answer=None if number is None else number_text(number))
