"""The connection to one MCP server.

The session opens and closes in one task of its own, as its cancel scopes require; calls come from any task. When the server
ends, the calls that wait fail, and the next call connects once again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult, Tool
from pydantic import ValidationError

from tirjudge.concurrency import background
from tirjudge.errors import ToolUnavailable
from tirjudge.tools.credentials import Credentials
from tirjudge.tools.functions import ToolError

if TYPE_CHECKING:
    from tirjudge.tools.mcp import McpServer

logger = logging.getLogger(__name__)

MAX_TOOLS = 1000
"""Maximum number of tools that are read from a server."""

_MAX_PROBLEM_CHARS = 400
_MAX_STDERR_BYTES = 1500
_NO_PROCESS = "the server ended or closed the connection"


class _Session:
    """A session, and the task that it lives in.

    Attributes:
        client: the client, once `tools` are known.
        tools: tools of the server.
        problem: why the session ended.
    """

    def __init__(self, server: McpServer, *, credentials: Credentials) -> None:
        self._server, self._credentials = server, credentials
        self._opened, self._stop = asyncio.Event(), asyncio.Event()
        self._stderr = b""
        self.client: Client | None = None
        self.tools: list[Tool] = []
        self.version = "1"
        self.problem = ""
        self._task = asyncio.get_running_loop().create_task(self._live())

    @property
    def is_open(self) -> bool:
        return self.client is not None and not self._task.done()

    async def opened(self) -> None:
        """Wait until the tools are known.

        Raises:
            ToolUnavailable: the server does not start. The message says why.
        """
        waiting = asyncio.ensure_future(self._opened.wait())
        try:
            await asyncio.wait(
                {waiting, self._task}, timeout=self._server.startup_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()
            if not self._opened.is_set():
                self._task.cancel()
        if not self._opened.is_set():
            has_ended = self._task.done()
            await asyncio.wait({self._task})
            problem = self.problem if has_ended else f"not ready after {self._server.startup_s:g} s"
            raise ToolUnavailable(problem + self._shown_stderr())

    async def close(self) -> None:
        self._stop.set()
        await asyncio.wait({self._task})

    async def call(self, tool: str, arguments: Mapping[str, Any], *, seconds: float) -> CallToolResult | None:
        """Call a tool. None: the session ended before there was an answer.

        Raises:
            MCPError: the server refuses the call, or does not answer in time.
            RuntimeError: the result does not match the output schema.
        """
        if self.client is None:
            return None
        calling = self.client.call_tool(tool, dict(arguments), read_timeout_seconds=seconds)
        async with background(calling) as call:
            await asyncio.wait({call, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if call.cancelled() or (call.exception() is not None and self._task.done()):
            return None
        return call.result()

    async def _live(self) -> None:
        """Open the session, keep it until `close`, and close it."""
        try:
            async with AsyncExitStack() as stack:
                transport = await stack.enter_async_context(self._transport())
                client = await stack.enter_async_context(
                    Client(transport, cache=None, read_timeout_seconds=self._server.startup_s)
                )
                self.tools = await _tools_of(client)
                info = client.server_info
                self.version = "1" if info is None else f"{info.name} {info.version}"
                self.client = client
                self._opened.set()
                await self._stop.wait()
        except asyncio.CancelledError:
            self.problem = "cancelled"
            raise
        except BaseException as error:
            self.problem = self._credentials.removed_from(_problem(error))
            if not isinstance(error, Exception | BaseExceptionGroup):
                raise
            logger.info("an MCP session ended: %s", self.problem)

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        """Yield the transport of the server, for `Client` to open."""
        server = self._server
        if server.url is not None:
            timeout = httpx2.Timeout(server.startup_s, read=server.timeout_s + 10)
            async with httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout) as http:
                yield streamable_http_client(server.url, http_client=http)
            return
        parameters = StdioServerParameters(
            command=server.command or "", args=list(server.args), env=dict(server.env), cwd=server.cwd
        )
        async with self._standard_error() as errors:
            yield stdio_client(parameters, errlog=errors)

    @asynccontextmanager
    async def _standard_error(self) -> AsyncIterator[Any]:
        """Yield a file for the standard error of the server. Its lines are logged, and the last ones are kept."""
        read_end, write_end = os.pipe()
        reader = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
        )
        task = asyncio.get_running_loop().create_task(self._keep(reader))
        try:
            with os.fdopen(write_end, "w") as errors:
                yield errors
            # A process that the server left behind may hold the pipe open.
            await asyncio.wait({task}, timeout=0.2)
        finally:
            task.cancel()
            pipe.close()

    async def _keep(self, reader: asyncio.StreamReader) -> None:
        while part := await reader.read(4096):
            self._stderr = (self._stderr + part)[-_MAX_STDERR_BYTES:]
            logger.debug("MCP server: %s", part.decode("utf-8", "replace").rstrip())

    def _shown_stderr(self) -> str:
        text = self._credentials.removed_from(self._stderr.decode("utf-8", "replace")).strip()
        return f"; its standard error ends with: {text}" if text else ""


class McpConnection:
    """A server whose tools can be called, even after it was restarted. An async context manager.

    Args:
        name: name in the settings, for error messages.
        server: settings.
        credentials: where the values of environment variables come from; they are removed from errors.
    """

    def __init__(self, name: str, server: McpServer, *, credentials: Credentials) -> None:
        self._name, self._server, self._filled = name, server, server
        self._is_closed = False
        self._session: _Session | None = None
        self._lock = asyncio.Lock()
        self.credentials = credentials

    @property
    def tools(self) -> list[Tool]:
        """Tools that the server listed when it was connected."""
        return [] if self._session is None else self._session.tools

    @property
    def version(self) -> str:
        """Name and version of the server."""
        return "1" if self._session is None else self._session.version

    async def __aenter__(self) -> Self:
        self._filled = self._server.filled(self.credentials)
        try:
            await self._connect()
        except ToolUnavailable as error:
            raise ToolUnavailable(f"MCP server {self._name!r} ({self._server}): {error}") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._lock:
            self._is_closed = True
            if self._session is not None:
                await self._session.close()

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool that the settings allow.

        Raises:
            ToolError: the tool is not allowed, the server refuses the call, does not answer in time, or has ended.
        """
        session = await self._open_session()
        listed = next((each for each in session.tools if each.name == tool), None)
        if listed is None or not self._server.offers(listed):
            raise ToolError("the server no longer has this tool as a read-only one")
        try:
            result = await session.call(tool, arguments, seconds=self._server.timeout_s)
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise ToolError(f"the server gave no answer after {self._server.timeout_s:g} s") from None
            if error.code != CONNECTION_CLOSED and error.message != "Session terminated":
                raise ToolError(self._shown(f"the server refuses the call: {error.message}")) from None
            result = None
        except (RuntimeError, ValidationError) as error:
            raise ToolError(self._shown(f"the answer of the server is invalid: {error}")) from None
        if result is None:
            await self._drop(session)
            raise ToolError(f"{_NO_PROCESS}; the next call connects again")
        return result

    def _shown(self, problem: str) -> str:
        return self.credentials.removed_from(problem)[:_MAX_PROBLEM_CHARS]

    async def _open_session(self) -> _Session:
        """Return the session; a new one if it has ended.

        Raises:
            ToolError: the server cannot be reached.
        """
        async with self._lock:
            if self._is_closed:
                raise ToolError("the connection to the server is closed")
            if self._session is None or not self._session.is_open:
                try:
                    await self._connect()
                except ToolUnavailable as error:
                    logger.warning("MCP server %r: %s", self._name, error)
                    raise ToolError("the server has ended and does not start again") from None
            assert self._session is not None
            return self._session

    async def _connect(self) -> None:
        session = _Session(self._filled, credentials=self.credentials)
        await session.opened()
        self._session = session

    async def _drop(self, session: _Session) -> None:
        async with self._lock:
            if self._session is session:
                self._session = None
                await session.close()


async def _tools_of(client: Client) -> list[Tool]:
    tools: list[Tool] = []
    cursor: str | None = None
    while len(tools) < MAX_TOOLS:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None or not page.tools:
            break
    return tools[:MAX_TOOLS]


def _problem(error: BaseException) -> str:
    """Return the first cause in a group of exceptions as text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = f"{type(error).__name__}: {error}" if not isinstance(error, MCPError) else error.message
    return text[:_MAX_PROBLEM_CHARS]
