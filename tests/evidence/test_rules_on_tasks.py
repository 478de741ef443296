"""Checks without a model decide generated tasks exactly as the generator does.

The checks ask stores that come with the request. Each is written for one task, from its question and the names in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from tests.evidence.conftest import attached
from tirjudge.checks import CheckCard
from tirjudge.concurrency import map_concurrently
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import EvidenceRefused
from tirjudge.judge import Judge
from tirjudge.opening import open_judge
from tirjudge.types import AttachedStore, JudgeRequest
from tirjudge_evidence.checks.base import CheckContext, InStoreSettings
from tirjudge_evidence.checks.opening import CHECKS, OpenCheck, OpenChecks
from tirjudge_evidence.stores import LazyPools, attached_digest
from tirjudge_evidence.tasks.generating import KINDS, EvidenceTask, draw_tasks

DECIDABLE = tuple(kind for kind in KINDS if kind != "noted")
"""Kinds of tasks that checks decide. A document has to be searched, which no check does."""

_TABLE = """
WITH found AS ({found}), said AS (SELECT regexp_extract_all($text, '[A-Za-z0-9]+') AS words)
SELECT 1 FROM said
WHERE CASE WHEN EXISTS (FROM found) THEN EXISTS (FROM found WHERE list_contains(words, answer))
ELSE list_contains(words, 'not') END
"""
"""A row if the response has the word of a found answer, or says "not" and nothing is found."""

_WORDS = 'BIND(CONCAT(" ", REPLACE($text, "[^A-Za-z0-9]+", " "), " ") AS ?said)'

_LINKED = """ASK {{
  {{ {words} ?s rdfs:label "{thing}" ; {path} FILTER(CONTAINS(?said, CONCAT(" ", STR(?answer), " "))) }}
  UNION
  {{ {words} FILTER(CONTAINS(?said, " not ")) FILTER NOT EXISTS {{ ?s rdfs:label "{thing}" ; {path} }} }}
}}"""

_CLASS = """ASK {{
  {words}
  OPTIONAL {{
    {{ :{thing} a ?own }} UNION {{ ?other ?p :{thing} . ?p rdfs:range ?own }}
    ?own rdfs:subClassOf* ?in FILTER(?in = :{cls})
  }}
  OPTIONAL {{
    {{ :{thing} a ?its }} UNION {{ ?other ?p :{thing} . ?p rdfs:range ?its }}
    ?its rdfs:subClassOf*/(owl:disjointWith|^owl:disjointWith) ?out . :{cls} rdfs:subClassOf* ?out
  }}
  FILTER(CONTAINS(?said, IF(BOUND(?in), " Yes ", IF(BOUND(?out), " No ", " not "))))
}}"""


def graph_query(task: EvidenceTask, quoted: list[str]) -> str:
    """Return the ASK that is true for the right answer."""
    if task.kind in ("class", "range"):
        return _CLASS.format(words=_WORDS, thing=quoted[0], cls=quoted[1])
    properties = re.findall(r"the (?!graph)(\w+)", task.question)
    path = f":{properties[-1]} ?o . ?o rdfs:label ?answer"
    if task.kind == "seat":
        path = f":{properties[-1]} ?o . ?o :{properties[-2]} ?answer"
    return _LINKED.format(words=_WORDS, thing=quoted[0], path=path)


def table_query(task: EvidenceTask, quoted: list[str]) -> str:
    """Return the SELECT that has a row for the right answer."""
    tables = re.findall(r"tables? (\w+)(?: and (\w+))?", task.question)[0]
    columns = re.findall(r"(?:the|between|and|last) (?!tables?\b|last\b)(\w+)", task.question)
    if tables[1]:
        columns.remove(tables[1])
    joined, thing, order = " NATURAL JOIN ".join(filter(None, tables)), quoted[-1], ""
    match task.kind:
        case "limit":
            answer = f"CASE WHEN {quoted[0]} <= {columns[0]} THEN 'Yes' ELSE 'No' END"
        case "period":
            answer = f"CASE WHEN DATE '{quoted[0]}' BETWEEN {columns[0]} AND {columns[1]} THEN 'Yes' ELSE 'No' END"
        case _ if task.conflict == "latest":
            answer, order = columns[1], f" ORDER BY {columns[0]} DESC LIMIT 1"
        case _:
            answer = columns[0]
    found = f"SELECT CAST({answer} AS VARCHAR) AS answer FROM {joined} WHERE name = '{thing}'{order}"
    return _TABLE.format(found=found)


def check_of(task: EvidenceTask) -> dict[str, Any]:
    """Return the check that decides a task."""
    quoted = re.findall(r'"(.+?)"', task.question)
    shared = {"name": "answer", "attached": True, "extract": "(?s)^(?P<text>.*)$"}
    graph = next((store["name"] for store in task.stores if store["kind"] == "graph"), None)
    if graph is not None:
        return {**shared, "kind": "ask", "store": graph, "query": graph_query(task, quoted)}
    tables = [store for store in task.stores if store["kind"] == "table"]
    if task.conflict == "validity":
        tables = [each for each in tables if each["valid_from"] <= quoted[0] <= each["valid_until"]]
    store = max(tables, key=lambda each: each.get("authority", 0))["name"]
    return {**shared, "kind": "sql", "store": store, "query": table_query(task, quoted), "expect": "rows"}


OpenRules = Callable[..., Any]


@pytest.fixture
def rules(tmp_path: Path) -> OpenRules:
    """Opens a judge without a model, given its checks."""

    numbers = count()

    @asynccontextmanager
    async def open_rules(*checks: dict[str, Any]) -> AsyncIterator[Judge]:
        file = tmp_path / f"rules-{next(numbers)}.json"
        file.write_text(json.dumps({"check": list(checks)}))
        async with open_judge(f"rules:{file}") as judge:
            yield judge

    return open_rules


@pytest.fixture
async def rules_with_shared_pools() -> AsyncIterator[OpenRules]:
    """As `rules`, but all judges share the processes that open stores. So hundreds of judges take little time."""
    pools = LazyPools()

    @asynccontextmanager
    async def open_rules(check: dict[str, Any]) -> AsyncIterator[Judge]:
        kind = CHECKS.named(check["kind"])
        settings = kind.settings.model_validate(check)
        assert isinstance(settings, InStoreSettings)
        card = CheckCard(
            name=settings.name, kind=settings.kind, severity="violation", weight=1.0, gate=None, sha256="0" * 64,
            needs=settings.needs,
        )  # fmt: skip
        examine = kind.open(settings, CheckContext(pools=pools))
        checks = OpenChecks([OpenCheck(card=card, settings=settings, examine=examine)])
        yield Judge(engine=ScriptedEngine([]), checks=checks)

    yield open_rules
    await pools.close()


def request_of(task: EvidenceTask, **fields: Any) -> JudgeRequest:
    return JudgeRequest.model_validate(
        {"mode": "rules", "prompt": task.question, "responses": list(task.responses), "evidence": list(task.stores)}
        | fields
    )


async def wrong_verdicts(tasks: Sequence[EvidenceTask], *, rules: OpenRules) -> list[str]:
    """Judge both answers of each task with its check; return the tasks whose verdict is not the generator's."""

    async def judged(task: EvidenceTask) -> str | None:
        async with rules(check_of(task)) as judge:
            judgment = await judge.judge(request_of(task))
        scores = [10.0 if number == task.label else 1.0 for number in range(2)]
        verdict = judgment.verdict
        if (verdict.status, verdict.best, verdict.scores) == ("decided", task.label, scores):
            return None
        return f"{task.kind} {task.question} {task.responses} {task.label} {verdict} {judgment.checks}"

    found = await map_concurrently((judged(task) for task in tasks), num_at_once=2)
    return [each for each in found if each is not None]


