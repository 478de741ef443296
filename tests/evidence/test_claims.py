"""Claims: programs cite results of stores, the host checks the citations, and contradictory claims are decided by rank."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.tools.functions import ToolFunction
from tirjudge.tools.python import PythonTool
from tirjudge.types import CitedCall, JudgeRequest, Judgment
from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores
from tirjudge_evidence.stores import StoreSettings
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.candidates import FUNCTIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADA, BOB = "Ada borrowed 40. Ada is 40.", "Ada borrowed 50."


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def functions(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sequence[ToolFunction]]:
    """The functions over two stores with a table `loans`: `ledger` has all loans, `notes` some, of another amount."""
    folder = tmp_path_factory.mktemp("stores")
    for name, amount in (("ledger", 40), ("notes", 50)):
        (folder / name).mkdir()
        (folder / name / "loans.csv").write_text(f"id,name,amount\n1,Ada,{amount}\n2,Eve,7\n", encoding="utf-8")
    stores = [
        StoreSettings.model_validate({"name": name, "kind": "table", "files": [f"{name}/loans.csv"], **fields})
        for name, fields in (("ledger", {"world": "closed", "authority": 2}), ("notes", {}))
    ]
    async with open_stores(EvidenceSettings(store=stores), folder=folder) as opened:
        yield [*functions_of(opened), *FUNCTIONS]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[SandboxPool]:
    async with SandboxPool(slots=1) as opened:
        yield opened


async def judged(
    program: str, *, functions: Sequence[ToolFunction], sandbox: SandboxPool, **fields: Any
) -> tuple[Judgment, str]:
    """Judge with a program; return the judgment and the program's output."""
    asked = {"mode": "pointwise", "prompt": "How much?", "responses": [ADA], **fields}
    verdict = "<score>3</score>" if asked["mode"] == "pointwise" else "<preference>A</preference>"
    turn = f"```python\n{program}\n```\n```output"
    engine = ScriptedEngine(lambda sequence: verdict if turn in sequence else turn)
    judge = Judge(engine=engine, tools=[PythonTool(sandbox, functions)], profile=Profile(format="tirjudge/2"))
    judgment = await judge.judge(JudgeRequest.model_validate(asked))
    return judgment, judgment.rollouts[0].turns[0].output or ""


LOANS = 'sql("ledger", "SELECT * FROM loans")'
NOTHING = 'sql("{}", "SELECT * FROM loans WHERE id = 9")'


@pytest.mark.slow
async def test_a_claim_names_the_span_the_cited_rows_and_the_store(functions, sandbox) -> None:
    program = (
        f'rows = {LOANS}\nprint(claim("", "40", "supported", calls=[row for row in rows if row["name"] == "Ada"]))'
    )
    judgment, output = await judged(program, functions=functions, sandbox=sandbox)
    (claim,) = judgment.claims
    assert (claim.response, claim.start, claim.end, claim.text) == (0, 13, 15, "40")
    assert (claim.status, claim.rule) == ("supported", None)
    assert claim.calls == [CitedCall(rollout=0, turn=0, call=0, rows=[0])]
    assert claim.made == CitedCall(rollout=0, turn=0, call=1)
    (card,) = judgment.stores
    assert claim.sources == {"ledger": card.sha256} == judgment.rollouts[0].turns[0].calls[0].sources
    assert (card.authority, card.world, card.lines) == (2, "closed", [])
    assert output.startswith("{'claim': 1,")
    assert Judgment.model_validate_json(judgment.model_dump_json()) == judgment


async def test_a_judgment_without_calls_has_no_fields_for_claims(functions, sandbox) -> None:
    judgment, _ = await judged("print(1)", functions=functions, sandbox=sandbox)
    assert not {"claims", "conflicts", "stores"} & judgment.model_dump(mode="json").keys()


