"""Hand-written cases for every kind of instruction, and the strict and loose rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge_harness.best_of_n.graders.ifeval import IfevalGrader, Instructions, following, tally
from tirjudge_harness.best_of_n.graders.ifeval.instructions import CHECKS
from tirjudge_harness.items import InputError

ENGLISH = "the cat sat on the mat and looked at the old house across the street"
GERMAN = "Die Katze sitzt auf der Matte und schaut auf das alte Haus gegenüber."
PARAGRAPHS = {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"}
AT_LEAST_2, LESS_THAN_2 = {"relation": "at least"}, {"relation": "less than"}

CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["cat", "mat"]}, "A CAT on a doormat.", "A cat on a rug."),
    ("keywords:frequency", {"keyword": "cat", "frequency": 2, **AT_LEAST_2}, "Cat, concatenate.", "A cat."),
    ("keywords:frequency", {"keyword": "cat", "frequency": 2, **LESS_THAN_2}, "A cat.", "Cat, concatenate."),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "They concatenate.", "The Cat, they say."),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 2, "let_relation": "at least"}, "Qq", "q"),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 2, "let_relation": "less than"}, "q", "Qq"),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": "at least"}, "# #", "# !"),
    ("language:response_language", {"language": "de"}, GERMAN, ENGLISH),
    ("length_constraints:number_sentences", {"num_sentences": 2, **AT_LEAST_2}, "I saw it. It ran.", "I saw Dr. Who."),
    ("length_constraints:number_sentences", {"num_sentences": 2, **LESS_THAN_2}, "I saw Dr. Who.", "I saw it. It ran."),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\nOne\n***\nTwo\n***", "One\n\nTwo"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One *** Two", "One *** *** Two"),
    ("length_constraints:number_words", {"num_words": 3, **AT_LEAST_2}, "one two-three", "one two"),
    ("length_constraints:number_words", {"num_words": 3, **LESS_THAN_2}, "one two", "one two-three"),
    ("length_constraints:nth_paragraph_first_word", PARAGRAPHS, "First.\n\n'Then, it", "First.\n\nAnd then"),
    ("length_constraints:nth_paragraph_first_word", PARAGRAPHS, "First.\n\nTHEN", "First.\n\nThen\n\nLast."),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] and [b]", "[a] and [b\n]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\np. s. Call me.", "Bye.\nPS Call me."),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye. P.P.S call", "Bye. P.S. call"),
    ("detectable_content:postscript", {"postscript_marker": "N.B."}, "Bye. n.b. call", "Bye. NB call"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "List:\n* one\n - two", "* one\n* two\n- three"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "**Bold**\n* one", "**Bold**\none"),
    ("detectable_format:constrained_response", {}, "Well: My answer is maybe.", "My answer is perhaps."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and *two*", "*one* and *two"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "**one**", "** ** and * *"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "PART", "num_sections": 2},
        "PART 1 x PART2 y",
        "PART 1",
    ),
    ("detectable_format:multiple_sections", {"section_spliter": "Part", "num_sections": 1}, "Part 1", "PART 1"),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', "{'a': [1]}"),
    ("detectable_format:json_format", {}, "[]", "Here it is: []"),
    ("detectable_format:title", {}, "<<My cat>>\nIt purrs.", "<< >>\nIt purrs."),
    ("detectable_format:title", {}, "It purrs. <<Cat>>", "<<My\ncat>>"),
    ("combination:two_responses", {}, "one\n******\ntwo", "one\n******\none"),
    ("combination:two_responses", {}, "******one******two******", "one******two******three"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, " say HI. Hi!", "Hi! Say hi."),
    ("startend:end_checker", {"end_phrase": "That is all."}, 'So be it. "that is all."', "That is all. Bye."),
    ("startend:quotation", {}, ' "Hello." ', '"Hello.'),
    ("startend:quotation", {}, '""', '"'),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, "A NASA", "NASA"),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"}, "NASA", "NA SA"),
    ("change_case:english_capital", {}, ENGLISH.upper(), ENGLISH.capitalize()),
    ("change_case:english_capital", {}, ENGLISH.upper(), GERMAN.upper()),
    ("change_case:english_lowercase", {}, ENGLISH, ENGLISH.capitalize()),
    ("change_case:english_lowercase", {}, ENGLISH, GERMAN.lower()),
    ("punctuation:no_comma", {}, "one two; three", "one, two"),
]


def instructions(*each: tuple[str, dict[str, Any]]) -> Instructions:
    return Instructions(instruction_id_list=[kind for kind, _ in each], kwargs=[given for _, given in each])


@pytest.mark.parametrize(("kind", "given", "followed", "broken"), CASES)
def test_a_check_accepts_a_good_response_and_rejects_a_bad_one(
    kind: str, given: dict[str, Any], followed: str, broken: str
) -> None:
    one = instructions((kind, given))
    assert following(followed, one).strict == (True,)
    assert following(broken, one).strict == (False,)


def test_every_kind_has_a_case() -> None:
    assert len(CHECKS) == 25
    assert {kind for kind, *_ in CASES} == set(CHECKS)


def test_keywords_are_plain_text() -> None:
    one = instructions(
        ("keywords:existence", {"keywords": ["c++"]}), ("keywords:forbidden_words", {"forbidden_words": ["a.b"]})
    )
    assert following("I like C++ and axb.", one).strict == (True, True)


@pytest.mark.slow
def test_contractions_count_as_two_words_in_capitals() -> None:
    """The Treebank rules split DON'T into DO and N'T."""
    one = instructions(("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}))
    assert following("Please DON'T go.", one).strict == (True,)


def test_a_text_without_a_language_passes_for_every_language() -> None:
    assert following("12345", instructions(("language:response_language", {"language": "sw"}))).strict == (True,)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ("Here it is, as asked:\nno comma here", "punctuation:no_comma"),
        ("no comma here\nI hope, this helps", "punctuation:no_comma"),
        ("Here, first\nno comma here\nI hope, this helps", "punctuation:no_comma"),
        ('*"quoted"*', "startend:quotation"),
        ('Sure:\n**"quoted"**', "startend:quotation"),
    ],
)
def test_loose_checks_ignore_the_first_line_the_last_line_and_asterisks(response: str, kind: str) -> None:
    followed = following(response, instructions((kind, {})))
    assert (followed.strict, followed.loose) == ((False,), (True,))


def test_loose_checks_do_not_ignore_a_middle_line() -> None:
    assert following("first\nmiddle, here\nlast", instructions(("punctuation:no_comma", {}))).loose == (False,)


def test_each_instruction_may_hold_in_another_variant() -> None:
    """Without its first line, the response has no comma. With it, it has three words. No variant follows both."""
    two = instructions(
        ("punctuation:no_comma", {}), ("length_constraints:number_words", {"num_words": 3, "relation": "at least"})
    )
    followed = following("one, two\nthree", two)
    assert (followed.strict, followed.loose) == ((False, True), (True, True))


@pytest.mark.parametrize("response", ["", " \n "])
def test_an_empty_response_follows_no_instruction(response: str) -> None:
    followed = following(response, instructions(("punctuation:no_comma", {})))
    assert (followed.strict, followed.loose) == ((False,), (False,))


def test_the_tally_counts_prompts_and_instructions() -> None:
    two = instructions(("punctuation:no_comma", {}), ("startend:quotation", {}))
    every = [following('"fine"', two), following('Hm:\n"fine"', two), following("a, b", two)]
    result = tally(every)
    assert (result.num_prompts, result.num_instructions) == (3, 6)
    assert (result.prompt_strict, result.inst_strict) == (1, 3)
    assert (result.prompt_loose, result.inst_loose) == (2, 4)


async def test_a_response_is_right_if_it_follows_all_instructions_strictly() -> None:
    facts = {
        "instruction_id_list": ["punctuation:no_comma", "keywords:frequency"],
        "kwargs": [
            {"num_words": None, "keyword": None},
            {"keyword": "cat", "frequency": 1.0, "relation": "at least", "num_words": None},
        ],
        "key": 1,
    }
    grades = await IfevalGrader().grade(["a cat", "Well, so:\na cat"], facts=facts)
    assert [grade.correct for grade in grades] == [True, False]
    assert [grade.answer for grade in grades] == [None, None]
    assert grades[1].detail == {"strict": [False, True], "loose": [True, True]}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"instruction_id_list": ["a:b"], "kwargs": [{}]},
            "instruction_id_list: unknown instruction 'a:b'; expected one of keywords:existence",
        ),
        (
            {"instruction_id_list": ["punctuation:no_comma"], "kwargs": []},
            r"kwargs: expected one per instruction \(1\), got 0",
        ),
        ({"instruction_id_list": [], "kwargs": []}, "instruction_id_list: empty"),
        ({"kwargs": []}, "instruction_id_list: "),
        ({"instruction_id_list": ["keywords:existence"], "kwargs": [None]}, "keywords:existence: keywords"),
        (
            {"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": ["a" * 201]}]},
            "keywords:existence: keywords.0: .* at most 200 characters",
        ),
        (
            {
                "instruction_id_list": ["length_constraints:number_words"],
                "kwargs": [{"num_words": 3, "relation": "at most"}],
            },
            'length_constraints:number_words: relation: .*"at most"',
        ),
    ],
)
async def test_invalid_instructions_are_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        await IfevalGrader().grade(["x"], facts=facts)


@given(response=st.text(alphabet='aB ,.*-"<>[]\n', max_size=60))
def test_strictly_followed_instructions_are_loosely_followed(response: str) -> None:
    every = instructions(
        ("punctuation:no_comma", {}),
        ("startend:quotation", {}),
        ("detectable_format:title", {}),
        ("detectable_format:number_bullet_lists", {"num_bullets": 1}),
        ("detectable_content:number_placeholders", {"num_placeholders": 1}),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 1}),
    )
    followed = following(response, every)
    assert all(loose or not strict for strict, loose in zip(followed.strict, followed.loose, strict=True))
