"""Refuse cross-site requests of browsers, and DNS rebinding.

Any web page can make the browser send requests, and a server without API keys on the loopback interface would answer
them. `Origin` and `Sec-Fetch-Site` identify a page of another site, and pages cannot forge them. In a DNS rebinding
attack, `attacker.example` starts to resolve to 127.0.0.1, so that the browser treats the page as a page of this
server.
`Host` then contains the attacker's name. Clients other than browsers send neither `Origin` nor `Sec-Fetch-Site`, and
their `Host` is the name that they were configured with.

A link on another site may open a page for people: the browser shows the page, and the other site cannot read it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tirjudge.http.protocol import Problem, invalid, shown
from tirjudge_web.errors import problem_response
from tirjudge_web.http_connection import PROBE_PATHS

_OWN_SITES = ("same-origin", "none")
"""Allowed values of `Sec-Fetch-Site`: a page of this server, or the user (a typed address, a bookmark)."""

_PAGE_SCHEMES = {"https": "https", "wss": "https"}
"""Scheme of a connection with TLS -> scheme of the pages of the same server."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedHosts:
    """Names allowed in `Host` in addition to IP addresses and `localhost`. Ports are ignored."""

    given: tuple[str, ...] = ()
    """Names from `--allowed-host`. If there are any, `Host` is also checked when API keys are required."""
    bound: str
    """The address or name that the server listens on. A name is allowed too."""


class BrowserCheck:
    """ASGI middleware that refuses cross-site requests of browsers, and handshakes of their WebSockets. Requests to
    `PROBE_PATHS` are not checked.

    Args:
        app: the application.
        hosts: allowed names of the server. None: `Host` is not checked.
        has_keys: called at each request; whether API keys are required.
        is_page: whether a path is a page for people, which links on other sites may open. A GET request of such a path has
            no effects that another site could want.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: AllowedHosts | None,
        has_keys: Callable[[], bool],
        is_page: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self.app = app
        self._is_page = is_page
        self._names = None if hosts is None else frozenset(map(_name, (*hosts.given, hosts.bound, "localhost")))
        self._has_keys = has_keys if hosts is None or not hosts.given else lambda: False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        is_checked = scope["type"] == "websocket" or (scope["type"] == "http" and scope["path"] not in PROBE_PATHS)
        if is_checked:
            headers = Headers(scope=scope)
            if not self._is_host_allowed(scope, headers):
                app = problem_response(_host_problem(headers.getlist("host")), status=421)
            elif self._opens_page(scope, headers):
                pass
            elif problem := _site_problem(_PAGE_SCHEMES.get(scope.get("scheme", ""), "http"), headers):
                app = problem_response(problem, status=403)
        await app(scope, receive, send)

    def _opens_page(self, scope: Scope, headers: Headers) -> bool:
        """Whether a browser opens a page in a tab: not in a frame, and not by a form or a script."""
        sent = [headers.getlist(name) for name in ("sec-fetch-mode", "sec-fetch-dest", "origin")]
        opens = scope["type"] == "http" and scope["method"] == "GET" and sent == [["navigate"], ["document"], []]
        return opens and self._is_page(scope["path"])

    def _is_host_allowed(self, scope: Scope, headers: Headers) -> bool:
        if self._names is None or self._has_keys():
            return True
        given = headers.getlist("host")
        if not given:
            return scope.get("http_version") == "1.0"  # browsers always send it
        name = _host_of(given[0]) if len(given) == 1 else None
        return name is not None and (name in self._names or _is_address(name))


def _site_problem(scheme: str, headers: Headers) -> Problem | None:
    """Return the problem with a request from a page of another site. None: the request is allowed."""
    for site in headers.getlist("sec-fetch-site"):
        if site not in _OWN_SITES:
            return _foreign(f"Sec-Fetch-Site: {shown(site)}")
    for origin in headers.getlist("origin"):
        if not _is_own(origin, scheme=scheme, hosts=headers.getlist("host")):
            return _foreign(f"Origin: {shown(origin)}")
    return None


def _is_own(origin: str, *, scheme: str, hosts: list[str]) -> bool:
    """Whether a page of this origin was served under the `Host` of the request.

    The page may have the scheme https although the request arrives over http, because a proxy may terminate TLS.
    """
    try:
        page = urlsplit(origin)
        default_port = _DEFAULT_PORTS[page.scheme]
        page_port = page.port or default_port
        own_port = urlsplit(f"//{hosts[0]}").port or default_port
    except (ValueError, KeyError, IndexError):
        return False
    if len(hosts) != 1 or (scheme == "https" and page.scheme != "https") or origin != f"{page.scheme}://{page.netloc}":
        return False
    name = _host_of(page.netloc)
    return name is not None and name == _host_of(hosts[0]) and page_port == own_port


def _host_of(authority: str) -> str | None:
    """Return the normalized name or address in `HOST` or `HOST:PORT`. None: invalid."""
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, "0"
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    is_plain = host.isascii() and not set(host) & set("@/\\?#[]%, \t")
    return _name(host) if host and is_plain and port.isdecimal() else None


def _name(host: str) -> str:
    """Normalize a name: `Judge.Example.` becomes `judge.example`."""
    return host.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_problem(given: list[str]) -> Problem:
    what = f"{', '.join(map(shown, given[:2]))} given" if given else "none given"
    message = (
        f"Host: {what}, not an allowed name of this server; start it with --allowed-host NAME, or use its IP address"
    )
    return invalid(message, param=None, code="host_not_allowed")


def _foreign(what: str) -> Problem:
    message = f"{what} given, requests from pages of other sites are not allowed"
    return invalid(message, param=None, code="cross_site_request")