@pytest.mark.slow
async def test_a_check_on_a_table_and_one_on_a_graph_decide_as_the_generator(rules: OpenRules) -> None:
    tasks = [next(draw_tasks(seed=21, held_out=False, kinds=(kind,))) for kind in ("limit", "seat")]
    assert await wrong_verdicts(tasks, rules=rules) == []


def of_each_sort(tasks: Iterable[EvidenceTask], *, most: int) -> list[EvidenceTask]:
    """Return the first tasks of each sort: equal kind, conflict, status and label."""
    num_of: Counter[tuple[str, str, str, int]] = Counter()
    found = []
    for task in tasks:
        sort = (task.kind, task.conflict, task.status, task.label)
        num_of[sort] += 1
        if num_of[sort] <= most:
            found.append(task)
    return found


@pytest.mark.slow  # hundreds of queries, each in a process of its own
async def test_checks_decide_tasks_of_each_sort_as_the_generator(rules_with_shared_pools: OpenRules) -> None:
    tasks = of_each_sort(islice(draw_tasks(seed=22, held_out=False, kinds=DECIDABLE), 300), most=2)
    assert {task.kind for task in tasks} == set(DECIDABLE)
    assert {task.conflict for task in tasks} == {"none", "authority", "latest", "validity"}
    assert {task.status for task in tasks} == {"contradicted", "violates_rule", "not_in_evidence"}
    assert await wrong_verdicts(tasks, rules=rules_with_shared_pools) == []


