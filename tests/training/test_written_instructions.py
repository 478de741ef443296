"""Instructions as people type them: the files, the prompts that are made of them, and the checks."""

from __future__ import annotations

import json
import re
from itertools import islice
from random import Random

import pytest

from tirjudge.basis import parse_check
from tirjudge.formats.blocks import bindings
from tirjudge.types import MODEL_MODES, Mode, label_of
from tirjudge_harness.best_of_n.graders.ifeval import Instructions, following
from tirjudge_training.instructions.composing import Composer, composer_of
from tirjudge_training.instructions.helpers import LANGUAGES, SOURCES, TOOL_SOURCES, definitions
from tirjudge_training.instructions.notation import NAMES, PLACED, TWO_TEXTS, Check, parse_checks
from tirjudge_training.instructions.number_words import number_word
from tirjudge_training.instructions.programs import program
from tirjudge_training.instructions.responses import holds, response_to
from tirjudge_training.instructions.varying import slotted, with_more_words, with_other_marks
from tirjudge_training.instructions.written import (
    ANSWERED_FORM_WRITERS,
    HELD_OUT_FORM_WRITERS,
    HELD_OUT_LATEST_WRITERS,
    HELD_OUT_REGEX_WRITERS,
    HELD_OUT_WRITERS,
    TRAINING_WRITERS,
    WRITERS,
    Instruction,
    cues_of,
    in_order,
    normalized,
    read_written,
    written_by,
)
from tirjudge_training.synthetic.examples import Mixture, SyntheticExample, draw_examples
from tirjudge_training.synthetic.items import WRITTEN, generate_items
from tirjudge_training.synthetic.programs import run_trusted

WRITTEN_ALONE = Mixture(written=1.0, numeric=0.0, conduct=0.0, toolless=0.0, ties=0.0, list_size=4)

SENTENCES = (
    "The train was late again.", "My aunt bought a red bicycle.", "We planted two rows of beans.", "The shop closes at noon.",
    "A dog slept under the table.", "The letter was not answered.", "The river was frozen until April.",
)  # fmt: skip


@pytest.fixture(scope="module")
def composer() -> Composer:
    return composer_of(TRAINING_WRITERS)


def draw(mode: Mode, *, count: int, held_out: bool = False, seed: int = 1) -> list[SyntheticExample]:
    rng = Random(f"{seed}/{mode}")
    return list(islice(draw_examples(mode, rng=rng, held_out=held_out, mixture=WRITTEN_ALONE), count))


# The files ----------------------------------------------------------------------------------------------------------------


REGEXES = ("is_regex", "matches", "no_match")
"""Checks of one kind of request."""
NEWER = {
    "punctuation", "quotes", "dashes", "lettered", "columns", "json_items", "per_list", "not_start", "not_end", "no_period",
    "bold_text", "in_order", "own_line", "line_first", "last_line", "line_has", "bullet_has", "bullet_end", "sentence_has",
    "sentence_start", "paragraph_has", "word_start", "number_only",
}  # fmt: skip
"""Checks that came with the held-out writer `nell`."""
NEWEST = {
    "separated", "own_lines", "marked", "roman", "first_line_words", "first_line_characters", "first_sentence_words",
    "alternate", "exact", "header", "bullet_mark", "tags", "date_format", "not_sentence_start", "items_bold", "items_emoji",
    "items_upper", "starts_emoji", "ends_emoji",
}  # fmt: skip
"""Checks that came with the held-out writer `rae`."""
LATEST = {
    "last_line_words", "last_sentence_words", "italics", "blockquotes", "inline_code", "longest_word", "percents", "amounts",
    "clock_times", "beginning", "ending", "paragraph_words", "paragraph_lines", "bullet_sentences", "heading_words",
    "sentence_end", "paragraph_start", "paragraph_end", "not_bullet_end", "first_paragraph", "last_paragraph", "json_value",
    "enclosed", "case_style", "reverse_alphabetical", "ascending", "descending", "growing", "shrinking", "equal_lines",
    "starts_differ", "items_unique", "sentence_lines", "blank_between", "no_nested", "abecedarian", "same_ends",
    "no_first_person", "no_second_person", "is_xml",
}  # fmt: skip
"""Checks that came with the held-out writer `nora`."""
NOT_HELD_OUT = {"lines_capital", "items_capital", "sentences_capital", *REGEXES, *NEWER, *NEWEST, *LATEST}
"""Checks that are newer than the first held-out writer, whose texts do not change, so that judges can be compared."""


@pytest.mark.parametrize(
    ("writers", "names", "least"),
    [
        (TRAINING_WRITERS, set(NAMES) - NEWER - {"marked"}, 120),
        (TRAINING_WRITERS + HELD_OUT_FORM_WRITERS, NEWER, 120),
        (HELD_OUT_WRITERS, set(NAMES) - NOT_HELD_OUT, 9),
        (HELD_OUT_FORM_WRITERS, NEWER, 9),
        (HELD_OUT_FORM_WRITERS, NEWEST - {"marked"}, 5),
        (HELD_OUT_LATEST_WRITERS, LATEST, 5),
    ],
)
def test_every_check_has_written_sentences(writers: tuple[str, ...], names: set[str], least: int) -> None:
    written = written_by(writers)
    kinds = {name: "regex" if name in REGEXES else name for name in NAMES}
    asked = dict.fromkeys((kinds[name] for name in names), 0)
    for instructions in written.by_name.values():
        for one in instructions:
            for kind in {kinds[check.name] for check in one.checks} & set(asked):
                asked[kind] += 1
    assert {name: count for name, count in asked.items() if count < least} == {}
    assert len(written.prompts) >= 60
    if writers in (HELD_OUT_FORM_WRITERS, HELD_OUT_LATEST_WRITERS):
        return
    assert len(written.prompts) >= 200
    assert min(len(written.tasks), len(written.facts), len(written.soft)) >= 80


def test_no_sentence_for_training_is_one_of_the_held_out_writer() -> None:
    training, held_out = (
        {normalized(one.text) for each in written_by(writers).by_name.values() for one in each}
        for writers in (
            TRAINING_WRITERS,
            (*HELD_OUT_WRITERS, *HELD_OUT_FORM_WRITERS, *HELD_OUT_LATEST_WRITERS, *HELD_OUT_REGEX_WRITERS),
        )
    )
    assert training & held_out == set()


def test_invalid_lines_are_reported(tmp_path) -> None:
    lines = ("words >= {n} | At least {m} words.", "nonsense == 3 | Three.", "words >= 3 | Three words or more.")
    (tmp_path / "sentences.txt").write_text("\n".join(lines))
    written = read_written([tmp_path])
    assert len(written.refused) == 2
    assert [one.text for one in written.by_name["words"]] == ["Three words or more."]


# Notation -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expressions"),
    [
        ("words >= 300", ["words(r) >= 300"]),
        ("words 180..220 ; title", ["180 <= words(r) <= 220", "title(r)"]),
        ('forbid "sea" "salt; sand"', ['lacks(r, "sea", "salt; sand")']),
        ('symbol ";" == 0', ['count(r, ";") == 0']),
        ("per_paragraph == 3", ["all(x == 3 for x in paragraph_sentences(r))"]),
        ('paragraph_first 2 "Still"', ['paragraph_first(r, 2, "Still")']),
        ('line_first 2 "Still" ; not_start "Sure"', ['line_first(r, 2, "Still")', 'not starts(r, "Sure")']),
        ("per_list <= 4", ["all(x <= 4 for x in list_items(r))"]),
        ("csv 4", ["csv(r, 4)"]),
        ("none", []),
    ],
)
def test_notation_becomes_python(text: str, expressions: list[str]) -> None:
    assert [check.expression for check in parse_checks(text)] == expressions


