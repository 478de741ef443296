"""Everyday calculations: the writers' lines, the check of an answer, and the guard against misread prompts."""

from __future__ import annotations

from random import Random

import pytest

from tests.judgments import build_request
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.tools.python import python_tools
from tirjudge.types import Mode
from tirjudge_sandbox import SandboxPool
from tirjudge_training.instructions.programs import program
from tirjudge_training.instructions.responses import holds
from tirjudge_training.instructions.word_problems import (
    CALCULATIONS,
    HELD_OUT_PROBLEM_WRITERS,
    TRAINING_PROBLEM_WRITERS,
    draw_calculation,
    filled_problem,
    result,
    word_problems,
)
from tirjudge_training.instructions.written import normalized


@pytest.mark.parametrize("writer", [*TRAINING_PROBLEM_WRITERS, *HELD_OUT_PROBLEM_WRITERS])
def test_each_calculation_of_a_writer_passes_its_own_check(writer: str) -> None:
    """The guard finds all numbers of the prompt in the calculation, and no other."""
    rng = Random(5)
    for one in word_problems((writer,), CALCULATIONS):
        text, formula = filled_problem(one, rng=rng)
        value = result(str(formula), {})
        assert value is not None
        assert holds(f'answer(r, "{formula}")', f"The answer is {float(value):.2f}.", prompt=text), (text, formula)
        assert not holds(f'answer(r, "{formula}")', f"The answer is {float(value) + 1:.2f}.", prompt=text)


def test_each_drawn_calculation_passes_its_own_check() -> None:
    rng = Random(6)
    for _ in range(300):
        text, (check,) = draw_calculation(rng)
        value = result(check.removeprefix('answer(r, "').removesuffix('")'), {})
        assert value is not None
        assert holds(check, f"**{float(value):.2f}**", prompt=text), (text, check)


def test_no_calculation_for_training_is_one_of_the_held_out_writer() -> None:
    training, held_out = (
        {normalized(one.text) for one in word_problems(writers, CALCULATIONS)}
        for writers in (TRAINING_PROBLEM_WRITERS, HELD_OUT_PROBLEM_WRITERS)
    )
    assert held_out
    assert training & held_out == set()


@pytest.mark.parametrize(
    ("prompt", "calculation", "response"),
    [
        ("what is 15% of 80", "15 * 80 / 100", "15% of 80 is 12."),
        ("what is 15% of 80", "15 * 80 / 100", "12, which is 0.15 × 80."),
        ("what is 15% of 80", "15 * 80 / 100", "80 × 0.15 = 12"),
        ("what is 15% of 80", "15 * 80 / 100", "You take 10% (8) and 5% (4).\n\n**12**"),
        ("what is 15% of 80", "15 * 80 / 100", "**Step 1:** 15% is 0.15\n**Step 2: Multiply**\n0.15 × 80 = 12"),
        ("what is 15% of 80", "15 * 80 / 100", "**1. Convert**\n0.15\n**2. Multiply**\n0.15 × 80 = 12"),
        ("what is 15% of 80", "15 * 80 / 100", "**Answer: 12.** Take 0.15 of 80."),
        ("minutes in 3 hours", "3 * 60", "180 minutes. An hour has 60 minutes."),
        ("10 - 5", "10 - 5", "5"),
        ("1,204 boxes of 5", "1204 * 5", "That makes 6 020 pieces."),
        ("from -8 to 5", "8 + 5", "It rose by 13 degrees, from −8 to 5."),
        ("100 / 3", "100 / 3", "About 33.3"),
        ("8 h at 20 and 3 h at 30, total?", "8 * 20 + 3 * 30", "8 × 20 = 160 and 3 × 30 = 90, so 250 in total."),
        ("23x19", "23 * 19", "$$23 \\times 19 = \\boxed{437}$$"),
        ("half a dozen boxes of 30", "30 * 12 / 2", "180"),
        ("a room of twelve by 3.50 m", "12 * 3.50", "42 m²"),
        ("the 2nd of 5 boxes weighs 3 kg, so all?", "5 * 3", "15 kg"),
        ("12,5 m by 18 m", "12.5 * 18", "225 m²"),
        ("half of 1 250 000", "1250000 / 2", "625 000"),
        ("25 % of 50,00 €", "25 * 50.00 / 100", "Das sind 12,50 €."),
        ("15 % tip on 84.50", "84.50 * 15 / 100", "about **$12.68**, making your total **$97.18**"),
        ("7 tickets at 12.50", "7 * 12.50", "**Total for 7 tickets: $87.50**"),
        ("7 tickets at 12.50", "7 * 12.50", "Answer: 7 tickets cost $87.50."),
        ("7 tickets at 12.50", "7 * 12.50", "$87.50 - 7 tickets at $12.50 each."),
        ("minutes in 3 hours", "3 * 60", "180 minutes (1 hour = 60 minutes)."),
        ("200 km at 60 km/h, how long?", "200 / 60", "3 hours and 20 minutes"),
        ("20 % of 325000", "325000 * 20 / 100", "65.000 €"),
        ("3/4 cup times 5", "3 / 4 * 5", "You need 3¾ cups."),
        ("3/4 cup for 2", "3 / 4 / 2", "$\\boxed{\\frac{3}{8}}$"),
        ("1,250 g in kg", "1250 / 1000", "1,25 kg"),
    ],
)
def test_the_answer_of_a_response_is_found(prompt: str, calculation: str, response: str) -> None:
    assert holds(f'answer(r, "{calculation}")', response, prompt=prompt)
    assert not holds(f'answer(r, "{calculation} + 7")', response, prompt=f"{prompt} and 7")


