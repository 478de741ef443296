"""The tool `mcp`: the tools of MCP servers as functions of programs, `SERVER.tool`.

A tool is offered if its server marks it as read-only, or if the settings name it. The names, descriptions and schemas of
tools come from the server: they are shortened, and control tokens in them are broken, before the prompt contains them.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tirjudge.errors import ToolUnavailable
from tirjudge.formats.texts import neutralise
from tirjudge.tools.credentials import Credentials
from tirjudge.tools.functions import CallContext, FunctionKind, ToolError, ToolFunction
from tirjudge.tools.python_names import OF_PROGRAMS, python_name
from tirjudge.tools.settings_file import read_settings
from tirjudge.tools.signatures import parameters_of, signature_of

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

    from tirjudge.tools.mcp_connection import McpConnection

MAX_BYTES = 256 << 10
"""Maximum size of the arguments, and of the result, of a call as JSON. A longer text is cut; a longer structured result is an
error."""

_MAX_DESCRIPTION_CHARS = 300
_MAX_PROBLEM_CHARS = 800
_MAX_VERSION_CHARS = 64
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class McpServer(BaseModel):
    """An MCP server: a command that is started, or a URL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str | None = None
    """Program to start. It speaks MCP over its standard input and output."""
    args: tuple[str, ...] = ()
    """Arguments of the program. `${NAME}` is an environment variable, here and in `env`, `url` and `headers`."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Environment variables of the program, besides PATH, HOME and a few like them."""
    cwd: str | None = None
    """Working directory of the program. None: that of this process."""
    url: str | None = None
    """URL of a server that speaks streamable HTTP."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    """Headers of requests to `url`, such as credentials."""
    type: Literal["stdio", "http", "streamable-http"] | None = None
    """Accepted because settings for other clients have it; `command` or `url` decides."""
    tools: tuple[str, ...] | None = None
    """Tools to offer, by their name on the server. None: those that the server marks as read-only."""
    allow_writes: bool = False
    """Whether all tools are offered, also those that change something, unless `tools` names some."""
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Maximum seconds for a call."""
    startup_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Maximum seconds until the server has listed its tools."""
    insecure_credentials: bool = False
    """Whether `headers` may be sent without TLS to another machine."""

    @model_validator(mode="after")
    def _command_or_url(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("expected either command or url")
        if self.url is None:
            if self.headers:
                raise ValueError("headers: given without url")
            return self
        url = urlsplit(self.url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("url: expected http://... or https://...")
        is_secure = url.scheme == "https" or url.hostname in _LOOPBACK
        if self.headers and not (is_secure or self.insecure_credentials):
            raise ValueError('headers are sent without TLS: use an https URL, or set "insecure_credentials": true')
        return self

    def __str__(self) -> str:
        return self.url if self.url is not None else " ".join((self.command or "", *self.args))

    def filled(self, credentials: Credentials) -> McpServer:
        """Return the server with the values of environment variables.

        Raises:
            ValueError: a variable is not set.
        """
        fill = credentials.filled
        return self.model_copy(
            update={
                "args": tuple(fill(text, where=f"args.{number}") for number, text in enumerate(self.args)),
                "env": {name: fill(text, where=f"env.{name}") for name, text in self.env.items()},
                "url": None if self.url is None else fill(self.url, where="url"),
                "headers": credentials.headers(self.headers, where="headers"),
            }
        )

    def offers(self, tool: Tool) -> bool:
        """Whether programs may call a tool."""
        if self.tools is not None:
            return tool.name in self.tools
        return self.allow_writes or (tool.annotations is not None and tool.annotations.read_only_hint is True)


class McpSettings(BaseModel):
    """Contents of the settings file of the tool `mcp`. Other keys at the top are ignored: other clients use the same file."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    servers: Mapping[str, McpServer] = Field(alias="mcpServers", min_length=1)
    """Name in programs -> server."""


def settings_of(text: str) -> McpSettings:
    """Return the settings for the text after `mcp:`.

    Args:
        text: path of a JSON or TOML file, or a URL. A server that is given by its URL is named `mcp`.

    Raises:
        ValueError: no settings, or invalid ones.
    """
    if not text:
        raise ValueError("--tool mcp: no settings; give a file or a URL, such as mcp:servers.json (docs/tools-mcp.md)")
    if text.startswith(("http://", "https://")):
        try:
            return McpSettings.model_validate({"mcpServers": {"mcp": {"url": text}}})
        except ValidationError as error:
            raise ValueError(f"--tool mcp:{text}: {error.errors()[0]['msg']}") from None
    return read_settings(text, McpSettings, tool="mcp")


@asynccontextmanager
async def open_mcp(settings: str, *, environ: Mapping[str, str] = os.environ) -> AsyncIterator[Sequence[ToolFunction]]:
    """Connect to MCP servers, and disconnect at the end of the block.

    Args:
        settings: as for `settings_of`.
        environ: environment variables for `${NAME}`.

    Raises:
        ValueError: the settings are invalid, or name a tool that the server does not have.
        ToolUnavailable: the library `mcp` is not installed, or a server does not start.
    """
    servers = settings_of(settings).servers
    try:
        from tirjudge.tools.mcp_connection import McpConnection
    except ModuleNotFoundError as error:
        raise ToolUnavailable(f"--tool mcp needs {error.name}: pip install 'tirjudge[mcp]'") from None
    names = _distinct_names(servers, what=f"--tool mcp:{settings}: the servers", taken=OF_PROGRAMS)
    async with AsyncExitStack() as stack:
        functions: list[ToolFunction] = []
        for name, server in servers.items():
            try:
                connection = McpConnection(name, server, credentials=Credentials(environ))
                await stack.enter_async_context(connection)
                functions += functions_of(connection, server, name=names[name])
            except ValueError as error:
                raise ValueError(f"--tool mcp:{settings}: server {name!r}: {error}") from None
        yield functions


