"""Comparison of the checks of a program with those that the prompt asks for, and the baselines without a model."""

from __future__ import annotations

import pytest

from tirjudge.types import Mode
from tirjudge_training.bundled.measuring.baselines import asked_credit, passed, pattern_credit
from tirjudge_training.bundled.measuring.check_lists import CopiedValue, compared, written_checks
from tirjudge_training.bundled.measuring.contamination import shared_with
from tirjudge_training.bundled.measuring.items import MeasuredItem
from tirjudge_training.instructions.notation import parse_checks
from tirjudge_training.instructions.programs import program

PROMPT = 'Write at least 300 words in three paragraphs. Say "harbour" and never say "ship".'
ASKED = parse_checks('words >= 300 ; paragraphs == 3 ; include "harbour" ; forbid "ship"')


def test_checks_are_read_from_a_program() -> None:
    found = written_checks(program([check.expression for check in ASKED], mode=Mode.PAIRWISE))
    assert found == ("words(r) >= 300", "paragraphs(r) == 3", "has(r, 'harbour')", "lacks(r, 'ship')")


@pytest.mark.parametrize("code", ["print(1)", "def checks(r):\n    return [\n", "def checks(r):\n    return 1\n", "("])
def test_programs_without_a_list_of_checks_have_none(code: str) -> None:
    assert written_checks(code) is None


def test_equal_lists_in_another_order_are_exact() -> None:
    written = ("lacks(r, 'ship')", "has(r, 'harbour')", "paragraphs(r) == 3", "words(r) >= 300")
    found = compared(ASKED, written, prompt=PROMPT)
    assert found.is_exact
    assert found.copied.count(CopiedValue(kind="text", is_right=True)) == 2
    assert found.copied.count(CopiedValue(kind="number", is_right=True)) == 1
    assert found.copied.count(CopiedValue(kind="number word", is_right=True)) == 1


def test_one_check_with_two_texts_equals_two_checks() -> None:
    assert compared(parse_checks('include "sea" "salt"'), ("has(r, 'salt')", "has(r, 'sea')"), prompt="").is_exact


def test_differences_have_their_kind() -> None:
    written = ("words(r) <= 300", "paragraphs(r) == 4", "has(r, 'harbour')", "upper(r)")
    found = compared(ASKED, written, prompt=PROMPT)
    assert not found.is_exact
    assert found.wrong_form == (("words(r) >= 300", "words(r) <= 300"),)
    assert found.wrong_values == (("paragraphs(r) == 3", "paragraphs(r) == 4"),)
    assert found.missing == ("lacks(r, 'ship')",)
    assert found.spurious == ("upper(r)",)
    assert CopiedValue(kind="number word", is_right=False) in found.copied


def item(*responses: str, right: int = 0) -> MeasuredItem:
    return MeasuredItem(
        id="1",
        group="g",
        mode=Mode.PAIRWISE if len(responses) == 2 else Mode.POINTWISE,
        prompt=PROMPT,
        responses=responses,
        right=frozenset({right}),
        asked=parse_checks('include "harbour" ; forbid "ship"'),
    )


def test_baselines_choose_the_response_that_passes_more() -> None:
    pair = item("A ship.", "The harbour.", right=1)
    assert pattern_credit(pair) == asked_credit(pair) == 1.0
    assert pattern_credit(item("Same.", "Same.")) == 0.5
    assert asked_credit(item("The harbour.")) == 1.0
    assert asked_credit(item("The ship in the harbour.")) == 0.0


@pytest.mark.parametrize(
    ("prompt", "response", "expected"),
    [
        ("At least 3 words.", "one two", [False]),
        ("Use 3 or more words.", "one two three", [True]),
        ("Less than 3 sentences, no commas.", "One. Two.", [True, True]),
        ("Answer in all lowercase.", "No", [False]),
        ("What is a boat?", "A thing that floats.", []),
    ],
)
def test_patterns_find_usual_instructions(prompt: str, response: str, expected: list[bool]) -> None:
    assert list(passed(prompt, response)) == expected


def test_shared_sentences_are_found() -> None:
    prompts = {"b": ["Tell me about boats. Use at least 40 words! And do not forget to say who built the first one."]}
    texts = [
        "Use at least {n} words",  # equals a clause, apart from the number
        "please do not forget to say who built the first bridge",  # eight words in a row
        "Tell me about trains.",
        "Boats.",
    ]
    found = shared_with(prompts, texts)
    assert found == {"equal_clauses": [(texts[0], "b")], "eight_words": [(texts[1], "b")]}
