"""The allow-list of the tool `http`: its rules, the parts of a URL, and which rule a request matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Literal, Self
from urllib.parse import unquote, urlsplit

import httpx2
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tirjudge.tools.functions import ToolError

MAX_URL_CHARS = 8192
"""Maximum length of a URL in characters."""

MAX_BYTES = 256 << 10
"""Default maximum size of a response's body that a program gets, in bytes."""

PROGRAM_HEADERS = ("accept", "accept-language", "content-type", "if-modified-since", "if-none-match", "range")
"""Headers that a program may always set. Others, such as `X-HTTP-Method-Override` and `X-Original-URL`, can change what
the server does, so that the request is no longer the one that a rule allows."""

_PORTS = {"http": 80, "https": 443}
_MAX_SHOWN = 200

Method = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]


class HttpRule(BaseModel):
    """Requests that are allowed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str
    """Host name or address, without port. Other names, also those below it, do not match."""
    scheme: Literal["http", "https"] = "https"
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port. None: the scheme's."""
    methods: tuple[Method, ...] = ("GET",)
    path: str | None = None
    """Beginning of the path, in whole segments. None: any path."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    """Headers that the host adds, such as credentials. `${NAME}` is an environment variable."""
    program_headers: tuple[str, ...] = ()
    """Headers that a program may set besides `PROGRAM_HEADERS`."""
    allow_private: bool = False
    """Whether the host may have a loopback or private address."""
    insecure_credentials: bool = False
    """Whether `headers` may be sent without TLS."""

    @field_validator("host")
    @classmethod
    def _normal(cls, host: str) -> str:
        try:
            url = httpx2.URL(f"https://[{host}]/" if ":" in host else f"https://{host}/")
        except httpx2.InvalidURL as error:
            raise ValueError(f"not a host: {error}") from None
        if url.userinfo or url.port is not None or url.path != "/" or url.query or "%" in url.host or not url.host:
            raise ValueError(
                "not a host: give a name such as api.example.com or an address, without scheme, port and path"
            )
        normal = normal_host(url)
        if _is_number(normal):
            raise ValueError("not a host: write an IPv4 address as four decimal numbers")
        return normal

    @field_validator("path")
    @classmethod
    def _whole_segments(cls, path: str | None) -> str | None:
        if path is not None and (not path.startswith("/") or _is_ambiguous(path) or path != unquote(path)):
            raise ValueError("not a path: begin with / and write no dot segments, blanks and % escapes")
        return path

    @model_validator(mode="after")
    def _credentials_need_tls(self) -> Self:
        if self.headers and self.scheme == "http" and not self.insecure_credentials:
            raise ValueError('headers are sent without TLS: use "scheme": "https", or set "insecure_credentials": true')
        return self

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{', '.join(self.methods)} {self.scheme}://{host}{port}{self.path or '/'}"

    def matches(self, method: str, target: Target) -> bool:
        """Whether the rule allows a request."""
        return (
            (self.scheme, self.host, self.port or _PORTS[self.scheme]) == (target.scheme, target.host, target.port)
            and method in self.methods
            and (self.path is None or _is_below(target.path, self.path))
        )


class HttpSettings(BaseModel):
    """Contents of the settings file of the tool `http`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: tuple[HttpRule, ...] = Field(min_length=1)
    timeout_s: Annotated[float, Field(gt=0, le=120)] = 20.0
    """Maximum seconds for a call, with its redirects."""
    max_bytes: Annotated[int, Field(ge=1, le=8 << 20)] = MAX_BYTES
    """Maximum size of a response's body that a program gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The parts of a URL that decide where a request goes."""

    url: httpx2.URL
    """The URL."""
    scheme: str
    """`http` or `https`."""
    host: str
    """Host name in lower case and ASCII, or address."""
    port: int
    """Port."""
    path: str
    """Path as it is sent."""

    @property
    def authority(self) -> str:
        """Value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def address(self) -> str | None:
        """The host, if it is an address. None: it is a name."""
        try:
            return str(ip_address(self.host))
        except ValueError:
            return None


def target_of(text: str, *, params: Mapping[str, object] | None = None) -> Target:
    """Split a URL.

    Args:
        text: absolute URL.
        params: query parameters to add.

    Raises:
        ToolError: the URL is invalid, or may mean different things to different programs.
    """
    if len(text) > MAX_URL_CHARS:
        raise ToolError(f"url: longer than {MAX_URL_CHARS:,} characters")
    if not text.isprintable() or "\\" in text or " " in text:
        raise ToolError("url: contains a blank, a backslash or a control character; write it as a % escape")
    try:
        url, authority = httpx2.URL(text), urlsplit(text).netloc
        if params:
            url = url.copy_merge_params({name: _param(value) for name, value in params.items()})
    except (httpx2.InvalidURL, ValueError, TypeError) as error:
        raise ToolError(f"url: {str(error)[:_MAX_SHOWN]}") from None
    if url.scheme not in _PORTS or not url.host:
        raise ToolError("url: expected an absolute URL such as https://api.example.com/path")
    if "@" in authority or url.userinfo:
        raise ToolError("url: contains a user name; write only the host before the path")
    return Target(
        url=url,
        scheme=url.scheme,
        host=normal_host(url),
        port=_PORTS[url.scheme] if url.port is None else url.port,
        path=url.raw_path.decode("ascii").partition("?")[0],
    )


def _param(value: object) -> str | int | float | bool | list[str] | None:
    if isinstance(value, list):
        return [str(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError("params: expected texts, numbers and lists of them")


def rule_for(method: str, target: Target, *, rules: Sequence[HttpRule]) -> HttpRule:
    """Return the first rule that allows a request.

    Raises:
        ToolError: no rule allows it. The message lists the rules.
    """
    for rule in rules:
        if rule.matches(method, target):
            return rule
    shown = f"{method[:16]} {target.scheme}://{target.authority}{target.path}"[:_MAX_SHOWN]
    raise ToolError(f"{shown} is not allowed; allowed: {list_of(rules)}")


def list_of(rules: Sequence[HttpRule]) -> str:
    """Return what the first rules allow, as text."""
    more = f"; and {len(rules) - 8} more" if len(rules) > 8 else ""
    return "; ".join(map(str, rules[:8])) + more


def normal_host(url: httpx2.URL) -> str:
    """Return the host of a URL in lower case and ASCII; an address in its shortest form."""
    host = url.raw_host.decode("ascii").lower()
    try:
        return str(ip_address(host))
    except ValueError:
        return host


def _is_number(host: str) -> bool:
    """Whether a resolver reads a host as an IPv4 address in another form, such as 2130706433, 0x7f.1 or 127.1."""
    last = host.removesuffix(".").rpartition(".")[2]
    is_address = host.replace(".", "").isdigit() and host.count(".") == 3
    return not is_address and ":" not in host and (last.isdigit() or last.startswith("0x"))


def _is_below(path: str, beginning: str) -> bool:
    """Whether a path is, for every server, at or below another one."""
    if _is_ambiguous(path):
        return False
    plain = unquote(path)
    return plain == beginning or plain.startswith(beginning.rstrip("/") + "/")


def _is_ambiguous(path: str) -> bool:
    """Whether servers may read a path in different ways: dot segments, escaped separators, escapes of escapes."""
    lower = path.lower()
    if any(escape in lower for escape in ("%2f", "%5c", "%25", "%00", "\\", " ")):
        return True
    return any(segment.split(";", 1)[0] in (".", "..") for segment in unquote(path).split("/"))
