"""The AIME and GSM8K graders, whose answers are numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge_harness.best_of_n.graders.aime import AimeGrader, integer_answer
from tirjudge_harness.best_of_n.graders.gsm8k import Gsm8kGrader
from tirjudge_harness.items import InputError


@pytest.mark.parametrize("gold", ["25", "025", 25, " 25 "])
async def test_leading_zeros_make_no_difference(gold: str | int) -> None:
    grades = await AimeGrader().grade([r"\boxed{025}", r"\boxed{25}", r"\boxed{52}"], facts={"answer": gold})
    assert [(grade.correct, grade.answer) for grade in grades] == [(True, "25"), (True, "25"), (False, "52")]


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{\text{Answer: } 7}", 7),
        (r"\boxed{m + n = 7}", 7),
        (r"\boxed{7^\circ}", 7),
        (r"\boxed{$7$}", 7),
        (r"\boxed{7.}", 7),
        (r"\boxed{1{,}007}", 1007),
        (r"\boxed{7} not 8", 7),
        ("So the answer is 7.", 7),
        ("So the answer is 7.0.", 7),
        ("So the answer is 7.5", None),
        (r"\boxed{\frac{7}{2}} = 7", None),
        (r"\boxed{7 \text{ or } 8}", 78),
        ("I do not know.", None),
    ],
)
def test_the_answer_is_the_last_box_or_the_last_number(response: str, answer: int | None) -> None:
    assert integer_answer(response) == answer


async def test_a_response_without_an_integer_is_wrong_and_has_no_vote() -> None:
    (grade,) = await AimeGrader().grade(["I do not know."], facts={"answer": "0"})
    assert (grade.correct, grade.answer) == (False, None)


@given(answer=st.integers(0, 999))
async def test_every_answer_is_found_boxed_and_in_prose(answer: int) -> None:
    responses = [f"\\boxed{{{answer:03}}}", f"The answer is {answer}."]
    grades = await AimeGrader().grade(responses, facts={"answer": f"{answer:03}"})
    assert [(grade.correct, grade.answer) for grade in grades] == [(True, str(answer))] * 2


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({}, "answer: "),
        ({"answer": "1000"}, "answer: .*1000"),
        ({"answer": "x"}, 'answer: .*"x"'),
        ({"answer": None}, "answer: "),
    ],
)
async def test_an_invalid_aime_gold_answer_is_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        await AimeGrader().grade(["1"], facts=facts)


async def test_gsm8k_compares_the_last_numbers_by_value() -> None:
    responses = ["He has 5 + 13 = <<5+13=18>>18\nA: 18", "$18.00", "1,800", "18 or 19", "many"]
    grades = await Gsm8kGrader().grade(responses, facts={"answer": "18"})
    assert [grade.correct for grade in grades] == [True, True, False, False, False]
    assert [grade.answer for grade in grades] == ["18", "18", "1800", "19", None]


@pytest.mark.parametrize("answer", ["70,000", 70000, "7 * 10000 = 70000\n#### 70000"])
async def test_gsm8k_accepts_a_gold_number_or_a_gold_solution(answer: str | int) -> None:
    (grade,) = await Gsm8kGrader().grade(["A: 70000"], facts={"answer": answer})
    assert grade.correct


@pytest.mark.parametrize(
    ("facts", "message"),
    [({}, "answer: "), ({"answer": "none"}, "answer: expected a number, .* got 'none'")],
)
async def test_gsm8k_refuses_a_gold_answer_without_a_number(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        await Gsm8kGrader().grade(["1"], facts=facts)
