"""docs/tools-mcp.md and docs/tools-http.md: the example works, and every setting is in a table."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from tirjudge.tools.functions import Offer
from tirjudge.tools.http_rules import PROGRAM_HEADERS, HttpRule, HttpSettings
from tirjudge.tools.mcp import McpServer, open_mcp
from tirjudge_sandbox import SandboxPool

DOCS = Path(__file__).parents[3] / "docs"
MCP = (DOCS / "tools-mcp.md").read_text(encoding="utf-8")
HTTP = (DOCS / "tools-http.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "model"), [(MCP, McpServer), (HTTP, HttpRule), (HTTP, HttpSettings)])
def test_every_setting_is_explained(page: str, model: type[BaseModel]) -> None:
    for name in model.model_fields:
        assert re.search(rf"^\|[^|]*`{name}`", page, re.MULTILINE), name


def test_the_headers_of_programs_are_listed() -> None:
    assert all(name in HTTP.lower() for name in PROGRAM_HEADERS)


@pytest.mark.slow
async def test_the_example_of_a_search_server_works(tmp_path: Path, pool: SandboxPool) -> None:
    pytest.importorskip("mcp")
    server, program = re.findall(r"```python\n(.*?)```", MCP, re.DOTALL)
    [settings] = re.findall(r"```json\n(.*?)```", MCP, re.DOTALL)
    [line] = re.findall(r"```text\n- (.*?)\n```", MCP)
    (tmp_path / "search_server.py").write_text(server)
    contents = json.loads(settings)
    contents["mcpServers"]["search"] |= {"command": sys.executable, "cwd": str(tmp_path)}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps(contents))
    async with open_mcp(str(file)) as functions:
        assert [each.line for each in functions] == [line]
        result = await pool.run(program, offer=Offer(functions=functions))
    assert result.stdout == "['Paris is the capital of France.']\n"
    [call] = result.calls
    assert (call.function, call.version) == ("search.search", "encyclopedia 1.0")


def test_the_example_of_rules_is_valid() -> None:
    [settings] = re.findall(r"```json\n(.*?)```", HTTP, re.DOTALL)
    assert len(HttpSettings.model_validate_json(settings).rules) == 2
