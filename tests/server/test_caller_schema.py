"""Schemas of callers: patterns in linear time, limits, and no other documents."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from tirjudge_server import caller_schema
from tirjudge_server.caller_schema import MAX_PATTERNS, MAX_STEPS, CallerSchema, UncheckableValue

DIALECT = "https://json-schema.org/draft/2020-12/schema"


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
        ({"uniqueItems": True}, [True, 1, False, 0, "1", [1], {"a": 1}], [1, 1.0]),
        ({"uniqueItems": True}, [{"a": 1}, {"a": 2}], [{"a": 1, "b": [0]}, {"b": [-0.0], "a": 1.0}]),
        ({"multipleOf": 0.01}, 19.99, 19.999),
        ({"multipleOf": 0.5}, 10**400, 0.25),
        ({"$ref": "#/default", "default": {"pattern": "^(a+)+$"}}, "a" * 50_000, "a" * 50_000 + "b"),
        (
            {
                "$schema": DIALECT,
                "properties": {"a": {"$ref": "#/$defs/s"}, "b": {"$ref": "#"}},
                "$defs": {"s": {"pattern": "^(a+)+$"}},
            },
            {"b": {"a": "a" * 50_000}},
            {"b": {"a": "a" * 50_000 + "b"}},
        ),
        (
            {"items": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}},
            ["a" * 50_000],
            ["a" * 50_000 + "b"],
        ),
        (
            {"default": {"$schema": DIALECT, "pattern": "^(a+)+$"}, "$ref": "#/default"},
            "a" * 50_000,
            "a" * 50_000 + "b",
        ),
        ({"items": {"$ref": DIALECT}}, [{"type": "string"}], [{"type": "nope"}]),
        (
            {"$id": "https://a.org/b.json", "$ref": "b.json#/$defs/c", "$defs": {"c": {"type": "string"}}},
            "a",
            1,
        ),
        ({"properties": {"$id": {"enum": [{"$id": "a"}]}}}, {"$id": {"$id": "a"}}, {"$id": "a"}),
        ({"properties": {"\ud800": {"type": "string"}}}, {"\ud800": "a"}, {"\ud800": 1}),
        ({"pattern": "^.$"}, "\ud800", "ab"),
        ({"pattern": "^(a+)+$"}, "a" * 50_000, "a" * 50_000 + "b"),  # exponential with backtracking
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 99: 1}, {"a" * 9999 + "b": 1}),
    ],
)
def test_values_are_checked_against_patterns(schema: Any, valid: Any, invalid: Any) -> None:
    checked = CallerSchema(schema)
    assert checked.problem(valid) is None
    problem = checked.problem(invalid)
    assert problem is not None
    assert problem.encode()


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
        ({"items": {"$id": DIALECT, "$ref": "#"}}, "$id: only supported at the top"),
        ({"$id": "a:b", "$ref": "c", "$defs": {"c": {"$id": "c"}}}, "$id: only supported at the top"),
        ({"not": {"$id": "a:b", "$ref": "#/x/t", "x": {"t": {}}}, "x": {"t": 1}}, "$id: only supported at the top"),
        (
            {"$ref": "#/default", "default": {"not": {"$id": "a:b", "$ref": "#/x/t", "x": {"t": {}}}}},
            "$id: only supported at the top",
        ),
        ({"$ref": "#/$defs/missing"}, "the schema has no '#/$defs/missing'; only references such as #/$defs/NAME"),
        ({"items": {"$ref": "other.json"}}, "the schema has no 'other.json'; only references such as"),
        ({"items": {"$dynamicRef": "http://127.0.0.1:1/schema.json"}}, "only references such as #/$defs/NAME"),
        ({"$ref": "#/" + "x" * 10_000}, "the schema has no '#/x"),
        ({"$id": "http://[\ud800"}, "an identifier ($id, $anchor or $schema) is invalid"),
        ({"$ref": "#/type/" + "x" * 10_000, "type": "object"}, "$ref: '#/type/x"),
    ],
)
def test_schemas_without_limits_are_refused(schema: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        CallerSchema(schema)
    assert len(str(caught.value).encode()) < 1000


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "#/type/0", "type": "object"}, "$ref: '#/type/0' given, expected a reference to a schema"),
        ({"$ref": "#/allOf/x", "allOf": [{}]}, "'#/allOf/x' given"),
        ({"$ref": "#/const", "const": "x"}, "'#/const' given"),
        ({"$ref": "#/minLength/x", "minLength": 1}, "'#/minLength/x' given"),
        ({"items": {"$ref": "#/default"}, "default": {"type": "nope"}}, "type: 'nope' is not valid"),
        ({"$ref": "#/default", "default": {"required": 5}}, "required: 5"),
        (
            {"$dynamicRef": "#/default", "default": {"properties": {"a": {"multipleOf": 0}}}},
            "properties.a.multipleOf: 0",
        ),
        ({"$ref": "#/default", "default": {"properties": {"a": {"pattern": "("}}}}, "not valid in re2"),
        ({"$ref": "#/default", "default": {"not": {"$ref": "#/examples/0"}}, "examples": [5]}, "'#/examples/0' given"),
        ({"$id": "http://[", "properties": {"a": {"$ref": "b"}}}, "an identifier ($id, $anchor or $schema) is invalid"),
    ],
)
def test_a_reference_to_what_is_no_schema_is_refused(schema: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        CallerSchema(schema)


def test_equal_hashes_and_many_anchors_take_no_quadratic_time() -> None:
    started = time.process_time()
    assert CallerSchema({"uniqueItems": True}).problem([n * (2**61 - 1) for n in range(20_000)]) is None
    anchors = range(1200)
    schema = {"allOf": [{"$ref": f"#a{n}"} for n in anchors], "$defs": {f"d{n}": {"$anchor": f"a{n}"} for n in anchors}}
    assert CallerSchema(schema).problem(1) is None
    assert time.process_time() - started < 8


def test_the_check_of_a_schema_has_a_limited_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_schema, "MAX_SCHEMA_STEPS", 20_000)
    part: Any = {"allOf": [{}] * 100}
    for _ in range(60):
        part = {"not": part}
    given = {"default": part, "allOf": [{"$ref": "#/default" + "/not" * depth} for depth in range(60)]}
    with pytest.raises(ValueError, match="cannot be checked in 20000 steps"):
        CallerSchema(json.loads(json.dumps(given)))


def test_the_characters_that_patterns_search_are_limited() -> None:
    schema = CallerSchema({"allOf": [{"pattern": f"{n}$"} for n in range(50)]})
    assert schema.problem("x 49") is not None
    text = "x" * 3_000_000
    assert schema.problem(text) is not None
    many = CallerSchema({"allOf": [{"anyOf": [{"pattern": f"{n}$"}, {"type": "string"}]} for n in range(50)]})
    with pytest.raises(UncheckableValue, match=f"cannot be checked in {MAX_STEPS} steps"):
        many.problem(text)
    keys = {json.dumps([n]): n for n in range(2000)}
    names = CallerSchema({"patternProperties": {f"{n}$": {} for n in range(50)}})
    with pytest.raises(UncheckableValue, match=f"cannot be checked in {MAX_STEPS} steps"):
        names.problem(keys)


def test_the_references_of_unevaluated_properties_are_limited() -> None:
    both = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}", "$dynamicRef": f"#/$defs/a{n + 1}"} for n in range(60)}
    schema = {"unevaluatedProperties": False, "$ref": "#/$defs/a0", "$defs": both | {"a60": {}}}
    with pytest.raises(UncheckableValue, match=f"cannot be checked in {MAX_STEPS} steps"):
        CallerSchema(schema).problem({"x": 1})


def test_a_value_is_uncheckable_where_a_reference_leads_to_itself() -> None:
    with pytest.raises(UncheckableValue, match="a reference leads to itself"):
        CallerSchema({"$ref": "#"}).problem("x")


def test_a_schema_is_tried_to_its_end() -> None:
    schema = CallerSchema({"type": "string", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})
    assert schema.problem(1) == "1 is not of type 'string'"
    with pytest.raises(UncheckableValue, match="a reference leads to itself"):
        schema.try_on(1)


def test_a_caller_of_the_check_sets_its_limit() -> None:
    schema = {"items": {"type": "integer"}}
    assert CallerSchema(schema).problem([1] * 1000) is None
    with pytest.raises(UncheckableValue, match="cannot be checked in 500 steps"):
        CallerSchema(schema, max_steps=500).problem([1] * 1000)


def test_messages_that_repeat_a_long_value_are_counted() -> None:
    """Each branch makes a message with the whole value, which would take a minute for a text of 10 MB."""
    schema = CallerSchema({"anyOf": [{"const": n} for n in range(1000)]})
    assert (schema.problem("short") or "").startswith("'short' is not valid under any of the given schemas")
    with pytest.raises(UncheckableValue, match=f"cannot be checked in {MAX_STEPS} steps"):
        schema.problem({"text": "x" * 1_000_000})
    assert CallerSchema({"properties": {"text": {"type": "string"}}}).problem({"text": "x" * 1_000_000}) is None


def test_the_dialect_and_id_of_a_schema_have_no_effect() -> None:
    schema = CallerSchema(
        {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "x", "items": {"$ref": "#"}, "minItems": 1}
    )
    assert schema.problem([[[1]]]) is None
    assert schema.problem([[]]) is not None