@pytest.mark.parametrize(
    "text", ["word >= 3", "words", "words >=", "include", 'title "x"', "words >= 3 title", "csv", "words 5"]
)
def test_invalid_notation_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a check"):
        parse_checks(text)


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in {*TOOL_SOURCES, "either"}])
def test_definitions_are_complete(name: str) -> None:
    """A program with the definitions of one function runs without the others."""
    namespace: dict[str, object] = {"prompt": "Say x in 2 words.", "checks": lambda r: []}
    exec("import json, math, re\n" + "\n".join(definitions(f"{name}(")), namespace)  # noqa: S102 (own source)
    text = "- One *note*.\n\n| a | b |\n|---|---|\nIt's 5 [x] o'clock."
    arguments = {
        "paragraph_first": (1, "one"),
        "line_first": (1, "one"),
        "csv": (2,),
        "repeats": ("One",),
        "answer": (5,),
        "language": ("Dutch",),
        "case_style": ("snake_case",),
        "json_value": ("x", "y"),
        "enclosed": ("x", "y"),
    }
    one_text = re.search(rf"def {name}\(r, (\*?\w+)\)", SOURCES[name])
    call = namespace[name]
    assert callable(call)
    call(text, *arguments.get(name, ("x",) if one_text else ()))


@pytest.mark.parametrize(
    ("expression", "is_met"),
    [
        ('paragraph_first(r, 1, "first")', True),
        ('paragraph_first(r, 2, "first")', False),
        ('paragraph_first(r, 1, "First", "Then", "Last")', True),
        ('paragraph_first(r, 2, "Then", "Last")', True),
        ('paragraph_first(r, 1, "First", "Last")', False),
        ('paragraph_first(r, 2, "Then", "Last", "Never")', False),
        ('paragraph_first(r, 1, "First, we")', True),
        ('paragraph_first(r, 0, "First")', False),
        ('paragraph_first(r, 4, "Last")', False),
    ],
)
def test_paragraphs_start_with_words(expression: str, is_met: bool) -> None:
    text = 'First, we look.\n\n"Then" we wait.\n \nLast: we leave.'
    assert holds(expression, text, prompt="") is is_met


# Prompts ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_values_stand_in_the_prompt(composer: Composer) -> None:
    """Everything that a check needs can be copied from the prompt, or is a number that the prompt says."""
    rng = Random(2)
    for _ in range(300):
        asked = composer.draw(rng, num_sentences=2)
        for check in asked.checks:
            assert "{" not in check.expression.replace("{}", "") or "{" in asked.text
            if check.op == "..":
                assert int(check.numbers[0]) < int(check.numbers[1]), asked
            if check.name in ("include", "forbid", "count", "acrostic", "first_word"):
                assert all(text.lower() in asked.text.lower() for text in check.texts), asked


@pytest.mark.parametrize(
    ("number", "word"), [(0, "zero"), (13, "thirteen"), (20, "twenty"), (45, "forty-five"), (100, "a hundred")]
)
def test_numbers_in_words(number: int, word: str) -> None:
    assert number_word(number) == word


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Use {w} and '{w2}'.", "Use {{w}} and {{w2}}."),
        ('End with "{p}" after {n} words', "End with {{p}} after {n} words"),
        ("{w}s are fine", "{w}s are fine"),
        ("“{w}”, **{w2}**", "'{w}', '{w2}'"),
        ("only “{w}, {w2}”", "only “{w}, {w2}”"),
    ],
)
def test_all_marks_of_a_sentence_change_alike(text: str, asked: str) -> None:
    marked = {with_other_marks(text, rng=Random(seed)) for seed in range(60)}
    assert asked in marked
    assert {mark.replace("{p}", "").count("{w}") for mark in marked} == {text.count("{w}")}
    assert "End with {p} after {n} words" not in marked


def test_a_list_of_words_becomes_longer_in_the_sentence_and_in_its_check() -> None:
    one = Instruction(parse_checks('words >= {n} ; forbid "{w}" "{w2}"'), "{n} words, without '{w}' and '{w2}'")
    for seed in range(20):
        longer = with_more_words(one, rng=Random(seed))
        texts = longer.checks[1].texts
        assert 3 <= len(texts) <= 5
        assert longer.text == f"{{n}} words, without {', '.join(repr(text) for text in texts[:-1])} and '{{w2}}'"
        assert longer.checks[0] == one.checks[0]


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        ("words >= {n}", "{n} words"),
        ('count "{w}" >= 2', "{w} twice"),
        ('include "{w}" "{w2}"', "both {w} and {w2}"),
        ('forbid "{w}" "{w2}"', "none of these two words: {w}, {w2}"),
        ('forbid "{w}" "{w2}"', "not “{w}, {w2}”"),
    ],
)
def test_sentences_without_a_list_of_words_stay(notation: str, text: str) -> None:
    one = Instruction(parse_checks(notation), text)
    assert with_more_words(one, rng=Random(1)) == one


@pytest.mark.parametrize(
    ("notation", "text", "slotted_text"),
    [
        ('words >= 80 ; include "kelp"', "80 words on kelp.", "{nx0x0} words on {wx1x0}."),
        ('include "kelp"', "Kelp? Use kelp.", "Kelp? Use {wx0x0}."),
        ('include "kelp"', "I like kelp. Use kelp.", None),
        ("bullets == 4", "4 bullets about the 4 seasons", None),
        ("bullets == 4", "4 bullets about 1,400 birds", None),
        ("words 3..40", "3 to 40 words", None),
        ("sentences == 1", "1 sentence", None),
        ("paragraphs == 2", "It was on 2 May. Two paragraphs.", None),
        ("paragraphs == 3", "3 dogs. End with a third paragraph.", None),
        ("bullets == 12", "12 years old. A dozen bullets.", None),
        ('sections "Day" == 3', "In three parts: Day 1, Day 2 and Day 3.", None),
        ('language "German"', "In German.", None),
        ('count "art" >= 3', "The word art 3 times, not in party", None),
    ],
)
def test_values_of_whole_prompts_become_slots_if_nothing_else_depends_on_them(notation, text, slotted_text) -> None:
    one = Instruction(parse_checks(notation), text)
    found = slotted(one)
    if slotted_text is None:
        assert notation.startswith("count") or found == one
    else:
        assert found.text == slotted_text
    slots = {slot for check in found.checks for slot in check.slots}
    assert slots == set(re.findall(r"\{(\w+)\}", found.text))


def test_held_out_prompts_do_not_vary() -> None:
    held_out = composer_of(HELD_OUT_WRITERS)
    assert not held_out.varied
    literal = {one.text for one in held_out.written.prompts}
    drawn = {held_out.draw(Random(seed), num_sentences=1).text for seed in range(200)}
    assert len(drawn & literal) > 10


# Responses and programs ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODEL_MODES)
@pytest.mark.parametrize("held_out", [False, True])
def test_program_finds_the_best_response(mode: Mode, held_out: bool) -> None:
    for example in draw(mode, count=40, held_out=held_out):
        assert example.code is not None
        printed = run_trusted(example.code, bindings=bindings(mode, prompt=example.prompt, responses=example.responses))
        if mode is Mode.POINTWISE:
            values = parse_check(printed, keys=["score"])
            assert values == {"score": 1 + int(9 * example.met[0] + 1e-9)}
        else:
            values = parse_check(printed, keys=[label_of(i) for i in range(len(example.responses))])
            assert values is not None
            assert [value / example.num_asked for value in values.values()] == pytest.approx(example.met)
            assert max(values, key=lambda label: values[label]) == label_of(example.label)


