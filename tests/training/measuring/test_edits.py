"""Edits of responses flip one instruction of IFEval by the official rules, and leave the others."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tirjudge_training.bundled.measuring.edits import EDITS, flipped
from tirjudge_training.bundled.measuring.google import OfficialRules, checks_of, official_rules
from tirjudge_training.bundled.measuring.items import edited_pair
from tirjudge_training.bundled.measuring.rows import BenchmarkRow
from tirjudge_training.instructions.responses import holds

pytest.importorskip("lm_eval")
pytest.importorskip("immutabledict")

AT_LEAST, LESS_THAN = {"relation": "at least"}, {"relation": "less than"}
PLAIN = "The ferry leaves at nine from the old pier. Bring a coat because the deck is cold. We will wait for you there."

REQUEST = "Write about the ferry that leaves from the old pier."

CASES: list[tuple[str, dict[str, Any], str]] = [
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, PLAIN),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"}, PLAIN),
    ("change_case:english_capital", {}, PLAIN),
    ("change_case:english_capital", {}, PLAIN.upper()),
    ("change_case:english_lowercase", {}, PLAIN),
    ("change_case:english_lowercase", {}, PLAIN.lower()),
    ("combination:repeat_prompt", {"prompt_to_repeat": REQUEST}, PLAIN),
    ("combination:repeat_prompt", {"prompt_to_repeat": REQUEST}, f"{REQUEST}\n{PLAIN}"),
    ("combination:two_responses", {}, PLAIN),
    ("combination:two_responses", {}, f"{PLAIN}\n******\nOr take the bus."),
    ("detectable_content:number_placeholders", {"num_placeholders": 3}, PLAIN),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, f"Dear [name],\n{PLAIN}"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, PLAIN),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, f"{PLAIN}\nP.P.S Bring cake."),
    ("detectable_format:constrained_response", {}, PLAIN),
    ("detectable_format:constrained_response", {}, "My answer is yes."),
    ("detectable_format:json_format", {}, PLAIN),
    ("detectable_format:json_format", {}, '```json\n{"ferry": "nine"}\n```'),
    ("detectable_format:multiple_sections", {"section_spliter": "Part", "num_sections": 2}, PLAIN),
    ("detectable_format:multiple_sections", {"section_spliter": "Part", "num_sections": 1}, f"Part 1\n{PLAIN}"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, PLAIN),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "It is easy:\n* Come early\n* Bring a coat"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, PLAIN),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, f"*Hello*\n{PLAIN}"),
    ("detectable_format:title", {}, PLAIN),
    ("detectable_format:title", {}, f"<<The ferry>>\n{PLAIN}"),
    ("keywords:existence", {"keywords": ["whale", "ferry"]}, PLAIN),
    ("keywords:existence", {"keywords": ["coat", "ferry"]}, PLAIN),
    ("keywords:forbidden_words", {"forbidden_words": ["whale"]}, PLAIN),
    ("keywords:forbidden_words", {"forbidden_words": ["pier"]}, PLAIN),
    ("keywords:frequency", {"keyword": "coat", "frequency": 3, **AT_LEAST}, PLAIN),
    ("keywords:frequency", {"keyword": "coat", "frequency": 3, **LESS_THAN}, PLAIN),
    ("keywords:letter_frequency", {"letter": "t", "let_frequency": 5, "let_relation": "at least"}, PLAIN),
    ("keywords:letter_frequency", {"letter": "t", "let_frequency": 5, "let_relation": "less than"}, PLAIN),
    ("language:response_language", {"language": "de"}, "Die Katze sitzt auf der Matte und schaut auf das alte Haus."),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 3, "nth_paragraph": 2, "first_word": "then"},
        PLAIN,
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
        f"{PLAIN}\n\nThen we leave.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, PLAIN),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, f"{PLAIN}\n***\nCome early."),
    ("length_constraints:number_sentences", {"num_sentences": 5, **AT_LEAST}, PLAIN),
    ("length_constraints:number_sentences", {"num_sentences": 3, **AT_LEAST}, PLAIN),
    ("length_constraints:number_words", {"num_words": 40, **AT_LEAST}, PLAIN),
    ("length_constraints:number_words", {"num_words": 20, **LESS_THAN}, PLAIN),
    ("punctuation:no_comma", {}, PLAIN),
    ("punctuation:no_comma", {}, f"Yes, {PLAIN}"),
    ("startend:end_checker", {"end_phrase": "See you then."}, PLAIN),
    ("startend:end_checker", {"end_phrase": "for you there."}, PLAIN),
    ("startend:quotation", {}, PLAIN),
    ("startend:quotation", {}, f'"{PLAIN}"'),
]


@pytest.fixture(scope="module")
def rules() -> Iterator[OfficialRules]:
    with official_rules() as loaded:
        yield loaded


def row_of(*instructions: tuple[str, dict[str, Any]], response: str, strict: list[bool] | None = None) -> BenchmarkRow:
    meta = {
        "instruction_id_list": [kind for kind, _ in instructions],
        "kwargs": [given for _, given in instructions],
        "strict": strict or [True] * len(instructions),
    }
    return BenchmarkRow(id="1", prompt="Write about the ferry.", responses=[response], meta=meta)


def test_every_kind_has_a_case_and_a_rule(rules: OfficialRules) -> None:
    assert {kind for kind, _, _ in CASES} == set(EDITS) == set(rules.kinds)


@pytest.mark.parametrize(("kind", "given", "response"), CASES)
def test_edit_flips_the_instruction(kind: str, given: dict[str, Any], response: str, rules: OfficialRules) -> None:
    official = rules.of(row_of((kind, given), response=response))
    (before,) = official.followed(response)
    text = flipped(official, response, index=0, rng=Random(1))
    assert text is not None
    assert official.followed(text) == [not before]


@pytest.mark.parametrize(("kind", "given", "response"), CASES)
def test_checks_of_programs_agree_with_the_official_rules(
    kind: str, given: dict[str, Any], response: str, rules: OfficialRules
) -> None:
    official = rules.of(row_of((kind, given), response=response))
    prompt = given.get("prompt_to_repeat", "Write.")
    assert (
        all(holds(check.expression, response, prompt=prompt) for check in checks_of(kind, given))
        is (official.followed(response)[0])
    )


def test_edit_leaves_other_instructions(rules: OfficialRules) -> None:
    others = [("change_case:english_lowercase", {}), ("startend:end_checker", {"end_phrase": "you there."})]
    official = rules.of(row_of(("punctuation:no_comma", {}), *others, response=PLAIN.lower()))
    text = flipped(official, PLAIN.lower(), index=0, rng=Random(1))
    assert text is not None
    assert official.followed(text) == [False, True, True]
    assert flipped(official, PLAIN.lower(), index=0, rng=Random(1)) == text


def test_no_edit_between_instructions_that_contradict(rules: OfficialRules) -> None:
    contradiction = [
        ("keywords:existence", {"keywords": ["ferry"]}),
        ("combination:repeat_prompt", {"prompt_to_repeat": "Write about the ferry."}),
    ]
    row = row_of(*contradiction, response=f"Write about the ferry. {PLAIN}")
    assert flipped(rules.of(row), row.responses[0], index=0, rng=Random(1)) is None
    pair = edited_pair(row, rules=rules, seed=1)
    assert pair is not None
    assert pair.group == "combination:repeat_prompt"
    assert pair.responses[min(pair.right)] == row.responses[0]