@pytest.mark.slow
async def test_a_check_decides_otherwise_over_another_store(rules: OpenRules) -> None:
    """The verdict rests on the store of the request: over one with other numbers, both answers are wrong."""
    task = next(task for task in draw_tasks(seed=21, held_out=False, kinds=("value",)) if task.conflict == "none")
    [store] = [store for store in task.stores if store["kind"] == "table"]
    files = [{**file, "text": re.sub(r"(?<=,)\d+(?=,)", "7", file["text"])} for file in store["files"]]
    async with rules(check_of(task)) as judge:
        judgment = await judge.judge(request_of(task, evidence=[{**store, "files": files}]))
    assert (judgment.verdict.status, judgment.verdict.scores) == ("tie", [1.0, 1.0])


ON_LOANS = {
    "name": "debt",
    "kind": "sql",
    "store": "loans",
    "attached": True,
    "query": "SELECT * FROM loans WHERE debt > 9",
}
LOANS = attached("loans", "id,debt\nA,10\n", file="loans.csv")


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (None, "evidence: none given, but the check 'debt' needs the store 'loans' of kind table"),
        ([attached("other", "a\n1\n")], r"evidence: other \(table\) given, but the check 'debt'"),
        (
            [attached("loans", "<urn:a> <urn:b> 1 .", kind="graph", format="turtle")],
            r"evidence: loans \(graph\) given, but the check 'debt'",
        ),
        ([attached("loans", "id,debt\nA,10,11\n", file="loans.csv")], "evidence: loans: loans.csv: "),
    ],
)
async def test_missing_or_unreadable_store_is_no_verdict(
    rules: OpenRules, evidence: list[dict[str, Any]] | None, said: str
) -> None:
    request = JudgeRequest.model_validate({"mode": "rules", "prompt": "p", "responses": ["r"], "evidence": evidence})
    async with rules(ON_LOANS) as judge:
        with pytest.raises(EvidenceRefused, match=said):
            await judge.judge(request)


@pytest.mark.slow
async def test_row_of_an_attached_store_is_the_reason_and_names_the_store(rules: OpenRules) -> None:
    async with rules(ON_LOANS) as judge:
        assert judge.takes_evidence
        judgment = await judge.judge(
            JudgeRequest.model_validate({"mode": "rules", "prompt": "p", "responses": ["r"], "evidence": [LOANS]})
        )
    [[found]] = judgment.checks
    assert [(each.row, each.store) for each in found.reasons] == [({"id": "A", "debt": 10}, "loans")]
    assert found.reasons[0].store_sha256 == attached_digest(AttachedStore.model_validate(LOANS))


@pytest.mark.slow
async def test_a_query_that_fails_for_one_response_is_not_the_fault_of_the_store(rules: OpenRules) -> None:
    check = {**ON_LOANS, "query": "SELECT 1 FROM loans WHERE debt = CAST($n AS INTEGER)", "extract": "(?P<n>.+)"}
    async with rules(check) as judge:
        judgment = await judge.judge(
            JudgeRequest.model_validate({"mode": "rules", "prompt": "p", "responses": ["x", "11"], "evidence": [LOANS]})
        )
    assert [results[0].passed for results in judgment.checks] == [False, True]
    assert "loans: " in judgment.checks[0][0].reasons[0].message


async def test_attached_store_cannot_have_the_name_of_one_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "loans.csv").write_text("id,debt\nA,1\n")
    settings = {"store": [{"name": "loans", "kind": "table", "files": ["loans.csv"]}], "check": [ON_LOANS]}
    (tmp_path / "rules.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="'loans' is a store of the file; remove `attached` or rename it"):
        async with open_judge(f"rules:{tmp_path / 'rules.json'}"):
            pass