IFEVAL = {
    'include "sea" "salt"': ("keywords:existence", {"keywords": ["sea", "salt"]}),
    'count "sea" >= 3': ("keywords:frequency", {"keyword": "sea", "frequency": 3, "relation": "at least"}),
    'forbid "sea" "train"': ("keywords:forbidden_words", {"forbidden_words": ["sea", "train"]}),
    'letter "e" < 4': ("keywords:letter_frequency", {"letter": "e", "let_frequency": 4, "let_relation": "less than"}),
    "words >= 30": ("length_constraints:number_words", {"num_words": 30, "relation": "at least"}),
    "words < 12": ("length_constraints:number_words", {"num_words": 12, "relation": "less than"}),
    "sentences >= 6": ("length_constraints:number_sentences", {"num_sentences": 6, "relation": "at least"}),
    "stars == 3": ("length_constraints:number_paragraphs", {"num_paragraphs": 3}),
    "placeholders >= 3": ("detectable_content:number_placeholders", {"num_placeholders": 3}),
    'postscript "P.S."': ("detectable_content:postscript", {"postscript_marker": "P.S."}),
    "bullets == 4": ("detectable_format:number_bullet_lists", {"num_bullets": 4}),
    "highlights >= 2": ("detectable_format:number_highlighted_sections", {"num_highlights": 2}),
    'sections "Part" >= 3': ("detectable_format:multiple_sections", {"section_spliter": "Part", "num_sections": 3}),
    "json": ("detectable_format:json_format", {}),
    "title": ("detectable_format:title", {}),
    "two_answers": ("combination:two_responses", {}),
    'end "Over and out"': ("startend:end_checker", {"end_phrase": "Over and out"}),
    "quoted": ("startend:quotation", {}),
    "commas == 0": ("punctuation:no_comma", {}),
    "capitals >= 3": ("change_case:capital_word_frequency", {"capital_frequency": 3, "capital_relation": "at least"}),
}
"""Check -> the kind of IFEval with the same meaning, and its arguments."""


@pytest.mark.parametrize("notation", IFEVAL)
@pytest.mark.parametrize("want", [True, False])
def test_checks_agree_with_ifevals_rules(notation: str, want: bool) -> None:
    kind, arguments = IFEVAL[notation]
    checks = parse_checks(notation)
    rng = Random(5)
    for _ in range(8):
        text = response_to(checks, [want], prompt="Write.", sentences=SENTENCES, rng=rng)
        assert text is not None
        (strict,) = following(text, Instructions(instruction_id_list=[kind], kwargs=[arguments])).strict
        assert strict is want, text


@pytest.mark.parametrize("name", LANGUAGES)
def test_no_language_is_taken_for_english(name: str) -> None:
    check = Check(name="language", texts=(name,))
    english = " ".join(SENTENCES)
    assert holds(check.expression, english, prompt="") is (name == "English")


@pytest.mark.parametrize(
    ("name", "response", "passes"),
    [
        ("English", "VERILINK TRANSIT", True),
        ("Italian", "Vele bianche, / barca lenta naviga / verso sera", True),
        ("Italian", "The boat sails on the sea", False),
        ("English", "Der Zug ist nicht da und das ist gut", False),
        ("English", "Привет", False),
        ("English", "mjölk bröd ost " * 10, False),
        ("Norwegian", "Jeg har ikke tid til det", True),
        ("Danish", "Jeg har ikke tid til det", True),
    ],
)
def test_a_short_text_may_be_in_any_language_whose_words_it_does_not_contradict(
    name: str, response: str, passes: bool
) -> None:
    assert holds(Check(name="language", texts=(name,)).expression, response, prompt="") is passes


def test_an_unknown_language_decides_nothing() -> None:
    """Beside other checks it passes for all responses. Alone, the program fails, so that the verdict is a guess."""
    responses = ["La maro estas granda.", "1 2 3"]
    bound = bindings(Mode.PAIRWISE, prompt="?", responses=responses)
    esperanto = Check(name="language", texts=("Esperanto",)).expression
    assert [holds(esperanto, response, prompt="?") for response in responses] == [False, False]
    printed = run_trusted(program([esperanto, "words(r) == 4"], mode=Mode.PAIRWISE), bindings=bound)
    assert [line.strip() for line in printed.splitlines()] == ["A 1 1", "B 1 0", 'CHECK {"A": 2, "B": 1}']
    with pytest.raises(LookupError, match="Esperanto is no language that this function knows"):
        run_trusted(program([esperanto], mode=Mode.PAIRWISE), bindings=bound)


def test_a_text_that_has_to_match_and_not_to_match_gives_no_verdict() -> None:
    """The judge has misread such a prompt."""
    bound = bindings(Mode.PAIRWISE, prompt="AB, not ab", responses=["`[A-Z]+`", "`[a-z]+`"])
    printed = run_trusted(program(["matches(r, 'AB')", "no_match(r, 'ab')"], mode=Mode.PAIRWISE), bindings=bound)
    assert [line.strip() for line in printed.splitlines()] == ["A 1 1", "B 0 0", 'CHECK {"A": 2, "B": 0}']
    with pytest.raises(ValueError, match="an example of the prompt is misread"):
        run_trusted(program(["matches(r, 'AB')", "no_match(r, 'ab', 'AB')"], mode=Mode.PAIRWISE), bindings=bound)


HOSTILE = (
    "[" * 40_000,
    "‘" * 40_000,
    " ‘a" * 13_000,
    " --" * 13_000,
    "- a\n " * 8_000,
    "\n" * 40_000,
    "-" * 40_000,
    "a" * 40_000,
    "*" * 40_001,
    "<<" * 20_000,
    "| " * 20_000,
    "# " * 20_000,
    "(" * 40_000,
    "`" * 40_001,
    "```\n" * 10_000,
    " *a" * 13_000,
    " _a" * 13_000,
    "> \n" * 13_000,
    "1" * 40_000,
    "1," * 20_000,
    "1:" * 20_000,
    "$1 " * 13_000,
    "<a>" * 13_000,
    "**a" * 13_000,
    " \n" * 20_000,
    "a_" * 20_000,
    "- \n" * 20_000,
    "1. " * 20_000,
    ". " * 20_000,
    "A. " * 20_000,
    "a, " * 20_000,
    "| 1 |\n" * 10_000,
)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in PLACED])
def test_checks_take_linear_time(name: str) -> None:
    """Each of these texts would take minutes with a quadratic pattern."""
    compares = parse_checks_of(name)
    for text in HOSTILE:
        holds(compares.expression, text, prompt="x")


def parse_checks_of(name: str) -> Check:
    text = {"language": "Dutch", "case_style": "snake_case"}.get(name, "x")
    texts = f'"{text}" "{text}"' if name in TWO_TEXTS else f'"{text}"'
    for notation in (f"{name} >= 1", f"{name} {texts} >= 1", f"{name} {texts}", name):
        try:
            return parse_checks(notation)[0]
        except ValueError:
            continue
    raise AssertionError(name)


# Items --------------------------------------------------------------------------------------------------------------------


def test_items_with_written_instructions() -> None:
    mixture = Mixture(written=0.5, numeric=0.0, conduct=0.0)
    items = generate_items(Mode.PAIRWISE, count=20, seed=4, mixture=mixture)
    assert items == generate_items(Mode.PAIRWISE, count=20, seed=4, mixture=mixture)
    assert sum(item.task == WRITTEN for item in items) == 10
    assert all(item.verifiable for item in items)


def test_other_items_are_the_same_without_written_ones() -> None:
    without = generate_items(Mode.PAIRWISE, count=10, seed=4, mixture=Mixture(numeric=0.0, conduct=0.0))
    with_them = generate_items(Mode.PAIRWISE, count=20, seed=4, mixture=Mixture(numeric=0.0, conduct=0.0, written=0.5))
    assert {item.id: item for item in without} == {item.id: item for item in with_them if item.task != WRITTEN}


def test_checks_are_in_the_order_in_which_a_sentence_asks_for_them() -> None:
    cues = cues_of(one for each in written_by(TRAINING_WRITERS).by_name.values() for one in each)
    for notation, text, names in (
        (
            "words <= {n} ; upper ; emojis == 0",
            "no emojis, ALL IN CAPS, {n} words at most",
            ["emojis", "upper", "words"],
        ),
        ("bold == {n} ; sentences == {n}", "{n} sentences with {n} bold parts", ["sentences", "bold"]),
        ("json ; one_line", "one line of JSON", ["one_line", "json"]),
    ):
        ordered = in_order(Instruction(parse_checks(notation), text), cues)
        assert [check.name for check in ordered.checks] == names, text
        assert ordered.text == text


