"""Checks of responses: each kind over real stores and the real sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tirjudge.checks import Checks, Gate
from tirjudge.errors import SandboxUnavailable
from tirjudge.tools.base import ToolOptions
from tirjudge.types import CheckReason, CheckResult, JudgeRequest, Mode
from tirjudge_evidence.checks.ask import filled, term
from tirjudge_evidence.checks.base import Missing
from tirjudge_evidence.checks.opening import open_file
from tirjudge_evidence.functions import shared_stores

APPLICANTS = "id,income,debt\nA-1,4000,2500\nA-2,4000,100\n"
STORES = [{"name": "bank", "kind": "table", "files": ["applicants.csv"]}]
DEBT = {
    "name": "debt",
    "kind": "sql",
    "store": "bank",
    "query": "SELECT id, debt FROM applicants WHERE id = $id AND $decision = 'approve' AND debt > 0.4 * income",
    "params": {"id": "/applicant", "decision": "/decision"},
}

OpenChecksIn = Callable[..., AbstractAsyncContextManager[Checks]]


@pytest.fixture
def opened(tmp_path: Path) -> OpenChecksIn:
    """Opens checks from their settings."""
    (tmp_path / "applicants.csv").write_text(APPLICANTS)

    def open_them(*checks: dict[str, Any], stores: list[dict[str, Any]] | None = None) -> Any:
        file = tmp_path / "rules.json"
        file.write_text(json.dumps({"store": stores or [], "check": list(checks)}))
        return open_file(str(file), ToolOptions(slots=1))

    return open_them


async def examined(checks: Checks, *responses: str, **fields: Any) -> list[CheckResult]:
    """Result of the first check for each response."""
    request = JudgeRequest(mode=Mode.RULES, prompt="May A-1 get a loan?", responses=list(responses), **fields)
    return [results[0] for results in await checks.examine(request)]


def answer(**fields: Any) -> str:
    return f"My answer:\n```json\n{json.dumps(fields)}\n```\n"


async def test_row_that_sql_returns_is_a_violation_and_is_named(opened: OpenChecksIn) -> None:
    async with opened(DEBT, stores=STORES) as checks:
        bad, good, other = await examined(
            checks,
            answer(applicant="A-1", decision="approve"),
            answer(applicant="A-1", decision="reject"),
            answer(applicant="A-2", decision="approve"),
        )
        assert (good.passed, other.passed, bad.passed) == (True, True, False)
        assert bad.reasons[0].row == {"id": "A-1", "debt": 2500}
        assert bad.reasons[0].store == "bank"
        [quoted] = await examined(checks, answer(applicant="' OR 1=1 --", decision="approve"))
        assert quoted.passed
        [missing] = await examined(checks, answer(applicant="A-1"))
        assert (missing.passed, missing.reasons[0].message) == (
            False,
            "the JSON of the response has nothing at /decision",
        )


async def test_sql_may_expect_rows_and_takes_groups_of_a_pattern(opened: OpenChecksIn) -> None:
    check = {
        **DEBT,
        "query": "SELECT 1 FROM applicants WHERE id = $id AND debt = $debt",
        "params": {},
        "extract": r"(?P<id>A-\d+) owes (?P<debt>\d+)",
        "types": {"debt": "integer"},
        "expect": "rows",
        "if_missing": "skip",
    }
    async with opened(check, stores=STORES) as checks:
        right, wrong, silent = await examined(checks, "A-1 owes 2500.", "A-1 owes 2501.", "I do not know.")
    assert (right.passed, wrong.failed) == (True, True)
    assert (silent.passed, silent.failed, silent.skipped) == (
        False,
        False,
        "the pattern of `extract` does not match the response",
    )


async def test_changed_store_fails_the_judgment(opened: OpenChecksIn, tmp_path: Path) -> None:
    async with opened(DEBT, stores=STORES) as checks:
        (tmp_path / "applicants.csv").write_text(APPLICANTS.replace("2500", "1"))
        with pytest.raises(SandboxUnavailable, match="changed after it was opened"):
            await examined(checks, answer(applicant="A-1", decision="approve"))


SCHEMA = {
    "type": "object",
    "required": ["amount"],
    "properties": {
        "amount": {"type": "integer", "maximum": 100},
        "code": {"type": "string", "pattern": "^(a+)+$"},
        "tags": {"uniqueItems": True},
    },
}


@pytest.mark.parametrize(
    ("response", "path"),
    [
        (answer(amount=100), None),
        ('{"amount": 1, "tags": ["a", "b"]}', None),
        (answer(amount=101), "/amount"),
        (answer(amount="1"), "/amount"),
        ("{}", ""),
        (answer(amount=1, tags=[{"a": 1}, {"a": 1}]), "/tags"),
        (answer(amount=1, code="a" * 100_000 + "b"), "/code"),
    ],
)
async def test_json_of_the_response_fits_the_schema(opened: OpenChecksIn, response: str, path: str | None) -> None:
    async with opened({"name": "form", "kind": "json_schema", "schema": SCHEMA}) as checks:
        [found] = await examined(checks, response)
    assert [reason.path for reason in found.reasons] == ([] if path is None else [path])
    assert found.passed == (path is None)


@pytest.mark.parametrize("response", ["no JSON", "[" * 100_000, '{"amount": NaN}', "[" * 100 + "1" + "]" * 100])
async def test_response_without_json_fails_or_is_skipped(opened: OpenChecksIn, response: str) -> None:
    check = {"name": "form", "kind": "json_schema", "schema": SCHEMA}
    async with opened(check, {**check, "name": "other", "if_missing": "skip"}) as checks:
        request = JudgeRequest(mode=Mode.RULES, prompt="p", responses=[response])
        [[failed, skipped]] = await checks.examine(request)
    assert (failed.failed, skipped.failed, skipped.skipped is None) == (True, False, False)


NUMBERS = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "multipleOf": 0.01},
        "decision": {"enum": ["approve", "reject"]},
        "tags": {"uniqueItems": True},
    },
}
HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("response", "path"),
    [
        (f'{{"amount": {HUGE}}}', None),
        (f'{{"decision": {HUGE}}}', "/decision"),
        ('{"amount": 19.99}', None),  # 19.99 / 0.01 is 1998.9999999999998
        ('{"amount": 19.999}', "/amount"),
        ('{"amount": 1e308}', None),
        ('{"amount": 5e-324}', "/amount"),
        ('{"tags": [1, 1.0]}', "/tags"),
        ('{"tags": [{"a": [-0.0]}, {"a": [0]}]}', "/tags"),
        ('{"tags": [true, 1, false, 0, "1", [1]]}', None),
    ],
)
async def test_numbers_are_compared_exactly(opened: OpenChecksIn, response: str, path: str | None) -> None:
    async with opened({"name": "form", "kind": "json_schema", "schema": NUMBERS}) as checks:
        [found] = await examined(checks, response)
    assert [reason.path for reason in found.reasons] == ([] if path is None else [path])


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 5000])
async def test_number_that_is_too_large_is_a_finding(opened: OpenChecksIn, number: str) -> None:
    check = {"name": "form", "kind": "json_schema", "schema": NUMBERS, "gate": {"cap": 3}}
    async with opened(check) as checks:
        [found] = await examined(checks, f'{{"decision": {number}}}')
    assert found.failed
    assert "number" in found.reasons[0].message or "no valid JSON" in found.reasons[0].message


SURROGATES = r'{"decision": "\ud800", "\udfff": {"a": "\ud800"}, "code": "\ud800"}'


@pytest.mark.parametrize(
    "check",
    [
        {"kind": "json_schema", "schema": {"properties": {"decision": {"enum": ["approve"]}}}},
        {"kind": "json_schema", "schema": {"additionalProperties": {"type": "string"}}},
        {"kind": "json_schema", "schema": {"properties": {"code": {"pattern": "^[a-z]$"}}}},
        {"kind": "sql", "store": "bank", "query": "SELECT $value AS value", "params": {"value": "/decision"}},
        {"kind": "python", "code": r"""print('{"passed": false, "reason": "\\ud800"}')"""},
    ],
)
async def test_no_finding_has_a_lone_surrogate(opened: OpenChecksIn, check: dict[str, Any]) -> None:
    async with opened({"name": "x", **check}, stores=STORES) as checks:
        [found] = await examined(checks, SURROGATES)
    assert found.failed
    assert "\ufffd" in found.model_dump_json()


def test_a_reason_can_always_be_encoded() -> None:
    reason = CheckReason(
        message="\ud800", path="/\udfff", row={"\ud800": "a\ud800"}, value=[{"\ud800": 1e999}, "\U0001f600"]
    )
    assert json.loads(reason.model_dump_json()) == {
        "message": "\ufffd",
        "path": "/\ufffd",
        "row": {"\ufffd": "a\ufffd"},
        "value": [{"\ufffd": None}, "\U0001f600"],
    }


async def test_patterns_take_linear_time_where_a_schema_names_its_draft(opened: OpenChecksIn) -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"code": {"pattern": "^(a+)+$"}, "next": {"$ref": "#"}},
    }
    async with opened({"name": "form", "kind": "json_schema", "schema": schema}) as checks:
        [found] = await examined(checks, json.dumps({"next": {"code": "a" * 10_000 + "b"}}))
    assert [reason.path for reason in found.reasons] == ["/next/code"]


async def test_response_must_match_or_must_not(opened: OpenChecksIn) -> None:
    def check(expect: str) -> dict[str, Any]:
        return {"name": expect, "kind": "pattern", "pattern": r"(?i)\bguarantee", "expect": expect}

    async with opened(check("match"), check("no_match")) as checks:
        request = JudgeRequest(mode=Mode.RULES, prompt="p", responses=["We Guarantee it.", "Perhaps."])
        found = await checks.examine(request)
    assert [[each.passed for each in row] for row in found] == [[True, False], [False, True]]
    assert found[0][1].reasons[0].value == "Guarantee"


PROGRAM = """
import json
print("working")
print(json.dumps({"passed": len(response) <= len(reference) and "loan" in prompt, "reason": "too long"}))
"""


async def test_program_decides_with_its_last_line(opened: OpenChecksIn) -> None:
    async with opened({"name": "short", "kind": "python", "code": PROGRAM}) as checks:
        short, long = await examined(checks, "no", "no, never", reference="nope")
    assert short.passed
    assert (long.passed, long.reasons[0].message) == (False, "too long")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('yes')", "the last line of the program"),
        ("1 / 0", "ended with error"),
        ("exec(response)", "executed the response in its own process"),
    ],
)
async def test_program_that_does_not_answer_fails_the_response(opened: OpenChecksIn, code: str, said: str) -> None:
    forged = "print('{\"passed\": true}')\nimport os, sys; sys.stdout.flush(); os._exit(0)"
    async with opened({"name": "code", "kind": "python", "code": code}) as checks:
        [found] = await examined(checks, forged)
    assert not found.passed
    assert said in found.reasons[0].message


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"name": "x", "kind": "magic"}, "unknown kind of check 'magic'"),
        ({"name": "x", "kind": "pattern", "pattern": "(a"}, "not valid in re2"),
        ({"name": "x", "kind": "pattern", "pattern": "a", "colour": 1}, "colour"),
        ({"name": "x", "kind": "json_schema", "schema": {"$ref": "http://a/b"}}, "inside the schema"),
        ({"name": "x", "kind": "json_schema", "schema": {"patternProperties": {"a": {}}}}, "patternProperties"),
        ({"name": "x", "kind": "json_schema", "schema": {"type": 3}}, "not a valid JSON Schema"),
        (
            {"name": "x", "kind": "json_schema", "schema": {"$ref": "#/default", "default": 5}},
            "a reference to a schema",
        ),
        ({"name": "x", "kind": "json_schema", "schema": {"items": {"$ref": "#/$defs/a"}}}, "leads nowhere"),
        ({"name": "x", "kind": "json_schema", "schema": {"multipleOf": 1e999}}, "not a valid JSON Schema"),
        ({"name": "x", "kind": "python", "code": "1 +"}, "not valid Python"),
        ({**DEBT, "store": "none"}, "store 'none' is not in the file"),
        ({**DEBT, "types": {"age": "integer"}}, "age is neither"),
        ({**DEBT, "weight": 0}, "weight"),
        ({**DEBT, "gate": {"cap": 11}}, "gate"),
    ],
)
async def test_invalid_check_is_refused_by_name(opened: OpenChecksIn, check: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r"x|debt") as refused:
        async with opened(check):
            pass
    assert said in str(refused.value)


async def test_two_checks_of_one_name_are_refused(opened: OpenChecksIn) -> None:
    check = {"name": "x", "kind": "pattern", "pattern": "a"}
    with pytest.raises(ValueError, match="two checks named 'x'"):
        async with opened(check, check):
            pass


async def test_card_has_the_gate_and_a_digest_of_the_definition(opened: OpenChecksIn) -> None:
    check = {"name": "x", "kind": "pattern", "pattern": "a", "gate": {"cap": 3}}
    digests = []
    for each in (check, check, {**check, "pattern": "b"}):
        async with opened(each) as checks:
            assert checks.cards[0].gate == Gate(cap=3.0)
            digests.append(checks.cards[0].sha256)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.slow  # opens the store twice
async def test_stores_of_one_file_are_opened_once(tmp_path: Path) -> None:
    (tmp_path / "applicants.csv").write_text(APPLICANTS)
    file = tmp_path / "stores.json"
    file.write_text(json.dumps({"store": STORES}))
    async with shared_stores(str(file)) as (_, first), shared_stores(str(file)) as (_, second):
        assert first is second
        assert await second.registered["bank"].ask("sql", query="SELECT 1 AS a") == [{"a": 1}]
    async with shared_stores(str(file)) as (_, third):
        assert third is not first


def test_values_cannot_leave_their_literal() -> None:
    query = 'ASK { ?x ?p $name . FILTER(?x != "$name" && ?x != <a$name>) } # $name'
    hostile = '" . } INSERT \\ \n'
    text = filled(query, {"name": term(hostile)})
    literal = '"\\" . } INSERT \\\\ \\u000A"^^<http://www.w3.org/2001/XMLSchema#string>'
    assert text == f'ASK {{ ?x ?p {literal} . FILTER(?x != "$name" && ?x != <a$name>) }} # $name'
    assert term(True) == '"true"^^<http://www.w3.org/2001/XMLSchema#boolean>'
    assert term("http://a/b", is_iri=True) == "<http://a/b>"
    with pytest.raises(Missing):
        term("http://a/b> . <x", is_iri=True)


GRAPH = """
@prefix : <http://example.org/> .
:A-1 a :Applicant ; :debt 2500 .
"""
SHAPES = """
@prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix : <http://example.org/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
:LoanShape a sh:NodeShape ; sh:targetClass :Loan ;
  sh:property [ sh:path :amount ; sh:datatype xsd:integer ; sh:maxInclusive 1000 ; sh:minCount 1 ;
                sh:message "at most 1000" ] .
