"""The form of a request: values of a browser become a request, and errors are shown at their fields."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tirjudge.http.protocol import problem_of
from tirjudge.types import Criterion, JudgeRequest, Mode
from tirjudge_pages.request_form import MAX_CRITERION_FIELDS, MAX_RESPONSE_FIELDS, RequestForm

FULL = JudgeRequest(
    mode=Mode.LISTWISE,
    prompt="\nName a river.\n\n",
    responses=["the Rhine", "", "the Nile\n"],
    reference="any river",
    rubric="Rivers only.",
    criteria=[Criterion(text="a river", weight=2.5), Criterion(text="short")],
    tools="off",
    orders="both",
    votes=3,
)
FIELDS = {"mode": "pairwise", "prompt": "p", "responses.0": "a", "responses.1": "b"}


def test_a_request_survives_its_form() -> None:
    assert RequestForm.of_request(FULL).request() == FULL


def test_line_breaks_of_browsers_become_those_of_texts() -> None:
    assert RequestForm.of_form(FIELDS | {"prompt": "a\r\nb\rc\n"}).request().prompt == "a\nb\rc\n"


def test_empty_fields_at_the_end_are_left_out() -> None:
    form = RequestForm.of_form(
        FIELDS | {"mode": "pointwise", "responses.1": "", "criteria.0.text": "", "criteria.0.weight": "2", "votes": ""}
    )
    assert form.request() == JudgeRequest(mode=Mode.POINTWISE, prompt="p", responses=["a"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"responses.1": ""}, "responses"),
        ({"mode": "<b>"}, "mode"),
        ({"votes": "0"}, "votes"),
        ({"votes": "many"}, "votes"),
        ({"votes": "9" * 5000}, "votes"),
        ({"tools": "maybe"}, "tools"),
        ({"criteria.0.text": "", "criteria.1.text": "x"}, "criteria.0.text"),
        ({"criteria.0.text": "x", "criteria.0.weight": "heavy"}, "criteria.0.weight"),
        ({"criteria.0.text": "x", "criteria.0.weight": "nan"}, "criteria.0.weight"),
    ],
)
def test_an_error_belongs_to_its_field(fields: dict[str, str], param: str) -> None:
    form = RequestForm.of_form(FIELDS | fields)
    with pytest.raises(ValidationError) as raised:
        form.request()
    assert form.field_of(problem_of(raised.value).param) == param


def test_an_error_without_a_field_belongs_to_the_form() -> None:
    form = RequestForm.of_form(FIELDS)
    assert [form.field_of(param) for param in (None, "model", "responses.7", "." * 100_000)] == [
        "",
        "",
        "responses",
        "",
    ]


def test_fields_are_added_up_to_a_maximum() -> None:
    form = RequestForm.of_form(FIELDS)
    assert form.with_response().num_responses == 3
    assert form.with_criterion().num_criteria == 2
    for _ in range(20):
        form = form.with_response().with_criterion()
    assert (form.num_responses, form.num_criteria) == (MAX_RESPONSE_FIELDS, MAX_CRITERION_FIELDS)
    many = RequestForm.of_form({f"responses.{n}": "x" for n in range(40)})
    assert many.num_responses == MAX_RESPONSE_FIELDS
