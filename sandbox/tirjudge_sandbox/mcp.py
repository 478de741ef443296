"""The sandbox as a tool of the Model Context Protocol, over standard input and output."""

from __future__ import annotations

from importlib.metadata import version

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from tirjudge.errors import SandboxUnavailable
from tirjudge.types import ExecResult
from tirjudge_sandbox.pool import SandboxPool

INSTRUCTIONS = """Runs one Python program in a process of its own, without network and without the files of this machine.
Nothing is kept from one program to the next: print what you want to see."""


def create_mcp(pool: SandboxPool) -> MCPServer:
    """Create an MCP server with the tool `run_python`. The caller opens and closes the pool."""
    server = MCPServer("tirjudge-sandbox", instructions=INSTRUCTIONS, version=version("tirjudge"))

    @server.tool()
    async def run_python(code: str, stdin: str = "") -> str:
        """Run a Python program; returns what it printed and, if it failed, why."""
        try:
            return shown(await pool.run(code, stdin=stdin))
        except SandboxUnavailable as error:
            raise ToolError(f"The sandbox failed, not the program: {error}") from error

    return server


def shown(result: ExecResult) -> str:
    """Format a result as text for a model."""
    if result.error is None:
        return result.stdout
    gap = "" if result.stdout.endswith("\n") or not result.stdout else "\n"
    return f"{result.stdout}{gap}[{result.outcome}] {result.error}"


async def serve_mcp(pool: SandboxPool) -> None:
    """Serve until the standard input ends.

    Raises:
        SandboxUnavailable: no allowed isolation level works on this machine.
    """
    async with pool:
        await create_mcp(pool).run_stdio_async()
