"""The tool `http`: functions that send requests to hosts on an allow-list.

A host name is resolved once for a request. The addresses are checked, and one of them is dialled, so that a second answer of
the name server has no effect (DNS rebinding). Each redirect is checked like a new request. Each request has a connection of
its own: a connection whose certificate is for one host never carries a request, with its credentials, for another one.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from tirjudge.tools.addresses import Resolve, is_allowed, resolve
from tirjudge.tools.credentials import Credentials, is_header_name, is_header_value
from tirjudge.tools.functions import CallContext, FunctionKind, ToolError, ToolFunction, checker, to_json_value
from tirjudge.tools.http_rules import (
    PROGRAM_HEADERS,
    HttpRule,
    HttpSettings,
    Target,
    list_of,
    rule_for,
    target_of,
)
from tirjudge.tools.settings_file import read_settings

MAX_REDIRECTS = 3
"""Maximum number of redirects that are followed in one call."""

_MAX_ADDRESSES = 4
"""Maximum number of addresses of a host that are tried."""

_CONNECT_S = 5.0
_MAX_HEADER_CHARS = 1000
_SHOWN_HEADERS = ("content-type", "date", "etag", "last-modified", "link", "retry-after")
_CHARSETS = frozenset({"utf-8", "utf-16", "us-ascii", "ascii", "iso-8859-1", "latin-1", "windows-1252"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """What a program sends."""

    method: str
    headers: Mapping[str, str]
    content: bytes | None
    is_json: bool = False

    def redirected(self, status: int) -> _Message:
        """Return the message for the target of a redirect."""
        if status in (307, 308) or self.method in ("GET", "HEAD"):
            return self
        headers = {name: value for name, value in self.headers.items() if name != "content-type"}
        return replace(self, method="GET", headers=headers, content=None, is_json=False)

    def defaults(self) -> dict[str, str]:
        """Return headers that the program and the rule can replace."""
        return {"accept": "*/*", "user-agent": "tirjudge"} | (
            {"content-type": "application/json"} if self.is_json else {}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Response:
    """Beginning of a response."""

    status: int
    headers: httpx2.Headers
    body: bytes
    truncated: bool


class HttpRequests:
    """Sends requests that rules allow.

    Args:
        settings: rules and limits.
        credentials: values to remove from results and errors. The headers of the rules are added to them.
        resolve: returns the addresses of a host.
        tls: how certificates are verified.

    Raises:
        ValueError: an environment variable that a rule names is not set.
    """

    def __init__(
        self, settings: HttpSettings, *, credentials: Credentials, resolve: Resolve, tls: ssl.SSLContext
    ) -> None:
        self._settings, self._credentials, self._resolve, self._tls = settings, credentials, resolve, tls
        self._added = [
            credentials.headers(rule.headers, where=f"rules.{number}.headers")
            for number, rule in enumerate(settings.rules)
        ]

    async def send(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        content: bytes | None = None,
        is_json: bool = False,
    ) -> dict[str, Any]:
        """Send a request, follow its redirects, and return the fields of the result.

        Raises:
            ToolError: no rule allows the request or a redirect, or there is no complete answer in time.
        """
        given = {name.lower(): value for name, value in headers.items()}
        message = _Message(method=method.upper(), headers=given, content=content, is_json=is_json)
        seconds = self._settings.timeout_s
        try:
            async with asyncio.timeout(seconds):
                target, response = await self._follow(message, target_of(url, params=params))
        except TimeoutError:
            raise ToolError(f"no complete answer after {seconds:g} s") from None
        return self._fields(target, response)

    async def _follow(self, message: _Message, target: Target) -> tuple[Target, _Response]:
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send_to(message, target)
            location = response.headers.get("location")
            if response.status not in (301, 302, 303, 307, 308) or location is None:
                return target, response
            try:
                joined = str(target.url.join(location))
            except (httpx2.InvalidURL, ValueError):
                raise ToolError("the server redirects to an invalid URL") from None
            try:
                message, target = message.redirected(response.status), target_of(joined)
                rule_for(message.method, target, rules=self._settings.rules)
            except ToolError as error:
                raise ToolError(f"the server redirects: {self._credentials.removed_from(str(error))}") from None
        raise ToolError(f"more than {MAX_REDIRECTS} redirects")

    async def _send_to(self, message: _Message, target: Target) -> _Response:
        rule = rule_for(message.method, target, rules=self._settings.rules)
        added = self._added[self._settings.rules.index(rule)]
        headers = _checked_headers(message.headers, rule=rule) | added
        addresses = await self._addresses(target, rule=rule)
        for number, address in enumerate(addresses, 1):
            try:
                return await self._exchange(message, target, address=address, headers=headers)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                if number == len(addresses):
                    raise self._failed(target, error) from None
            except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
                raise self._failed(target, error) from None
        raise ToolError(f"{target.host}: has no address")

    def _failed(self, target: Target, error: Exception) -> ToolError:
        problem = self._credentials.removed_from(f"{type(error).__name__} {error}".strip())[:300]
        return ToolError(f"{target.scheme}://{target.authority}: the request failed: {problem}")

    async def _addresses(self, target: Target, *, rule: HttpRule) -> Sequence[str]:
        """Return the addresses of the host, all of which are allowed.

        Raises:
            ToolError: the host has no address, or one that is not allowed.
        """
        if target.address is not None:
            found: Sequence[str] = [target.address]
        else:
            try:
                found = (await self._resolve(target.host, target.port))[:_MAX_ADDRESSES]
            except (OSError, UnicodeError):
                found = []
        if not found:
            raise ToolError(f"{target.host}: the name has no address")
        if not all(is_allowed(address, allow_private=rule.allow_private) for address in found):
            # The address is not named: programs could map the network with it.
            raise ToolError(f"{target.host}: has an address that is not public; the operator can allow it in the rule")
        return found

    async def _exchange(
        self, message: _Message, target: Target, *, address: str, headers: Mapping[str, str]
    ) -> _Response:
        """Send a message to one address and read the answer, as far as it is shown."""
        most = self._settings.max_bytes + self._credentials.max_bytes
        transport = httpx2.AsyncHTTPTransport(verify=self._tls, trust_env=False, retries=0)
        timeout = httpx2.Timeout(self._settings.timeout_s, connect=min(_CONNECT_S, self._settings.timeout_s))
        fixed = {"host": target.authority, "accept-encoding": "identity", "connection": "close"}
        dialled = target.url.copy_with(host=address, fragment=None)
        async with (
            httpx2.AsyncClient(transport=transport, trust_env=False, timeout=timeout) as client,
            client.stream(
                message.method,
                dialled,
                headers={**message.defaults(), **headers, **fixed},
                content=message.content,
                extensions={"sni_hostname": target.host},
                follow_redirects=False,
            ) as response,
        ):
            if response.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
                raise ToolError("the server compressed the answer although the request refuses that")
            body = bytearray()
            async for chunk in response.aiter_raw(chunk_size=65_536):
                body += chunk
                if len(body) > most:
                    break
        clean = self._credentials.removed_from_bytes(bytes(body))
        # A body that was cut may end with a part of a credential.
        end = len(clean) - self._credentials.max_bytes if len(body) > most else len(clean)
        shown = clean[: min(end, self._settings.max_bytes)]
        truncated = len(body) > most or len(shown) < len(clean)
        return _Response(status=response.status_code, headers=response.headers, body=shown, truncated=truncated)

    def _fields(self, target: Target, response: _Response) -> dict[str, Any]:
        shown = {
            name: self._credentials.removed_from(response.headers[name])[:_MAX_HEADER_CHARS]
            for name in _SHOWN_HEADERS
            if name in response.headers
        }
        fields = {
            "status": response.status,
            "url": self._credentials.removed_from(str(target.url)),
            "headers": shown,
            "truncated": response.truncated,
        }
        content_type = shown.get("content-type", "").lower()
        if "json" in content_type and not response.truncated:
            try:
                return fields | {"json": json.loads(response.body, parse_constant=_refuse)}
            except (ValueError, RecursionError):
                pass  # shown as text
        charset = content_type.partition("charset=")[2].partition(";")[0].strip("\"' ")
        return fields | {"text": response.body.decode(charset if charset in _CHARSETS else "utf-8", "replace")}


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _checked_headers(headers: Mapping[str, str], *, rule: HttpRule) -> dict[str, str]:
    """Return the headers of a program.

    Raises:
        ToolError: a header is invalid, or the rule does not allow it.
    """
    allowed = {*PROGRAM_HEADERS, *(name.lower() for name in rule.program_headers)}
    allowed -= {name.lower() for name in rule.headers}
    for name, value in headers.items():
        if name not in allowed:
            raise ToolError(f"headers: {name[:80]!r} is not allowed; allowed: {', '.join(sorted(allowed))}")
        if not is_header_name(name) or not is_header_value(value) or len(value) > _MAX_HEADER_CHARS:
            raise ToolError(
                f"headers: {name[:80]!r}: expected at most {_MAX_HEADER_CHARS:,} printable ASCII characters"
            )
    return dict(headers)


# ------------------------------------------------------------------------------------------------------- functions


class _Get(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str
    params: dict[str, JsonValue] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    method: str
    url: str
    params: dict[str, JsonValue] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    json_: JsonValue = Field(default=None, alias="json")
    text: str | None = None


def _functions(requests: HttpRequests, rules: Sequence[HttpRule]) -> Sequence[ToolFunction]:
    async def get(arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        return await requests.send("GET", **arguments)

    async def request(arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        given = dict(arguments)
        value, text = given.pop("json_"), given.pop("text")
        if value is not None and text is not None:
            raise ToolError("json: given together with text; give one of them")
        body = text if value is None else json.dumps(value)
        content = None if body is None else body.encode("utf-8", "replace")
        return await requests.send(**given, content=content, is_json=value is not None)

    result = '{"status": int, "url": str, "headers": dict, "truncated": bool, "json" or "text": the body}'
    methods = {method for rule in rules for method in rule.methods}
    sent = _function(
        "http.request",
        handle=request,
        model=_Request,
        signature=(
            f"(method: str, url: str, params: dict = {{}}, headers: dict = {{}}, json=None, text: str = None) -> {result}"
        ),
        description=f"sends a request. Allowed: {list_of(rules)}.",
    )
    got = _function(
        "http.get",
        handle=get,
        model=_Get,
        signature=f"(url: str, params: dict = {{}}, headers: dict = {{}}) -> {result}",
        description=f"sends a GET request. Allowed: {list_of([rule for rule in rules if 'GET' in rule.methods])}.",
    )
    return [*([got] if "GET" in methods else []), *([sent] if methods != {"GET"} else [])]


def _function(name: str, *, handle: Any, model: type[BaseModel], signature: str, description: str) -> ToolFunction:
    return ToolFunction(
        name=name,
        signature=signature,
        description=description,
        parameters=tuple(each.alias or name for name, each in model.model_fields.items()),
        handle=handle,
        check=checker(model),
        to_json=to_json_value,
        input_schema=model.model_json_schema(),
        output_schema=None,
    )


@asynccontextmanager
async def open_http(
    settings: str,
    *,
    environ: Mapping[str, str] = os.environ,
    resolve: Resolve = resolve,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Sequence[ToolFunction]]:
    """Open the functions for the rules of a file.

    Args:
        settings: path of a JSON or TOML file; see `HttpSettings`.
        environ: environment variables for `${NAME}`.
        resolve: returns the addresses of a host.
        tls: how certificates are verified. None: by the certificate authorities of this machine.

    Raises:
        ValueError: the file cannot be read, its contents are invalid, or an environment variable is not set.
    """
    if not settings:
        raise ValueError("--tool http: no settings; give a file of rules, such as http:rules.json (docs/tools-http.md)")
    read = read_settings(settings, HttpSettings, tool="http")
    try:
        requests = HttpRequests(
            read, credentials=Credentials(environ), resolve=resolve, tls=tls or httpx2.create_ssl_context()
        )
    except ValueError as error:
        raise ValueError(f"--tool http:{settings}: {error}") from None
    yield _functions(requests, read.rules)


KIND = FunctionKind(name="http", open=open_http)
"""Functions that send HTTP requests to hosts on an allow-list."""
