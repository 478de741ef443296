"""Refuses requests of web pages of other sites, and DNS rebinding.

A browser sends requests for any page that is open in it, and a server without keys on the loopback would answer them. A page
of another site is recognised by `Origin` and `Sec-Fetch-Site`, which no page can forge. DNS rebinding shows in `Host`:
there `attacker.example` begins to resolve to 127.0.0.1, so that the page counts as one of ours. Programs other than browsers
send neither of the first two, and in `Host` the name by which they were told to reach the server.
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
"""Of `Sec-Fetch-Site`: sent by a page of ours, and by the user (an address typed in, a bookmark)."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedHosts:
    """Names in `Host` that are taken besides IP addresses and `localhost`. A port does not matter."""

    given: tuple[str, ...] = ()
    """By `--allowed-host`. With any of these, servers with keys check `Host` too."""
    bound: str
    """The address that the server listens at, as it was given: a name is taken as well."""


class BrowserCheck:
    """ASGI middleware: refuses what other sites make a browser send. `PROBE_PATHS` are open to all.

    Args:
        app: what is protected.
        hosts: the names of the server; None: `Host` is not checked.
        has_keys: asked at each request: whether callers need a key.
    """

    def __init__(self, app: ASGIApp, *, hosts: AllowedHosts | None, has_keys: Callable[[], bool]) -> None:
        self.app = app
        self._names = None if hosts is None else frozenset(map(_name, (*hosts.given, hosts.bound, "localhost")))
        self._has_keys = has_keys if hosts is None or not hosts.given else lambda: False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http" and scope["path"] not in PROBE_PATHS:
            headers = Headers(scope=scope)
            if not self._is_host_taken(scope, headers):
                app = problem_response(_host_problem(headers.getlist("host")), status=421)
            elif problem := _site_problem(scope.get("scheme", "http"), headers):
                app = problem_response(problem, status=403)
        await app(scope, receive, send)

    def _is_host_taken(self, scope: Scope, headers: Headers) -> bool:
        if self._names is None or self._has_keys():
            return True
        given = headers.getlist("host")
        if not given:
            return scope.get("http_version") == "1.0"  # no browser leaves it out
        name = _host_of(given[0]) if len(given) == 1 else None
        return name is not None and (name in self._names or _is_address(name))


def _site_problem(scheme: str, headers: Headers) -> Problem | None:
    """What is wrong with the page that sent a request; None: nothing, or no page did."""
    for site in headers.getlist("sec-fetch-site"):
        if site not in _OWN_SITES:
            return _foreign(f"Sec-Fetch-Site: {shown(site)}")
    for origin in headers.getlist("origin"):
        if not _is_own(origin, scheme=scheme, hosts=headers.getlist("host")):
            return _foreign(f"Origin: {shown(origin)}")
    return None


def _is_own(origin: str, *, scheme: str, hosts: list[str]) -> bool:
    """Whether a page at that origin was served under the `Host` of the request.

    A proxy may speak TLS for a server that does not, so a page may be of https where the request is of http.
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
    """The name or the address in `HOST` or `HOST:PORT`, in one spelling; None if it is neither."""
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
    """`Judge.Example.` is `judge.example`."""
    return host.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_problem(given: list[str]) -> Problem:
    what = f"{', '.join(map(shown, given[:2]))} given" if given else "none given"
    message = f"Host: {what}, which is no name of this server; start it with --allowed-host NAME, or use its IP address"
    return invalid(message, param=None, code="host_not_allowed")


def _foreign(what: str) -> Problem:
    message = f"{what} given: pages of other sites may not use this server"
    return invalid(message, param=None, code="cross_site_request")