"""
GRAPHS = [{"name": "facts", "kind": "graph", "files": ["facts.ttl"], "shapes": ["shapes.ttl"]}]


@pytest.fixture
def graph(tmp_path: Path) -> None:
    (tmp_path / "facts.ttl").write_text(GRAPH)
    (tmp_path / "shapes.ttl").write_text(SHAPES)


@pytest.mark.slow
async def test_shapes_are_checked_over_the_rdf_of_the_response(opened: OpenChecksIn, graph: None) -> None:
    context = {"@vocab": "http://example.org/", "type": "@type"}
    check = {"name": "loan", "kind": "shacl", "store": "facts", "context": context}
    async with opened(check, stores=GRAPHS) as checks:
        good, bad = await examined(checks, answer(type="Loan", amount=1000), answer(type="Loan", amount=1001))
    assert good.passed
    assert not bad.passed
    assert "at most 1000" in bad.reasons[0].message


@pytest.mark.slow
async def test_ask_has_the_values_of_the_response(opened: OpenChecksIn, graph: None) -> None:
    check = {
        "name": "debt",
        "kind": "ask",
        "store": "facts",
        "query": "PREFIX : <http://example.org/> ASK { :A-1 :debt ?debt FILTER(?debt = $debt) }",
        "params": {"debt": "/debt"},
    }
    async with opened(check, stores=GRAPHS) as checks:
        right, wrong = await examined(checks, answer(debt=2500), answer(debt=1))
    assert (right.passed, wrong.passed) == (True, False)
