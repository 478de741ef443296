"""The prompt that a model reads, and the variables that are defined for a program."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge.formats.blocks import bindings, labels
from tirjudge.formats.texts import elide, fill, neutralise
from tirjudge.formats.tirjudge_1 import FORMAT
from tirjudge.types import MODEL_MODES, Criterion, Mode, label_of

GOLDEN = Path(__file__).parent / "golden"
RESPONSES = {Mode.POINTWISE: ["Blue."], Mode.PAIRWISE: ["Blue.", "Green."], Mode.LISTWISE: ["Blue.", "Green.", "Red."]}
NO_LIMIT = {"prompt_chars": 10_000, "response_chars": 10_000, "max_tool_calls": 3}
HOSTILE = [
    "</preference>",
    "```output",
    "````",
    "<|im_end|>",
    "</response_a>",
    "<response_b>",
    "[INST]",
    "</prompt>",
    "<score>",
]


@pytest.mark.parametrize("tools", [True, False], ids=["tools", "plain"])
@pytest.mark.parametrize("mode", MODEL_MODES)
def test_prompt_equals_its_golden_file(mode: Mode, tools: bool) -> None:
    text = FORMAT.render_prompt(mode, prompt="Name a colour.", responses=RESPONSES[mode], tools=tools, **NO_LIMIT)
    golden = GOLDEN / f"{mode}_{'tools' if tools else 'plain'}.txt"
    assert text == golden.read_text(encoding="utf-8")


GUIDANCE = {
    "reference": "Blue is one.",
    "criteria": [Criterion(name="Fit", text="It names a colour.", weight=2.0), Criterion(text="It is short.")],
    "rubric": "10: a colour in one word. 1: no colour.",
}


@pytest.mark.parametrize("tools", [True, False], ids=["tools", "plain"])
@pytest.mark.parametrize("mode", MODEL_MODES)
def test_prompt_with_all_optional_sections_equals_its_golden_file(mode: Mode, tools: bool) -> None:
    text = FORMAT.render_prompt(
        mode, prompt="Name a colour.", responses=RESPONSES[mode], tools=tools, **NO_LIMIT, **GUIDANCE
    )
    golden = GOLDEN / f"{mode}_{'tools' if tools else 'plain'}_guided.txt"
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["reference", "criteria", "rubric"])
def test_each_optional_field_adds_one_section(name: str) -> None:
    plain = FORMAT.render_prompt(Mode.PAIRWISE, prompt="p", responses=["x", "y"], tools=True, **NO_LIMIT)
    text = FORMAT.render_prompt(
        Mode.PAIRWISE, prompt="p", responses=["x", "y"], tools=True, **NO_LIMIT, **{name: GUIDANCE[name]}
    )
    before, after = plain.split("</prompt>")
    assert text.startswith(before)
    assert text.endswith(after)
    assert [text.count(f"<{other}>") for other in GUIDANCE] == [int(other == name) for other in GUIDANCE]


@pytest.mark.parametrize("delimiter", [*HOSTILE, "</reference>", "<criteria>", "</Rubric>"])
def test_delimiters_are_neutralized_in_prompts_with_optional_sections(delimiter: str) -> None:
    def counted(text: str) -> int:
        guidance = {"reference": text, "criteria": [Criterion(name=text, text=text)], "rubric": text}
        shown = FORMAT.render_prompt(
            Mode.PAIRWISE, prompt=text, responses=[text] * 2, tools=True, **NO_LIMIT, **guidance
        )
        return shown.lower().count(delimiter.lower())

    assert counted(delimiter) == counted("x")


def test_tags_of_optional_sections_are_unchanged_in_a_prompt_without_such_sections() -> None:
    tags = "<rubric></reference><criteria>"
    assert tags in FORMAT.render_prompt(Mode.POINTWISE, prompt="p", responses=[tags], tools=True, **NO_LIMIT)


def test_long_optional_sections_are_elided_and_programs_get_the_full_reference() -> None:
    limits = {"prompt_chars": 400, "response_chars": 300, "max_tool_calls": 3}
    long = {
        "reference": "r" * 9000,
        "criteria": [Criterion(text="c" * 9000) for _ in range(4)],
        "rubric": "b" * 9000,
    }
    text = FORMAT.render_prompt(Mode.POINTWISE, prompt="p", responses=["x"], tools=True, **limits, **long)
    letters = [max(len(run) for run in re.findall(f"{letter}+", text)) for letter in "rcb"]
    assert letters == [150, 50, 200]
    assert text.count(" characters ...]") == 6
    assert bindings(Mode.POINTWISE, prompt="p", responses=["x"], reference="r" * 9000)["reference"] == "r" * 9000
    assert "reference" not in bindings(Mode.POINTWISE, prompt="p", responses=["x"])


def test_placeholders_in_a_response_are_not_expanded() -> None:
    text = FORMAT.render_prompt(
        Mode.PAIRWISE,
        prompt="{responses}",
        responses=["{response_b} {prompt} {max_tool_calls}", "secret"],
        tools=True,
        **NO_LIMIT,
    )
    assert text.count("secret") == 1
    assert "{response_b} {prompt} {max_tool_calls}" in text
    assert "{responses}" in text


@pytest.mark.parametrize("delimiter", HOSTILE)
@pytest.mark.parametrize("mode", MODEL_MODES)
def test_delimiters_in_untrusted_text_are_neutralized(mode: Mode, delimiter: str) -> None:
    clean = FORMAT.render_prompt(mode, prompt="p", responses=["x"] * len(RESPONSES[mode]), tools=True, **NO_LIMIT)
    text = FORMAT.render_prompt(
        mode, prompt=delimiter, responses=[delimiter] * len(RESPONSES[mode]), tools=True, **NO_LIMIT
    )
    assert text.count(delimiter) == clean.count(delimiter)


@given(st.lists(st.sampled_from([*HOSTILE, "`", "<", "|", "/", ">", " ", "a"])).map("".join))
def test_neutralized_text_has_no_delimiters_and_neutralizing_is_idempotent(text: str) -> None:
    once = neutralise(text)
    assert not any(delimiter in once for delimiter in HOSTILE)
    assert neutralise(once) == once
    assert once.replace(" ", "") == text.replace(" ", "")


@given(st.text(max_size=60), st.integers(1, 40))
def test_elided_text_has_head_tail_and_the_omitted_length(text: str, limit: int) -> None:
    shown = elide(text, limit=limit)
    if len(text) <= limit:
        assert shown == text
        return
    head, _, tail = shown.partition(f" [... {len(text) - limit} characters ...] ")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) == limit


def test_programs_get_the_full_texts() -> None:
    long = "</response_a> ```" * 1000
    bound = bindings(Mode.PAIRWISE, prompt="{prompt}", responses=[long, ""])
    assert bound == {"prompt": "{prompt}", "response_a": long, "response_b": "", "responses": {"A": long, "B": ""}}
    assert bindings(Mode.POINTWISE, prompt="p", responses=["r"]) == {"prompt": "p", "response": "r"}


def test_listwise_shows_twenty_six_responses_with_their_letters() -> None:
    responses = [f"answer {i}" for i in range(26)]
    text = FORMAT.render_prompt(Mode.LISTWISE, prompt="p", responses=responses, tools=True, **NO_LIMIT)
    for i, response in enumerate(responses):
        name = f"response_{label_of(i).lower()}"
        assert f"<{name}>\n{response}\n</{name}>" in text
    assert "A to Z" in text
    assert labels(Mode.LISTWISE, 26)[-1] == "Z"


def test_fill_raises_for_a_placeholder_without_a_value() -> None:
    with pytest.raises(KeyError, match="colour"):
        fill("{colour}", {})
