"""docs/evidence.md: the example works, and every setting and function is in a table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evidence.conftest import RunProgram
from tirjudge.tools.functions import DEFAULT_BUDGET
from tirjudge.tools.settings_file import read_settings
from tirjudge.types import MAX_ATTACHED_BYTES, MAX_ATTACHED_STORES, JudgeRequest
from tirjudge_evidence.functions import BUDGET, MAX_STORES, EvidenceSettings, functions_of, open_stores
from tirjudge_evidence.inside import documents, prover, table
from tirjudge_evidence.stores import MAX_STORE_BYTES, TIMEOUT_S, StoreSettings

PAGE = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """Return the first block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_every_setting_of_a_store_is_explained() -> None:
    for name in StoreSettings.model_fields:
        assert re.search(rf"^\|[^|]*`{name}`", PAGE, re.MULTILINE), name


@pytest.mark.slow
async def test_the_example_works(tmp_path: Path, run_program: RunProgram) -> None:
    for name, language in {"loans.csv": "csv", "policy.md": "markdown", "stores.toml": "toml"}.items():
        (tmp_path / name).write_text(block(language), encoding="utf-8")
    settings = read_settings(str(tmp_path / "stores.toml"), EvidenceSettings, tool="evidence")
    async with open_stores(settings, folder=tmp_path) as stores:
        documented = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
        assert documented == {each.name for each in functions_of(stores)}
        result = await run_program(block("python"), stores)
    assert result.stdout == block("text"), result


@pytest.mark.slow
def test_the_script_runs_the_example_without_a_judge(tmp_path: Path) -> None:
    for name, language in {
        "loans.csv": "csv",
        "policy.md": "markdown",
        "stores.toml": "toml",
        "program.py": "python",
    }.items():
        (tmp_path / name).write_text(block(language), encoding="utf-8")
    files = dict(re.findall(r"```\w+ file=(\S+)\n(.*?)```", PAGE, re.DOTALL))
    script = [sys.executable, "-c", files["try_program.py"]]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == block("text"), done.stderr


@pytest.mark.slow
async def test_the_example_of_a_graph_works(tmp_path: Path, run_program: RunProgram) -> None:
    files = dict(re.findall(r"```\w+ file=(\S+)\n(.*?)```", PAGE, re.DOTALL))
    (tmp_path / "ontology.ttl").write_text(files["ontology.ttl"], encoding="utf-8")
    store = StoreSettings.model_validate({"name": "loans", "kind": "graph", "files": ["ontology.ttl"]})
    async with open_stores(EvidenceSettings(store=[store]), folder=tmp_path) as stores:
        result = await run_program(files["graph_program"], stores)
    assert result.stdout == files["graph_output"], result


def test_the_request_is_valid() -> None:
    [body] = re.findall(r"-d '(\{.*?\n\})'", PAGE, re.DOTALL)
    request = JudgeRequest.model_validate(json.loads(body))
    assert request.evidence is not None
    assert request.evidence[0].name == "mine"


def test_the_limits_are_those_of_the_code() -> None:
    assert f"| {TIMEOUT_S:g} s, or `timeout_s`" in PAGE
    assert f"DuckDB uses {table.QUERY_MEMORY_MB} MiB" in PAGE
    assert f"`sql` {table.MAX_ROWS:,} rows" in PAGE
    assert f"{documents.MAX_RESULTS} passages; {documents.MAX_QUOTE_CHARS:,} characters" in PAGE
    assert f"| {MAX_STORES}, each with at most 10,000 files and {MAX_STORE_BYTES >> 30} GiB" in PAGE
    assert f"| {MAX_ATTACHED_STORES}, each with at most 256 files, {MAX_ATTACHED_BYTES >> 20} MiB in total" in PAGE
    assert f"| {documents.MAX_CHARS // 1_000_000} million characters; a PDF: {documents.MAX_PAGES:,} pages" in PAGE
    assert f"| {prover.MAX_CHARS:,} characters, {prover.MAX_GIVEN} in `given`, {prover.MAX_VARIABLES} variables" in PAGE
    assert f"| {BUDGET.calls}, {BUDGET.seconds:g} s |" in PAGE
    assert BUDGET != DEFAULT_BUDGET
