"""The example of docs/rules.md, as it is written there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.opening import open_judge
from tirjudge.tools.base import ToolOptions
from tirjudge.types import JudgeRequest, Mode
from tirjudge_evidence.checks.opening import open_file

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A folder with the files of the page."""
    for block in PAGE.read_text().split("\n```")[1:]:
        head, _, content = block.partition("\n")
        if " file=" in head:
            (tmp_path / head.partition(" file=")[2]).write_text(content + "\n")
    return tmp_path


def contents(example: Path, name: str) -> Any:
    return json.loads((example / name).read_text())


async def test_rule_overrules_a_model_and_names_the_row(example: Path) -> None:
    request = JudgeRequest.model_validate({**contents(example, "request.json"), "tools": "off"})

    def prefers_approval(sequence: str) -> str:
        first = sequence.rindex("approve") < sequence.rindex("reject")
        return f"<preference>{'A' if first else 'B'}</preference>"

    async with open_file(str(example / "loans.toml"), ToolOptions(slots=1)) as checks:
        judgment = await Judge(engine=ScriptedEngine(prefers_approval), checks=checks).judge(request)
    expected, found = contents(example, "answer.json"), judgment.model_dump(mode="json")
    assert {name: found["verdict"][name] for name in expected["verdict"]} == expected["verdict"]
    [failed] = [each for each in found["checks"][0] if not each["passed"]]
    assert [{**reason, "store_sha256": None} for reason in failed["reasons"]] == [
        {**reason, "store_sha256": None} for reason in expected["reasons"]
    ]
    assert all(each["passed"] for each in found["checks"][1])


@pytest.mark.slow
async def test_rule_of_the_ontology_is_named(example: Path) -> None:
    request = JudgeRequest.model_validate({**contents(example, "request.json"), "mode": Mode.RULES})
    async with open_judge(f"rules:{example / 'ontology.toml'}", tools=[]) as judge:
        judgment = await judge.judge(request)
    [[approved], [rejected]] = judgment.checks
    assert (judgment.verdict.best, approved.passed, rejected.passed) == (1, False, True)
    [reason] = approved.reasons
    assert reason.message in PAGE.read_text()
    assert reason.store == "loans"


@pytest.mark.slow
async def test_example_judges_without_a_model(example: Path) -> None:
    request = JudgeRequest.model_validate({**contents(example, "request.json"), "mode": Mode.RULES})
    async with open_judge(f"rules:{example / 'loans.toml'}", tools=[]) as judge:
        verdict = (await judge.judge(request)).verdict
    assert (verdict.best, verdict.scores, verdict.basis) == (1, [1.0, 10.0], "checked")


@pytest.mark.slow
async def test_a_check_asks_the_store_of_the_request(example: Path) -> None:
    file = {"name": "applicants.csv", "format": "csv", "text": (example / "applicants.csv").read_text()}
    stores = [{"name": "applicants", "kind": "table", "files": [file]}]
    request = JudgeRequest.model_validate({**contents(example, "request.json"), "mode": "rules", "evidence": stores})
    async with open_judge(f"rules:{example / 'attached.toml'}", tools=[]) as judge:
        judgment = await judge.judge(request)
    assert (judgment.verdict.best, judgment.verdict.scores) == (1, [1.0, 10.0])
    assert judgment.checks[0][0].reasons[0].row == {"id": "A-1"}
