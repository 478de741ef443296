"""Schemas of rows: patterns in linear time, and limits."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tirjudge_server.evals.item_schema import MAX_PATTERNS, MAX_STEPS, ItemSchema


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"pattern": "^[0-9]+$"}, "12", "12\n"),
        ({"pattern": "b"}, "abc", "a"),  # it matches anywhere
        ({"pattern": r"^\w+@\w+\.org$"}, "a@b.org", "a@b.com"),
        ({"pattern": "^a"}, 3, "b"),  # of strings only
        ({"properties": {"pattern": {"pattern": "^x"}}}, {"pattern": "xy"}, {"pattern": "yx"}),
        ({"properties": {"a": {"enum": [{"pattern": "("}]}}}, {"a": {"pattern": "("}}, {"a": 1}),
        ({"patternProperties": {"^n_": {"type": "integer"}}}, {"n_a": 1, "b": "x"}, {"n_a": "x"}),
        ({"patternProperties": {"^n_": {}}, "additionalProperties": False}, {"n_a": 1}, {"b": 1}),
        (
            {"properties": {"b": {}}, "patternProperties": {"^n_": {}}, "additionalProperties": {"type": "null"}},
            {"b": 1, "n_a": 1, "c": None},
            {"c": 1},
        ),
        ({"propertyNames": {"pattern": "^[a-z]+$"}}, {"ab": 1}, {"A": 1}),
        ({"uniqueItems": True}, [1, 2], [1, 1]),
        ({"pattern": "^.$"}, "\ud800", "ab"),
        ({"pattern": "^(a+)+$"}, "a" * 50_000, "a" * 50_000 + "b"),  # exponential with backtracking
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 99: 1}, {"a" * 9999 + "b": 1}),
    ],
)
def test_values_are_checked_against_patterns(schema: Any, valid: Any, invalid: Any) -> None:
    checked = ItemSchema(schema)
    assert checked.problem(valid) is None
    problem = checked.problem(invalid)
    assert problem is not None
    assert "cannot be checked" not in problem


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"pattern": "(?=x)"}, "not valid in re2: invalid perl operator: (?=; "),
        ({"pattern": r"(a)\1"}, "use no lookaround and no back-references"),
        ({"properties": {"a": {"patternProperties": {"(": {}}}}}, "not valid in re2"),
        ({"pattern": "\ud800("}, "not valid in re2"),
        ({"pattern": "(a{1000}){1000}"}, "not valid in re2"),
        ({"allOf": [{"pattern": str(n)} for n in range(MAX_PATTERNS + 1)]}, "patterns given; the limit is"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "use additionalProperties"),
        ({"pattern": 3}, "not a JSON Schema"),
    ],
)
def test_patterns_that_take_no_linear_time_are_refused(schema: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        ItemSchema(schema)
    assert len(str(caught.value)) < 1000


def test_the_characters_that_patterns_search_are_limited() -> None:
    schema = ItemSchema({"allOf": [{"pattern": f"{n}$"} for n in range(50)]})
    assert schema.problem("x 49") is not None
    text = "x" * 3_000_000
    assert schema.problem(text) is not None
    many = ItemSchema({"allOf": [{"anyOf": [{"pattern": f"{n}$"}, {"type": "string"}]} for n in range(50)]})
    assert f"cannot be checked in {MAX_STEPS} steps" in str(many.problem(text))
    keys = {json.dumps([n]): n for n in range(2000)}
    names = ItemSchema({"patternProperties": {f"{n}$": {} for n in range(50)}})
    assert f"cannot be checked in {MAX_STEPS} steps" in str(names.problem(keys))