@pytest.mark.parametrize(
    "text",
    [
        "9" * 300_000,
        "**" + "9" * 300_000,
        "1+" * 150_000,
        "= " * 150_000,
        "=1 " * 100_000,
        "**1" * 100_000,
        "1," * 150_000,
        "1 000" * 60_000,
    ],
)
def test_long_responses_are_read_in_linear_time(text: str) -> None:
    """With quadratic time, such a text takes minutes."""
    assert not holds('answer(r, "15 * 80 / 100")', text, prompt="what is 15% of 80")


@pytest.mark.parametrize(
    ("prompt", "calculation"),
    [
        ("Ann has 12 crates of 30 eggs, and 7 break. How many are left?", "12 * 30"),
        ("what is 15% of 80", "15 * 90 / 100"),
        ("what is 15% of 80, said twice", "15 * 80 / 100"),
        ("minutes in three hours", "4 * 60"),
        ("One stone a day from my 4th to my 9th birthday: how many?", "4 * 9"),
        (
            "Half as many cups as bowls and half as many bowls as plates. If there are 20 bowls, how many in all?",
            "20 * 2",
        ),
        ("A hen needs 4.2 kg of grain each week. How much do 12 hens need per day?", "4.2 * 12"),
        ("Half of the 24 mugs are blue, and half of the blue ones leak. How many leak?", "24 * 2 / 2"),
    ],
)
async def test_a_calculation_with_other_numbers_than_the_prompt_gives_no_verdict(
    prompt: str, calculation: str, pool: SandboxPool
) -> None:
    code = program([f'answer(r, "{calculation}")'], mode=Mode.PAIRWISE)
    engine = ScriptedEngine([f"```python\n{code}```\n", "<preference>A</preference>"])
    judge = Judge(engine=engine, tools=python_tools(pool))
    request = build_request(prompt, responses=["12", "353"])
    rollout = await judge.rollout(request, order=(0, 1), session="s", read_probabilities=False)
    output = str(rollout.turns[0].output)
    assert "ValueError: the prompt has other numbers than the calculation" in output
    assert "CHECK" not in output


async def test_numbers_of_other_checks_are_not_missed(pool: SandboxPool) -> None:
    code = program(['answer(r, "15 * 80 / 100")', "sentences(r) == 2"], mode=Mode.PAIRWISE)
    engine = ScriptedEngine([f"```python\n{code}```\n", "<preference>A</preference>"])
    judge = Judge(engine=engine, tools=python_tools(pool))
    request = build_request(
        "What is 15% of 80? Use 2 sentences.", responses=["Sure. It is 12, then.", "Sure. It is 13, then."]
    )
    rollout = await judge.rollout(request, order=(0, 1), session="s", read_probabilities=False)
    assert rollout.turns[0].output == 'A 1 1\nB 0 1\nCHECK {"A": 2, "B": 1}'