def functions_of(connection: McpConnection, server: McpServer, *, name: str) -> list[ToolFunction]:
    """Return the functions for the tools of a server that are offered.

    Raises:
        ValueError: the settings name a tool that the server does not have, no tool is offered, two tools have the same name
            in Python, or a schema is invalid.
    """
    by_name = {tool.name: tool for tool in connection.tools}
    missing = [each for each in server.tools or () if each not in by_name]
    if missing:
        raise ValueError(f"tools: it has no tool {missing[0]!r}; it has {', '.join(by_name) or 'none'}")
    offered = [tool for tool in connection.tools if server.offers(tool)]
    if not offered:
        its = ", ".join(by_name) or "none"
        raise ValueError(f'it marks no tool as read-only; name the tools to offer with "tools": [...]; it has {its}')
    names = _distinct_names([tool.name for tool in offered], what="the tools")
    return [_function(connection, tool, name=f"{name}.{names[tool.name]}") for tool in offered]


def _distinct_names(names: Iterable[str], *, what: str, taken: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return name -> name in Python.

    Raises:
        ValueError: two names are the same in Python, or no name can be made of one.
    """
    found: dict[str, str] = {}
    for name in names:
        made = python_name(name, taken=taken)
        if made in found:
            raise ValueError(
                f"{what} {found[made]!r} and {name!r} are both {made} in Python; rename one or leave it out"
            )
        found[made] = name
    return {name: made for made, name in found.items()}


def _function(connection: McpConnection, tool: Tool, *, name: str) -> ToolFunction:
    from tirjudge.tools.schema_check import argument_check, result_check

    schema = tool.input_schema
    names = _distinct_names(parameters_of(schema), what=f"tool {tool.name!r}: the parameters")
    try:
        check = argument_check(schema, names=names)
        check_result = None if tool.output_schema is None else result_check(tool.output_schema)
    except ValueError as error:
        raise ValueError(f"tool {tool.name!r}: {error}") from None
    wrapped = _wrapped(tool.output_schema)

    async def handle(arguments: Mapping[str, Any], context: CallContext) -> Any:
        result = await connection.call(tool.name, arguments)
        return value_of(result, credentials=connection.credentials, is_structured=tool.output_schema is not None)

    def checked(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if len(json.dumps(arguments)) > MAX_BYTES:
            raise ToolError(f"the arguments are longer than {MAX_BYTES:,} bytes")
        return check(arguments)

    def to_json(value: Any) -> Any:
        if check_result is None:
            return value
        whole = check_result(value)
        return whole if wrapped is None else whole["result"]

    return ToolFunction(
        name=name,
        description=_one_line(tool.description or tool.title or tool.name),
        signature=neutralise(signature_of(schema, names=names, result=wrapped or tool.output_schema)),
        parameters=tuple(names.values()),
        handle=handle,
        check=checked,
        to_json=to_json,
        input_schema=schema,
        output_schema=wrapped or tool.output_schema,
        version=connection.version[:_MAX_VERSION_CHARS],
    )


def _wrapped(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the schema of `result` if a result is an object with this key only: MCP libraries wrap lists and numbers so.
    None: the result is not wrapped."""
    properties = (schema or {}).get("properties")
    if schema is None or not isinstance(properties, Mapping) or list(properties) != ["result"]:
        return None
    if schema.get("required") != ["result"] or not isinstance(properties["result"], Mapping):
        return None
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {**properties["result"], **definitions}


def _one_line(text: str) -> str:
    """Return the first paragraph of a server's text in one line, as it may be in a prompt."""
    line = " ".join(text.strip().split("\n\n")[0].split())
    shown = line if len(line) <= _MAX_DESCRIPTION_CHARS else f"{line[: _MAX_DESCRIPTION_CHARS - 3]}..."
    return neutralise("".join(character for character in shown if character.isprintable()))


def value_of(result: CallToolResult, *, credentials: Credentials, is_structured: bool) -> Any:
    """Return the value of a result: its structured content, or its text.

    Args:
        result: answer of the server.
        credentials: values to remove.
        is_structured: whether the tool has an output schema.

    Raises:
        ToolError: the tool reports an error, or a structured result is too long.
    """
    text = credentials.removed_from("\n".join(map(_shown, result.content)))
    if result.is_error:
        raise ToolError(text[:_MAX_PROBLEM_CHARS] or "the tool failed without a message")
    if is_structured:
        size = len(json.dumps(result.structured_content))
        if size > MAX_BYTES:
            raise ToolError(f"the result has {size:,} bytes, at most {MAX_BYTES:,} are allowed; ask for less")
        return credentials.removed_from_json(result.structured_content)
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= MAX_BYTES:
        return text
    return f"{encoded[:MAX_BYTES].decode('utf-8', 'ignore')}\n[cut: {len(encoded):,} bytes in all]"


def _shown(block: Any) -> str:
    """Return a part of a result as text; of other media, only its kind."""
    match block.type:
        case "text":
            return block.text
        case "resource" if hasattr(block.resource, "text"):
            return block.resource.text
        case "resource_link":
            return f"[link: {str(block.uri)[:_MAX_DESCRIPTION_CHARS]}]"
        case kind:
            return f"[{kind}: not shown]"


KIND = FunctionKind(name="mcp", open=open_mcp)
"""The tools of MCP servers."""
