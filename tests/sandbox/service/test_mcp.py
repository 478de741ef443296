"""The MCP server, tested with the client of the MCP SDK."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.mcp import create_mcp


@pytest_asyncio.fixture(loop_scope="session")
async def pool(open_shared: Callable[..., Any]) -> SandboxPool:
    return await open_shared(slots=2)


async def test_the_tool_returns_the_output_of_a_program(pool: SandboxPool) -> None:
    async with Client(create_mcp(pool)) as client:
        [tool] = (await client.list_tools()).tools
        assert tool.name == "run_python"
        assert set(tool.input_schema["properties"]) == {"code", "stdin"}
        answer = await client.call_tool("run_python", {"code": "print(input())", "stdin": "a line"})
        assert answer.content[0].text == "a line\n"
        assert not answer.is_error


async def test_an_error_of_the_program_is_not_an_error_of_the_tool(pool: SandboxPool) -> None:
    async with Client(create_mcp(pool)) as client:
        answer = await client.call_tool("run_python", {"code": "print('before')\n1 / 0"})
        assert answer.content[0].text == "before\n[error] ZeroDivisionError: division by zero"
        assert not answer.is_error


async def test_a_failure_of_the_sandbox_is_an_error_of_the_tool() -> None:
    async with SandboxPool(slots=1) as closed:
        pass
    async with Client(create_mcp(closed)) as client:
        answer = await client.call_tool("run_python", {"code": "print(1)"})
        assert answer.is_error
        assert "closed" in answer.content[0].text


@pytest.mark.slow
async def test_the_command_serves_over_standard_input_and_output() -> None:
    main = ["-c", "from tirjudge.cli import main; main()", "sandbox", "mcp", "--slots", "1"]
    parameters = StdioServerParameters(command=sys.executable, args=main)
    async with Client(stdio_client(parameters)) as client:
        answer = await client.call_tool("run_python", {"code": "print(6 * 7)"})
        assert answer.content[0].text == "42\n"