@pytest.mark.slow
async def test_claims_without_calls_cite_the_results_since_the_previous_claim(functions, sandbox) -> None:
    program = f"""
{LOANS}
claim("", "40", "supported")
try:
    sql("ledger", "SELECT nonsense FROM loans")
except ToolError:
    {LOANS}
run("print(1)")
claim("", "Ada", "violates a rule", rule="adults only")
claim("", "is", "not in the evidence".replace("the ", ""))"""
    judgment, _ = await judged(program, functions=functions, sandbox=sandbox)
    assert [[cited.call for cited in claim.calls] for claim in judgment.claims] == [[0], [3], []]
    assert [claim.status for claim in judgment.claims] == ["supported", "violates_rule", "not_in_evidence"]
    assert judgment.claims[1].rule == "adults only"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('"B", "40", "supported"', "response: expected a label ('')"),
        ('"", "41", "supported"', "span: '41' does not occur in response A; copy the text exactly"),
        ('"", [0, 99], "supported"', "span: [0, 99] is not a part of the response, which has 27 characters"),
        ('"", [3, 3], "supported"', "span: [3, 3] is not a part"),
        ('"", "40", "true"', "status: Input should be 'supported', 'contradicted', 'violates_rule'"),
        ('"", "40", "supported", calls=[9]', "calls: call 9 does not exist; this program made 4 calls"),
        ('"", "40", "supported", calls=0', "calls.0"),
        ('"", "40", "supported", calls="rows"', "calls: expected results of functions, rows of them, or numbers"),
        ('"", "40", "supported", calls=[{"id": 1}]', "calls: expected results of functions, rows of them"),
        ('"", "40", "supported", calls=[1, True]', "calls: expected results of functions"),
        ('"", "40", "supported", calls=2', "calls: call 2 is a call of run; a claim rests on"),
        ('"", "40", "supported", calls=3', "calls: call 3 of sql failed; cite a call that returned a result"),
        ('"", "40", "supported", calls=[]', "supported rests on at least one result; query a store first"),
        ('"", "40", "violates_rule", calls=1', "rule: give the name of the rule"),
        ('"", "40", "supported", calls=1, rule="x"', 'rule: give the name of the rule with status "violates_rule"'),
        ('"", "40", "contradicted", calls=4', "the store notes is not complete (open world), so this is not evidence"),
    ],
)
async def test_wrong_claims_are_refused_with_the_way_to_fix_them(functions, sandbox, arguments, message) -> None:
    program = f"""
{LOANS}
run("print(1)")
try:
    sql("ledger", "nonsense")
except ToolError:
    {NOTHING.format("notes")}
try:
    claim({arguments})
except ToolError as error:
    print(error)"""
    judgment, output = await judged(program, functions=functions, sandbox=sandbox)
    assert output.startswith("claim: ")
    assert message in output
    assert judgment.claims == []


async def test_a_program_cannot_cite_a_row_that_does_not_exist(functions, sandbox) -> None:
    program = f"""
rows = {LOANS}
rows[0].row = 2
try:
    claim("", "40", "supported", calls=rows[0])
except ToolError as error:
    print(error)"""
    judgment, output = await judged(program, functions=functions, sandbox=sandbox)
    assert output == "claim: calls: row 2 of call 1 does not exist; its result has 2 rows, counted from 0"
    assert judgment.claims == []


@pytest.mark.parametrize("status", ["supported", "contradicted"])
async def test_an_empty_result_of_a_complete_store_is_evidence(functions, sandbox, status) -> None:
    program = f'claim("", "40", "{status}", calls={NOTHING.format("ledger")})'
    judgment, _ = await judged(program, functions=functions, sandbox=sandbox)
    assert [claim.status for claim in judgment.claims] == [status]


@pytest.mark.slow
async def test_an_attached_store_is_open_unless_the_request_says_otherwise(functions, sandbox) -> None:
    files = [{"name": "loans.csv", "format": "csv", "text": "id\n1\n"}]
    program = f"""
try:
    claim("", "40", "contradicted", calls={NOTHING.format("mine")})
except ToolError:
    print("refused")"""
    for world, expected in (("open", "refused"), ("closed", "")):
        evidence = [{"name": "mine", "kind": "table", "files": files, "world": world}]
        judgment, output = await judged(program, functions=functions, sandbox=sandbox, evidence=evidence)
        assert output == expected
        assert [card.world for card in judgment.stores] == [world]


async def test_claims_name_the_response_of_the_request_in_both_orders(functions, sandbox) -> None:
    program = f"""
{LOANS}
label = next(label for label, text in responses.items() if "50" in text)
claim(label, "50", "contradicted")
claim(responses[label], "Ada", "supported", calls=1)"""
    judgment, _ = await judged(
        program, functions=functions, sandbox=sandbox, mode="pairwise", responses=[ADA, BOB], orders="both"
    )
    assert [rollout.order for rollout in judgment.rollouts] in ([[0, 1], [1, 0]], [[1, 0], [0, 1]])
    assert [(claim.made.rollout, claim.response, claim.text) for claim in judgment.claims] == [
        (0, 1, "50"),
        (0, 1, "Ada"),
        (1, 1, "50"),
        (1, 1, "Ada"),
    ]


async def test_contradictory_stores_are_decided_by_authority(functions, sandbox) -> None:
    program = f"""
{LOANS}
claim("", "40", "supported")
sql("notes", "SELECT * FROM loans")
claim("", "borrowed 40", "contradicted")"""
    judgment, _ = await judged(program, functions=functions, sandbox=sandbox)
    assert [(claim.overruled_by, claim.overruled_for) for claim in judgment.claims] == [(None, None), (0, "authority")]
    assert judgment.conflicts == []
