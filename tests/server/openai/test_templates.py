"""Judge prompts are parsed into requests, and schemas into formats of the verdict."""

from __future__ import annotations

import pytest

from tirjudge.types import Mode
from tirjudge_server.openai.forms import JsonForm, json_form
from tirjudge_server.openai.templates import criteria_in, recognise
from tirjudge_web.errors import Refused


def answers(**given: str) -> str:
    return "\n\n".join(
        f"[The Start of Assistant {name}'s Answer]\n{text}\n[The End of Assistant {name}'s Answer]"
        for name, text in given.items()
    )


def test_an_ordinary_message_is_not_a_judge_prompt() -> None:
    assert recognise("Is this a question? [[A]] Yes or no?") is None


def test_question_answers_and_reference_are_separated() -> None:
    reference = "[The Start of Reference Answer]\n4\n[The End of Reference Answer]"
    found = recognise(f"[User Question]\n2 + 2?\n\n{reference}\n\n{answers(A='four', B='five')}")
    assert found is not None
    assert found.fields["mode"] is Mode.PAIRWISE
    assert found.fields["prompt"] == "2 + 2?"
    assert found.fields["responses"] == ["four", "five"]
    assert found.fields["reference"] == "4"


def test_four_answers_are_judged_listwise() -> None:
    found = recognise(
        f"[User Question]\nWhich?\n\n{answers(A='1', B='2', C='3', D='4')}", instruction='"[[A]]", "[[C]]"'
    )
    assert found is not None
    assert found.fields["mode"] is Mode.LISTWISE
    assert found.fields["responses"] == list("1234")
    assert found.form.tie is None  # type: ignore


def test_prompt_with_markers_in_angle_brackets_gets_arrows() -> None:
    text = (
        "<|User Prompt|>\nHi\n\n<|The Start of Assistant A's Answer|>\na\n<|The End of Assistant A's Answer|>\n\n"
        "<|The Start of Assistant B's Answer|>\nb\n<|The End of Assistant B's Answer|>"
    )
    found = recognise(text, instruction="Say [[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]].")
    assert found is not None
    assert found.fields["prompt"] == "Hi"
    assert found.form.tie == "[[A=B]]"  # type: ignore


def test_an_answer_cannot_change_the_format() -> None:
    found = recognise(f"[User Question]\nWhich?\n\n{answers(A='[[C]] for a tie, [[A>B]]', B='b')}")
    assert found is not None
    assert found.form.tie is None  # type: ignore
    assert not found.form.arrows  # type: ignore


@pytest.mark.parametrize(
    "text",
    [
        f"[User Question]\nWhich?\n\n{answers(A='a', C='c')}",
        f"[User Question]\nWhich?\n\n{answers(B='b', A='a')}",
        "[User Question]\nWhich?\n\n[The Start of Assistant A's Answer]\na",
        answers(A="a", B="b"),
    ],
)
def test_an_ambiguous_prompt_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="judge"):
        recognise(text)


def test_the_scale_of_the_prompt_is_used() -> None:
    text = "[Question]\nHi\n\n[The Start of Assistant's Answer]\na\n[The End of Assistant's Answer]"
    found = recognise(text, instruction="Rate on a scale from 0 to 100.")
    assert found is not None
    assert (found.form.low, found.form.high) == (0, 100)  # type: ignore


def test_sentences_about_the_format_are_not_criteria() -> None:
    assert criteria_in('Be fair. Say "[[A]]" or "[[B]]". Mind the length.') == "Be fair. Mind the length."
    assert criteria_in("### Final Score: 1\n\nor\n\n### Final Score: 0") is None


DOUBLING = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)} | {"a60": {}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"best": {"type": "string"}}},
        {"type": "object", "properties": {"price": {"type": "number"}}},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"score": {}}, "required": ["price"]},
        {"type": "object", "properties": {"score": {}}, "required": [["score"]]},
        {"type": "object", "properties": {"score": {"minimum": "1"}}},
        {"type": "object", "properties": {"label": {"pattern": "(?=x)"}}},
        {"type": "object", "properties": {"label": {"$ref": "http://127.0.0.1:1/schema.json"}}},
        {"type": "object", "properties": {"label": {"const": "A"}, "score": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": {"label": {"$ref": "#/properties/label"}}},
        {"type": "object", "properties": {"label": {"$ref": "#/$defs/a0"}}, "$defs": DOUBLING},
    ],
)
def test_a_schema_that_fits_no_verdict_is_refused(schema: dict) -> None:
    with pytest.raises(Refused) as caught:
        json_form({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert caught.value.problem.param == "response_format"


def test_response_format_json_object_returns_the_whole_verdict() -> None:
    assert json_form({"type": "json_object"}) == JsonForm()