@pytest.mark.parametrize(
    ("expression", "passes", "fails"),
    [
        ('starts(r, "Yes", "No")', "no, never", "Perhaps no"),
        ('ends(r, "Bye.", "Ciao.")', "I am off. Ciao!", "Ciao or not"),
        ('ends(r, "!")', "I am off!", "I am off."),
        ('not ends(r, "!")', "I am off.", "I am off!"),
        ('not starts(r, "Sure")', "Of course.", "sure, I can"),
        ('bullet_start(r, "1.")', "1. a\n1. b", "1. a\n2. b"),
        ('bullet_start(r, "Go")', "- **Go** home\n- go on", "- Go\n- Stop"),
    ],
)
def test_texts_may_be_alternatives_or_marks(expression: str, passes: str, fails: str) -> None:
    assert holds(expression, passes, prompt="")
    assert not holds(expression, fails, prompt="")


@pytest.mark.parametrize(
    ("expression", "passes", "fails"),
    [
        ("punctuation(r) == 0", "it's a well-known fact", "it's a fact."),
        ("quotes(r) == 0", "It's the students' room", "It's a 'room'"),
        ("dashes(r) == 0", "- a well-known fact\n- and more", "a fact - and more"),
        ("dashes(r) == 0", "9-17", "9–17"),
        ("lettered(r) == 3", "a) one\nB. two\n(c) three", "a) one\n2. two\n(c) three"),
        ("columns(r) == 3", "| a | b | c |\n|---|---|---|\n| 1 | 2 | 3 |", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("columns(r) == 2", "a | b\n--|--\n1 | 2", "| a | b |\n| 1 | 2 |"),
        ("json_items(r) == 2", '```json\n["a", "b"]\n```', '{"a": 1, "b": 2}'),
        ("all(x == 2 for x in list_items(r))", "# A\n- a\n- b\n\n# B\n1. c\n2. d", "# A\n- a\n- b\n- c\n# B\n- d"),
        ("all(x == 2 for x in list_items(r))", "Pros:\n- a\n\n- b", "no list"),
        ('has_bold(r, "Sam", "mae")', "Well done, **Sam** and __Mae Low__", "Well done, **Sam** and Mae"),
        ('in_order(r, "tea", "coffee")', "Tea is old. Coffee is too.", "Coffee is older than tea."),
        ('own_line(r, "Pros", "Cons")', "## Pros\nIt is.\n**Cons:**\nIt was.", "Pros\nIt is. Cons"),
        ('own_line(r, "---")', "One\n---\nTwo", "One --- Two"),
        ('line_first(r, 2, "Today:")', "Yesterday: a\n\n- Today: b", "Today: b"),
        ('last_line(r, "Verdict")', "So it is.\n**Verdict: yes**", "Verdict: yes\nSo it is."),
        ('line_has(r, "=")', "a = b\nc = d", "a = b\nc - d"),
        ('bullet_has(r, "should")', "It:\n- should a\n- B should", "- should a\n- B"),
        ('bullet_end(r, "!")', "- a!\n- **b!**", "- a!\n- b"),
        ('sentence_has(r, "fun")', "It is fun. What fun!", "It is fun. What joy!"),
        ('sentence_start(r, "I")', 'It is. "I was."', "It is. He was."),
        ('sentence_start(r, "We")', "We are. We were!", "We are. Were we?"),
        ('paragraph_has(r, "fun")', "It is fun.\n\nWhat fun!", "It is fun.\n\nWhat joy!"),
        ('word_start(r, "b")', "Bright blue bikes", "Bright, red bikes"),
        ("number_only(r)", "£1,250.50", "It is 5"),
        ("not ends_period(r)", "No dot", "A dot."),
        ("quotes(r) == 0", "rock 'n' roll in the '90s", "She said 'I don't know' and left."),
        ("dashes(r) == 0", "| a |\n| --- |\n| b |", "wait-- what"),
        ("punctuation(r) == 0", "rock\nroll", "今天天气很好，我们去公园。"),
        ("lettered(r) == 2", "**A.** One\n- b) Two", "A One\nB Two"),
        ("columns(r) == 2", "**Rates | 2024**\n| a \\| b | c |\n|---|:-:|\n| 1 | 2 |", "a | b"),
        (
            "all(x == 2 for x in list_items(r))",
            "1. **Pros**\n   - a\n   - b\n2. **Cons**\n   - c\n   - d",
            "1. a\n2. b\n3. c",
        ),
        (
            "all(x == 2 for x in list_items(r))",
            "## A\n- a\n  - a1\n- b\n\n## B\n- c\n- d",
            "- a\n  - b\n  - c\n- d\n- e",
        ),
        ('has_bold(r, "not")', "Do **not** go, <b>ever</b>", "**Note:** it is not allowed."),
        (
            'in_order(r, "Summary", "Cause")',
            "## Summary\nThe cause is known.\n## Cause\nIt.",
            "## Cause\nIt.\n## Summary\nSo.",
        ),
        ('own_line(r, "Action items")', "“Action items”\nNone.", "Action items: none"),
        ('line_first(r, 1, "Subject:")', "**Subject**: Hi", "Subjects"),
        ('last_line(r, "return 0")', "```c\nint x;\nreturn 0\n```", "return 0\nbye"),
        ('line_has(r, "=")', "```\na=1\nb=2\n```", "a=1\nb 2"),
        ('bullet_has(r, "client")', "1. **Speed**\n   The client gets it.\n2. Clients pay.", "- client\n- none"),
        ('bullet_end(r, "together")', "- We work together.\n- We win “together”", "- We work.\n- together"),
        ('sentence_has(r, "we")', "We go. So do we.", "They were late. The answer is one."),
        ('sentence_start(r, "We")', "1. We plan. 2. We listen.", "We plan. 2. They listen."),
        ('paragraph_has(r, "safety")', "## Overview\n\nSafety first.\n\n---\n\nMore safety.", "Safety.\n\nMore."),
        ('word_start(r, "b")', "1. Bright bikes\n2. Big bags", "1. Bright bikes\n2. Old bags"),
        ("number_only(r)", "```\n1 250,5\n```", "12, 15"),
        ("words(r) == 4", "It's well-known, isn't it?", "It is well-known, isn't it?"),
        ("words(r) <= 4", "It's well-known, isn't it?", "It is well-known, isn't it?"),
        ("3 <= words(r) <= 4", "It's well-known, isn't it?", "It is well-known, isn't it?"),
        ("words(r) == 7", "It's well-known, isn't it?", "It's known, isn't it?"),
        ("words(r) < 7", "It's known, isn't it?", "It's well-known, isn't it?"),
        ("last_line_words(r) <= 3", "Dear all,\nit is on.\n\n**See you there**", "It is on.\nSee you there, then"),
        ("last_sentence_words(r) == 2", "It is a long day. Go home!", "Go home. It is a long day."),
        ("italics(r) == 2", "*One* and _two words_, **not this**, 2 * 3 * 4, a_b_c", "*One*, **two** and `_three_`"),
        ("italics(r) == 1", "* a bullet\n* another *one*", "* a bullet * and so on"),
        ("italics(r) == 1", "***bold and italic***", "**bold**"),
        ("blockquotes(r) == 2", "> One\n> goes on\n\nSo:\n> Two", "> One\n\nSo it is > 2"),
        ("blockquotes(r) >= 3", "> One\n> goes on\n> Two", "> One\n>\n> Two\n```\n>>> x\n```"),
        ("words(r) == 5", "I don't know—maybe never.", "I do not know—maybe never."),
        (
            "all(x == 2 for x in paragraph_lines(r))",
            "**Verse 1**\na\nb\n\n[Chorus]\na\nb\n\n*End*",
            "**Verse 1**\na\n\na\nb",
        ),
        ('paragraph_start(r, "So")', "## Sleep\nSo we sleep:\n\n- early\n- long\n\nSo it is.", "## So\nWe sleep."),
        ('paragraph_start(r, "Note")', "**Note:**\nIt is.\n\n**Note:**\nIt was.", "**Note:**\nIt is.\n\nIt was."),
        (
            "all(x == 1 for x in bullet_sentences(r))",
            "- Ask Dr. Lee at 5 p.m. in the hall.",
            "- Ask him. At 5 p.m. Then go.",
        ),
        ("all(x == 2 for x in bullet_sentences(r))", "1. **Eat**\n   It helps. So do it.", "1. **Eat**\n   It helps."),
        ('not_bullet_end(r, ".")', "1. **Eat**\n   It helps", "1. **Eat**\n   It helps."),
        (
            "last_line_words(r) == 5",
            "It is.\n5. See you at 10:30 tomorrow\n---",
            "It is.\nSee you all at 10:30 tomorrow",
        ),
        ("last_sentence_words(r) == 2", "Tips:\n1. Drink more\n2. Walk daily", "## End\nStay warm, all."),
        (
            "all(x <= 4 for x in heading_words(r))",
            "## 1. Set it up\n```\n# install it all, and then some\n```",
            "## Set it all up now",
        ),
        ("headings(r) == 1", "# One\n```\n# two\n```", "# One\n# Two"),
        ('paragraph_end(r, "on")', "Go on.\n\nIt goes **on**!", "It is on.\n\nIt was Jon."),
        ('paragraph_end(r, "...")', "So it goes…\n\nAnd on...", "So it goes."),
        ('sentence_end(r, "!")', "Hi Ann,\n\nWe won!🎉 Come over! 🍻", "- Wake up\n- Smile!"),
        ('sentence_end(r, "…")', "So it goes… And on…", "So it goes… And on."),
        ("amounts(r) == 4", "2 million dollars, 500 kr, ₩5,000 and Rs. 500", "3 pounds of flour, $5, 6 and 7"),
        ("clock_times(r) == 3", "um 9 Uhr, 14.30 Uhr and half past seven", "Bake for 2 h, then rest 1 h."),
        ("italics(r) == 1", "```\n# *b* c\n```\n这是*重要*的", "```\n*b*\n```"),
        ("percents(r) == 3", "40 Prozent, $40\\%$ and a 5-percent cut", "40, 50% and 60%"),
        ("inline_code(r) == 1", "Run `make` now:\n```\n`not`\n```", "```\nmake\n```"),
        ("longest_word(r) >= 12", "An extraordinary day", "A long day, a very-long-one"),
        ("percents(r) == 3", "40%, 12.5 % and ten percent", "40, 12.5 and a percentage"),
        ("amounts(r) == 3", "$5, 1,200.50 euros and USD 30", "5, 1,200 and 30 people"),
        ("clock_times(r) == 4", "9 am, 14:30, 7.15 p.m. and nine o'clock", "At 9, a ratio of 3:1, version 2.10"),
        ('beginning(r, "s") == 0', "Blue birds rest", "Blue birds sing"),
        ('ending(r, "ly") == 1', "Only birds sing.", "Birds sing in July, truly, slowly"),
        (
            "all(x <= 4 for x in paragraph_words(r))",
            "## A long heading that does not count\n\nIt is so.\n\nSo it is.",
            "It is so.\n\nIt was not so, then.",
        ),
        ("all(x == 2 for x in paragraph_lines(r))", "One\nTwo\n\nThree\nFour", "One\nTwo\n\nThree"),
        (
            "all(x == 2 for x in bullet_sentences(r))",
            "- It is. It was.\n- We go. We stay.",
            "- It is. It was.\n- We go.",
        ),
        ("all(x <= 2 for x in heading_words(r))", "# Two words\nIt is a long line.\n**One**", "# A long heading\nIt."),
        ("all(x == 2 for x in heading_words(r))", "# Two words", "No heading"),
        ('sentence_end(r, "!")', '## Rules\n\nGo! **Stay!** "Run!"', "Go! Stay. Run!"),
        ('sentence_end(r, "?", "!")', "Why? Go!", "Why? Go."),
        ('paragraph_start(r, "Listen")', "Listen, it is.\n\n**Listen**: it was.", "Listen.\n\nIt was. Listen."),
        ('paragraph_end(r, "Amen")', "It is. Amen.\n\nIt was. **Amen**", "It is. Amen.\n\nIt was."),
        ('not_bullet_end(r, ".")', "- one\n- two!", "- one\n- two."),
        ('not_bullet_end(r, ".", ";")', "1. one\n2. **two**", "1. one;\n2. two"),
        ('first_paragraph(r, "tea")', "# Drinks\n\nTea is old.\n\nSo is milk.", "Milk.\n\nTea."),
        ('last_paragraph(r, "tea")', "Milk is old.\n\nTeas are, too.", "Tea.\n\nMilk, instead."),
        ('json_value(r, "status", "ok")', '```json\n{"status": "ok"}\n```', '{"status": "OK?"}'),
        ('json_value(r, "n", "3")', '[{"n": 3}, {"n": "3"}]', '[{"n": 3}, {"m": 3}]'),
        ('json_value(r, "on", "true")', '{"on": true}', '{"on": false}'),
        ('enclosed(r, "[", "]")', "[It is so.]\n", "[It] is so."),
        ('enclosed(r, "BEGIN", "END")', "begin\nso\nend", "BEGIN so"),
        ('case_style(r, "snake_case")', "`total_price`\n- net_price2", "total_price\nnetPrice"),
        ('case_style(r, "camelCase")', "totalPrice, netURL", "TotalPrice"),
        ('case_style(r, "PascalCase")', "TotalPrice", "totalPrice"),
        ('case_style(r, "kebab-case")', "total-price", "total_price"),
        ('case_style(r, "SCREAMING_SNAKE_CASE")', "TOTAL_PRICE", "Here it is: TOTAL_PRICE"),
        ("reverse_alphabetical(r)", "1. Zoe\n2. Mia\n3. Ann", "Ann\nZoe"),
        ("reverse_alphabetical(r)", "zoe, mia, ann", "zoe, ann, mia"),
        ("ascending(r)", "1. 1,200 bees (in 3 hives)\n2. 3,000 ants", "5, 3, 9"),
        ("ascending(r)", "Here are 9 of them:\n-2.5\n-1\n4", "4\n-1"),
        ("descending(r)", "- Berlin: 3.6\n- Rome: 2.8", "- Rome: 2.8\n- Berlin: 3.6"),
        ("descending(r)", "3. go\n2. wait\n1. stay", "1. go\n2. wait\n3. stay"),
        ("ascending(r)", "2023-07-04 signed\n2023-09-12 began", "2023-09-12 began\n2023-07-04 signed"),
        ("ascending(r)", "31.12.2022 signed\n01.02.2023 began", "01.02.2023 began\n31.12.2022 signed"),
        ("ascending(r)", "- 9:15 dentist\n- 12:30 lunch", "- 12:30 lunch\n- 9:15 dentist"),
        ("growing(r)", "So\nSo it\nSo it is", "So it\nSo\nSo it is"),
        ("growing(r)", "It is. It really is. It really was so.", "It really was. It is."),
        ("shrinking(r)", "So it is\nSo it\nSo", "So\nSo it"),
        ("equal_lines(r)", "One two\nThree four", "One two\nThree"),
        ("equal_lines(r)", "# Title\nOne two\n---\nThree four", "One two\n---\nThree"),
        ("growing(r)", "Here it is:\n\nSnow.\nSnow falls.\nSnow falls here.", "Here it is:\n\nSnow falls.\nSnow."),
        (
            "abecedarian(r)",
            "Here is your ABC:\n\n**A** is for Ann\n**B** is for Bob",
            "Here is your ABC:\n\nB is\nA is",
        ),
        ("abecedarian(r)", "Ants march. Bees buzz.\n\nCows moo.", "Ants march. Cows moo. Bees buzz."),
        ('alternate(r, "Q:", "A:")', "# FAQ\nQ: Why?\n**A:** So.", "# FAQ\nA: So.\nQ: Why?"),
        ('line_has(r, "sun")', "# Day\nThe sun is up.\n---\nSun again.", "The sun is up.\nMoon again."),
        ("alphabetical(r)", "Apple, Banana, and Cherry", "Here is the list:\n\nZebra, Apple, Mango"),
        ("alphabetical(r)", "- 🍎 Apfel\n  - red\n- Äpfelmus\n- Birne", "- 🍎 Birne\n- Äpfelmus"),
        ("alphabetical(r)", "blue cheese, cheddar, goat cheese", "cheddar, blue cheese, goat cheese"),
        ("reverse_alphabetical(r)", "Zebra, Mango and Apple", "Here is the list:\n\nApple, Mango, Zebra"),
        (
            "descending(r)",
            "- India: 1.43 billion\n- USA: 340 million\n- Iran: 85M",
            "- USA: 340 million\n- India: 1.43 billion",
        ),
        ("ascending(r)", "- July 20, 1969: a\n- April 12, 1981: b", "- April 12, 1981: b\n- July 20, 1969: a"),
        ("ascending(r)", "- 9:00 AM\n- 11:30 AM\n- 1:00 PM", "- 1:00 PM\n- 9:00 AM"),
        ("ascending(r)", "−12 °C, −5 °C, 0 °C", "0 °C, −5 °C"),
        (
            "descending(r)",
            "| Rank | City 2023 |\n|---|---|\n| 1 | 90 |\n| 2 | 80 |",
            "| Rank | City |\n|---|---|\n| 1 | 80 |\n| 2 | 90 |",
        ),
        ("descending(r)", "### 3. Mars has 2 moons\n### 2. Venus\n### 1. Earth has 1", "### 1. Mars\n### 2. Venus"),
        ("descending(r)", "1. **K2** – 8,611 m\n   - climbed 1954\n2. **Nuptse** – 7,861 m", "3, 9, 4\n10, 2, 1"),
        (
            "items_unique(r)",
            "1. **Zoo**\n   - Cost: free\n2. **Park**\n   - Cost: free",
            "Here it is:\n\nred, blue and red",
        ),
        ("sentences(r) == 2", "He is 42. She is 40.", "I saw Dr. Lee and Mr. Fox."),
        (
            "sentences(r) == 1",
            "We met J. K. Rowling at 5 p.m. on 3. Mai in the U.S. capital... again.",
            "It was 5 p.m. Then we left.",
        ),
        ('case_style(r, "PascalCase")', "#SummerVibes", "Truck Log"),
        ('case_style(r, "snake_case")', "1. `report_q3.csv`", "sure, here it is: user_id"),
        ("nested(r) == 0", "- a\n- b\n```\n- c\n  - d\n```", "1. **Fruit**\n- apple\n2. **Veg**"),
        ("nested(r) == 0", "1. Fruit\n2. Veg", "1. Fruit\n   1.1 Apple"),
        (
            'enclosed(r, "good morning", "good morning")',
            "Good morning! We are open. **Good morning!**",
            "Good morning! We are.",
        ),
        ('enclosed(r, "{", "}")', "```\n{a {b} c}\n```", "{a} b {c}"),
        (
            'first_paragraph(r, "budget")',
            "Dear Ms. Lee,\n\nThe budget is done.\n\nBye.",
            "## Budget\nWe start.\n\nThe budget is.",
        ),
        (
            'last_paragraph(r, "thank you")',
            "It is.\n\nThank you.\n\nBest regards,\nAnna\n\n#news",
            "Thank you.\n\nIt is.\n\nBest,\nAnn",
        ),
        ('last_paragraph(r, "don\'t panic")', "It is.\n\nDon’t panic.", "Don’t panic.\n\nIt is."),
        ("first_person(r) == 0", "World War I, I/O and `for i in x`", "It (I love it) is good."),
        ("starts_differ(r)", "- Use salt\n- Add oil\n\nEnjoy it.", "- Use salt\n- Use oil"),
        ("sentence_lines(r)", "“Stop!” he said.\nShe ran.", "The cat sat\non the mat.\nIt slept."),
        ("blank_between(r)", "### Fruit\n- a\n\n- b\n\n### Veg\n- c\n\n- d", "- a\n- b\n\n- c"),
        ('json_value(r, "price", "9.90")', '{"price": 9.9}', '{"price": 9.8}'),
        ("numbered(r) == 2", "### 1. Pack\n**2.** Go", "Pack 1. and 2."),
        ("roman(r) == 2", "## I – Start\n## Part II", "I went – so.\nII. Go"),
        ("starts_differ(r)", "It is. We go. They stay.", "It is. We go. It was."),
        ("items_unique(r)", "- tea\n- milk", "- tea\n- milk\n- **Tea**"),
        ("items_unique(r)", "tea, milk", "tea, milk, tea"),
        ("sentence_lines(r)", "It is.\nIt was.", "It is. It was.\nSo."),
        ("blank_between(r)", "So:\n- a\n\n- b", "So:\n\n- a\n- b"),
        ("blank_between(r)", "One\n\nTwo", "One\nTwo"),
        ("nested(r) == 0", "  - a\n  - b", "- a\n  - b"),
        ("bold(r) == 3", "- **`git add`**: a\n- **`git commit`**: b\n- **`git push`**: c", "`**x**`"),
        ("amounts(r) == 0", "Try 3 short walks on a table 6 ft long.", "TRY 300 or 500 Ft"),
        ('language(r, "Portuguese")', "Você me ajuda a escolher?", "Kannst du mir helfen, es zu tun?"),
        ('language(r, "Polish")', "On ma psa, a ja mam kota i to mi się podoba.", "A dog and I like it."),
        ('not last_sentence(r, "tea")', "I like tea. See you soon", "I do. I like tea"),
        (
            "all(x >= 5 for x in sentence_words(r))",
            "My Trip\n\nWe went to the sea early.",
            "My trip. We went to the sea.",
        ),
        (
            "all(x <= 4 for x in bullet_words(r))",
            "1. Main item\n   a. sub item one\n2. Second",
            "1. Main item\n   and all the rest\n2. B",
        ),
        ('bullet_end(r, ".")', "1. Run this.\n   ```\n   npm start\n   ```\n2. Done.", "1. Run this\n2. Done."),
        ('bullet_start(r, "学习")', "- 学习新技能\n- 学习外语", "- 我学习"),
        ('line_start(r, "Day")', "Day1: rest\nDay 2: run", "Days: rest"),
        (
            "all(x == 1 for x in paragraph_sentences(r))",
            "Roses are red,\nviolets are blue.\n\nSo are you.",
            "Roses. Red.\n\nSo.",
        ),
        (
            "all(x == 4 for x in paragraph_lines(r))",
            "Verse 1:\nOne\nTwo\nChorus of birds\nFour",
            "Chorus\nOne\nTwo\nThree",
        ),
        ('json_keys(r, "name")', '{"name": "A"}', '[{"name": "A"}]'),
        ("first_person(r) == 0", "Article I is long.", "After lunch with Peter I went home."),
        ("csv(r, 2)", "```csv\na,b\nc,d", "```csv\na\nb"),
        ("numbered(r) == 0", "(2020) was a good year.", "(1) was first."),
        ("second_person(r) == 0", "Dear [Your Name],", "Read [your guide](https://a.org) first."),
        ("bullets(r) == 0", "One\n\n---\n\nTwo", "One\n- a\n- b"),
        ("bullets(r) == 2", "- a\n* b", "One\n---\n***\n---"),
        ("abecedarian(r)", "Ann sings\nBob dances\nCy sleeps", "Ann\nCy\nBob"),
        ("abecedarian(r)", "- **A**pples\n- Bread", "- Bread\n- Apples"),
        ("same_ends(r)", "Home is where I call home.", "Home is here."),
        ("first_person(r) == 0", "The US is large, i.e. big.", "Is it mine?"),
        ("first_person(r) == 0", "It is theirs.", "So we go."),
        ("second_person(r) == 0", "The youth is here.", "Is it yours?"),
        ("is_xml(r)", "```xml\n<a><b/></a>\n```", "<a><b></a>"),
        ("is_xml(r)", "<a>" * 20_000 + "</a>" * 20_000, "<a>\ud800</a>"),
        ("is_xml(r)", '<?xml version="1.0"?>\n<a x="1">é</a>', "Here it is: <a/>"),
        ('not starts(r, "The")', "These are three tips.", "The tips are here."),
        ('starts(r, "Dear Sam")', "**Dear Sam,** hello", "Dear Samuel, hello"),
        ('starts(r, "Let\'s")', "Let’s go", "Lets go"),
        (
            "all(x <= 4 for x in sentence_words(r))",
            "**A morning routine for you**\n\n- Drink tea\n- Walk the small dog",
            "- Drink tea and then walk",
        ),
        ("all(x == 3 for x in sentence_words(r))", "1. Tea is good.\n2. I love tea.", "1. Tea is very good."),
        ('sentence_has(r, "tea")', "Here you go:\n\nTea is good. I love tea.", "- Tea is good\n- I love it"),
        ('bullet_end(r, ".")', "- **Water**\n  Do it daily.\n- **Feed**\n  Twice a day.", "- Water\n- Feed."),
        (
            "all(x <= 6 for x in bullet_words(r))",
            "1. **Water**\n   Water every plant.",
            "1. **Water**\n   Water every plant in the living room daily.",
        ),
        ("items_bold(r)", "1. **a**\n   - sub one\n2. **b**", "1. **a**\n2. b"),
        ("items_bold(r)", "Here are two:\n\n**a** – x\n\n**b** – y", "**a** – x\n\nb – y"),
        ("all(x == 3 for x in line_words(r))", "# Sea\n\nold pond there\nbig sea here", "old pond there\nthe sea"),
        (
            "equal_lines(r)",
            "**Animals**\n\nCats sleep all day\nDogs bark at night",
            "**Animals**\n\nCats sleep\nDogs bark at night",
        ),
        ("abecedarian(r)", "**Autumn ABC**\n\nAutumn\nBreezes\nClouds", "**Autumn ABC**\n\nAutumn\nClouds\nBreezes"),
        ("bullets(r) == 0", "*The Sea*\n\nWaves", "*The Sea*\n- a"),
        ('lacks(r, "!")', "Hi.", "Hi!"),
        ('lacks(r, "don\'t")', "I do not", "I don’t"),
        (
            "all(x >= 5 for x in paragraph_words(r))",
            "Dear Ms. Hill,\n\nThe rent will be late.\n\nBest regards,\nJo",
            "The rent is late.\n\nSorry for all of that.",
        ),
        (
            'paragraph_has(r, "tea")',
            "Dear Tom,\n\nTea is here.\n\nI like tea.\n\nBest,\nJo",
            "Tea is here.\n\nI like it.",
        ),
        ('date_format(r, "DD/MM/YYYY")', "05/03/2024 and 23/05/2024", "05/03/2024 and 05/23/2024"),
        ("all(x >= 4 for x in word_letters(r))", "1. Many cows sing\n2. They like milk", "1. Many cows run"),
        ("blockquotes(r) == 1", "> quote\n>\n> — Author", "> a\n\nb\n\n> c"),
        ("second_person(r) == 0", "Sincerely,\n[Your Name]", "Is it your name?"),
        ('first_sentence(r, "tea")', "Hi Tom! The tea is done. Bye.", "The team is here. Tea?"),
        ("capitals(r) == 2", "The U.S.A. is BIG.", "The USA is big."),
        ("code_only(r)", "```js\nconst s = `a ${b}`;\n```", "```js\na\n```\n```js\nb\n```"),
        ("emojis(r) == 1", "👩‍💻", "★ ✓ ☐"),
        ("emojis(r) == 2", "👍🏽 🇫🇷", "👍🏽"),
        ("ends_question(r)", "What is your favourite? 🍩\n\n#food #fun", "What? No. 🍩"),
        ("ends_period(r)", "_Hello._", "Hello"),
        ("not ends_period(r)", "你好", "你好。"),
        ('line_end(r, "amen")', "# Prayer\n\nFor bread, Amen.\nFor tea, amen", "For bread, amen.\nFor tea."),
        ('own_line(r, "Pros")', "### ✅ Pros\n- a", "The Pros are few"),
        ("items_emoji(r)", "Here you go:\n\n🍎 a\n🍌 b", "🍎 a\nb"),
        ("title_case(r)", "How to Train a Dog", "How to train a Dog"),
        ("markdown(r) == 0", "Signed: ________ at 2**3", "some _soft_ words"),
        ('first_paragraph(r, "tea")', "**Subject:** x\n\nHi,\n\nTea is here.\n\nBye.", "No.\n\nTea is here.\n\nBye."),
        ('line_start(r, "> ")', "> a\n>\n> b", "> a\nb"),
        ('line_start(r, "If")', "# Poem\n\nIf a\nif b", "Iffy a\nIf b"),
        (
            'last_sentence(r, "deadline")',
            "Hello. The deadline is Friday.\n\nBest regards,\nAnna",
            "# Deadline\n\nAll done.",
        ),
        ('bullet_start(r, "To")', "- To go\n- “To stay”", "- Today\n- Tomatoes"),
        ('sentence_start(r, "If")', "**My Poem**\n\nIf a, b. If c, d.", "If a\n\nThen b"),
        (
            "alphabetical(r)",
            "| Country | Capital |\n|---|---|\n| Austria | V |\n| Belgium | B |",
            "| A | C |\n|---|---|\n| Belgium | B |\n| Austria | V |",
        ),
        ("ascending(r)", "The first 5 primes are 2, 3, 5, 7 and 11.", "They are 2, 5 and 3."),
        (
            "descending(r)",
            "1. **Avatar** (2009) – $2.9 billion\n2. **Endgame** (2019) – $2.8 billion\n3. **Titanic** (1997) – $2.2 billion",
            "10, 11",
        ),
        ("tablerows(r) == 3", "| a | b |\n|---|---|\n| | |\n| | |\n| | |", "| a | b |\n|---|---|\n| | |"),
        ("contractions(r) == 0", "The dog's bowl", "How's it going?"),
        (
            "all(x == 2 for x in paragraph_sentences(r))",
            "# Tea\n\nTea is old. It is good.\n\n---\n\nMilk is new. It is bad.",
            "Tea is old.\n\nIt is. So.",
        ),
        (
            'language(r, "German")',
            "Guten Morgen, liebe Gäste! Frühstück gibt es ab sieben Uhr.",
            "Breakfast is from seven on.",
        ),
        (
            'language(r, "Chinese")',
            "你可以用 Python 的 pandas 库读取 Excel 文件，然后用 matplotlib 画图。",
            "Use the pandas library",
        ),
        ('language(r, "English")', "I made a plan to do it.", "Ich habe einen Plan."),
        ("lines(r) == 2", "```csv\na,b\n1,2\n```", "a"),
        (
            'acrostic(r, "STORM")',
            "Here is your acrostic:\n\nSea\nTide\nOcean\nRain\nMist\n\nStay safe!",
            "Sea\nTide\nRain",
        ),
        ("table(r)", "| a | b |\n|:-:|:-:|\n| 1 | 2 |", "| a | b |"),
        (
            "all(x == 2 for x in paragraph_lines(r))",
            "Here is a poem for you:\n\na\nb\n\nc\nd\n\nI hope you like it!",
            "a\nb\n\nc",
        ),
        ("first_sentence_words(r) == 3", "# The Old Lighthouse\nThe sea roared.", "The sea roared twice."),
        ('options(r, "yes", "no")', "`yes`", "yes, it is"),
        ("csv(r, 3)", "name;shirt;paid\nAnn;M;25", "name;shirt\nAnn;M"),
        ("bold(r) == 0", "____ is the capital. `__main__`", "**very *nice* stuff**"),
        ("words(r) and len(tokens(r)) == 9", "At 7 a.m. we meet at the U.S. embassy.", "At seven"),
        ("amounts(r) == 2", "NOK 500 and 5,000 forints", "500 and 5,000"),
        ("first_person(r) == 0", "Queen Elizabeth I ruled.", "I ruled."),
        ("numbered(r) == 2", "(1) One\n(2) Two", "1 One\n2 Two"),
        ("all(x == 3 for x in heading_words(r))", "### **1. Boil the water**", "## 1.1 Green Tea"),
        ("all(x == 2 for x in bullet_sentences(r))", "1. **Sleep**\n\n   It helps. You win!", "- It helps."),
        ('case_style(r, "kebab-case")', "10-tips-for-runners", "10_tips"),
    ],
)
def test_forms(expression: str, passes: str, fails: str) -> None:
    assert holds(expression, passes, prompt="")
    assert not holds(expression, fails, prompt="")


@pytest.mark.parametrize(
    ("prompt", "passes", "fails"),
    [
        (
            "Repeat this, then answer: why is the sea salty?",
            "Why is the sea salty? Rivers.",
            "The sea is salty. Rivers.",
        ),
        ("Say it again. My sentence: I has two cat.", "I has two cat.\n\nI have two cats.", "I have two cats."),
        ("Copy my question first. Who was Ada?", "Copy my question first. Who was Ada? She wrote.", "Ada wrote."),
    ],
)
def test_the_whole_request_or_its_last_part_may_be_repeated(prompt: str, passes: str, fails: str) -> None:
    assert holds("repeats(r, prompt)", passes, prompt=prompt)
    assert not holds("repeats(r, prompt)", fails, prompt=prompt)


def test_a_misread_example_of_a_regular_expression_fails_the_program() -> None:
    right = r"`[A-Z]{2}-\d+`"
    assert holds('matches(r, "AB-12")', right, prompt="AB-12 is fine")
    for expression in ('matches(r, "AB-13")', 'matches(r, "AB-12") and no_match(r, "AB-12")'):
        with pytest.raises(ValueError, match="misread"):
            holds(expression, right, prompt="AB-12 is fine")


@pytest.mark.parametrize(
    ("expression", "passes", "fails"),
    [
        (
            "is_regex(r)",
            "Use this:\n```regex\n^\\d{5}$\n```\nIt takes five digits.",
            "Sure, I can do that. It is easy (really).",
        ),
        ("is_regex(r)", "`[a-z]+`", "`[a-z+`"),
        ("is_regex(r)", "The pattern is ^a|b$ and nothing else", "I will not."),
        ("is_regex(r)", r"(?<year>\d{4})-\d\d", r"(\d{4}-\d\d"),
        ("is_regex(r)", r'r"\bcat\b"', "cat"),
        ("is_regex(r)", r"\d+", "(" * 1500),
        ("is_regex(r)", r"^\w+$", r"^\p{Lu}+$"),
        ("is_regex(r)", "Like this:\n^\\d{4} [A-Z]{2}$\nMake the end optional if need be.", "Like this, and no more."),
        (
            'matches(r, "12345")',
            "```python\nimport re\nok = re.fullmatch(r'^\\d{5}$', s)\n```",
            "`re.match(r'\\d{4}', s)`",
        ),
        ('matches(r, "12345")', "```js\nconst code = /^\\d{5}$/i;\n```", "`code = /^\\d{4}$/`"),
        ('matches(r, "12345")', '`<input pattern="[0-9]{5}">`', "```\npattern = '[0-9]{4}'\n```"),
        ('matches(r, "12345")', "For `12345` you can take `\\d{5}`.", "For `12345` you can take `\\d{4}`."),
        (
            'matches(r, "12:34")',
            "So it is two pairs of digits:\n\n\\d\\d:\\d\\d",
            "So it is two pairs of digits:\n\n\\d\\d",
        ),
        ('matches(r, "x=5/7/")', r"`\w=\d/\d/`", r"`\w=\d/`"),
        ("is_regex(r)", '`<a href="[^"]+">`', '`<a href="[^"+">`'),
        ('matches(r, "/a/b")', r"^(/[a-z]+/)?b$|^/a/b$", r"^(/[a-z]+/)$"),
        ('matches(r, "AB-1234")', r"/^[A-Z]{2}-\d{4}$/", r"^[A-Z]{3}-\d{4}$"),
        ('matches(r, "AB-1234", "C-1")', r"[A-Z]+-\d+", r"[A-Z]{2}-\d+"),
        ('matches(r, "12:30")', r"\d\d:\d\d", r"\d\d"),
        ('no_match(r, "00000")', r"[1-9]\d{4}", r"\d{5}"),
        ('no_match(r, "ab-12")', r"```js\n/^[A-Z]{2}-\d+$/\n```".replace("\\n", "\n"), r"`/^[A-Z]{2}-\d+$/i`"),
        ('matches(r, "#FFF")', r"`re.compile(r'^#[0-9a-f]{3}$', re.IGNORECASE)`", r"`^#[0-9a-f]{3}$`"),
        ('matches(r, "AB-1")', r"Use `[A-Z]{2}` and `\d`: `[A-Z]{2}-\d`", r"Use `[A-Z]{2}` and `\d`: `[A-Z]{2}\d`"),
        ('matches(r, "$5")', r"For `$5` take `^\$\d+$`", r"For `$5` take `^$\d+$`"),
        ('matches(r, "12")', '```java\nPattern.compile("\\\\d{2}")\n```', '```java\nPattern.compile("\\\\d{3}")\n```'),
        ('matches(r, "AB-12")', "Regex: [A-Z]{2}-[0-9]{2}", "Regex: [A-Z]{2}-[0-9]{3}"),
        ('no_match(r, "a b")', r"\w+", "a nice pattern for you"),
    ],
)
def test_regular_expressions(expression: str, passes: str, fails: str) -> None:
    assert holds(expression, passes, prompt=expression)
    assert not holds(expression, fails, prompt=expression)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("She pays $18.00 every day.", 18),
        ("The answer is 5. That is 10 less than before.", 5),
        ("**Answer:** **1,250** of 3,000 seats", 1250),
        ("12 + 6 = 18, so \\boxed{18} after 2 steps", 18),
        ("#### -4", -4),
        ("First 3, then 7.", 7),
        ("Result: 2.5 kg", 2.5),
        ("The answers are 4 and 6", 6),
    ],
)
def test_the_final_number_is_the_stated_answer_or_the_last_number(response: str, answer: float) -> None:
    assert holds(f"answer(r, {answer})", response, prompt="")
    assert not holds(f"answer(r, {answer + 1})", response, prompt="")


@pytest.mark.parametrize("writer", ANSWERED_FORM_WRITERS)
def test_requests_with_answers_are_complete_and_not_in_the_training(writer: str) -> None:
    text = (WRITERS / writer / "forms.jsonl").read_text(encoding="utf-8")
    requests = [json.loads(line) for line in text.splitlines()]
    assert len({one["prompt"] for one in requests}) == len(requests) >= 95
    trained = {words for one in written_by(TRAINING_WRITERS).prompts for words in twelve_words(one.text)}
    for one in requests:
        assert one.keys() == {"prompt", "right", "wrong"}
        assert "" not in {one["right"].strip(), one["wrong"].strip()}, one["prompt"]
        assert one["right"] != one["wrong"], one["prompt"]
        assert trained.isdisjoint(twelve_words(one["prompt"])), one["prompt"]


def twelve_words(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[at : at + 12]) for at in range(len(words) - 11)}
