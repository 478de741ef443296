"""`PageSite`: what all pages of a server share: access, the frame around a page, headers, and pages for errors.

A reader logs in with an API key and gets a session in a cookie, which scripts cannot read and other sites cannot send. A form
that changes something also sends the session's CSRF token. A server without keys shows its pages to the same machine only.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tirjudge.http.protocol import invalid
from tirjudge_pages import PAGE_HEADERS, NavLink, PageFrame, render_page
from tirjudge_server.access.authorization import Access, records_of
from tirjudge_server.access.keys import Key
from tirjudge_server.access.sessions import csrf_token
from tirjudge_web.binding import is_loopback
from tirjudge_web.body import read_body
from tirjudge_web.errors import FAILURES, Refused, problem_from
from tirjudge_web.reference import REFERENCE_PATH

PAGE_PATHS = ("/ui/",)
"""Beginnings of the paths of pages, besides `/`."""

COOKIE = "tirjudge_session"
"""Name of the cookie with the token of a session."""

LOGIN_PATH = "/ui/login"

MAX_FORM_BYTES = 64 * 1024
"""Maximum size of a form, unless a page allows more."""

MAX_FORM_FIELDS = 50
"""Maximum number of fields of a form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """The reader of a page."""

    key: Key | None
    """The reader's key. None: the server has no keys."""
    csrf: str
    """Token that forms of this reader send."""
    form: Mapping[str, str] = field(default_factory=dict)
    """Fields of the submitted form, checked for the token. Empty: the request has no form."""

    @property
    def caller(self) -> str | None:
        """Name of the reader's key. None: the server has no keys."""
        return None if self.key is None else self.key.name

    @property
    def seen(self) -> str | None:
        """Caller whose records the reader may read. None: the records of all callers."""
        return records_of(self.key)

    def may(self, scope: str) -> bool:
        """Whether the reader's key has a scope. Without keys, every reader may do everything."""
        return self.key is None or self.key.may(scope)


class PageSite:
    """What all pages of a server share.

    Attributes:
        links: Links in the header of every page. Each group of pages appends its link.

    Args:
        access: API keys. None: the server has no keys.
        public_url: URL at which clients reach the server, without a slash at the end. None: that of each request.
    """

    def __init__(self, *, access: Access | None, public_url: str | None = None) -> None:
        self.access = access
        self._public_url = public_url
        self.links: list[NavLink] = []
        self._keyless_secret = secrets.token_urlsafe(32)

    def url(self, request: Request) -> str:
        """Return the URL at which clients reach the server, without a slash at the end."""
        return self._public_url or str(request.base_url).rstrip("/")

    def router(self) -> APIRouter:
        """Return a router for pages: its responses have the headers of pages, and its errors are pages."""
        site = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                return site.answering(super().get_route_handler())

        return APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=HTMLResponse)

    def answering(
        self, handler: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that adds the headers of pages, and answers failures with a page."""

        async def answer(request: Request) -> Response:
            try:
                response = await handler(request)
            except FAILURES as error:
                response = self._problem(request, error)
            for name, value in PAGE_HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return answer

    def viewing(self, scope: str) -> Callable[[Request], Awaitable[Viewer]]:
        """Return a FastAPI dependency: the reader, who must have a key with a scope. A POST must have the CSRF token, in the
        field `csrf` of a form or in the header `x-csrf-token`.

        Args:
            scope: One of `SCOPES`.
        """

        async def find(request: Request) -> Viewer:
            return await self.viewer_of(request, scope=scope)

        return find

    async def viewer_of(self, request: Request, *, scope: str | None, max_form_bytes: int = MAX_FORM_BYTES) -> Viewer:
        """Return the reader of a request.

        Args:
            request: The request. The form of a POST is read.
            scope: Scope that the reader's key must have. None: any key.
            max_form_bytes: Maximum size of the form.

        Raises:
            Refused: 401, the reader has to log in; 403, the key lacks the scope, the CSRF token is wrong, or the server has
                no keys and the reader is on another machine; 429, a limit of the key is reached.
        """
        token, key = request.cookies.get(COOKIE), None
        if self.access is not None:
            key = await self.access.key_of_session(token, scope=scope)
        if key is None:
            _check_is_local(request)
            viewer = Viewer(key=None, csrf=csrf_token(self._keyless_secret))
        else:
            assert self.access is not None
            assert token is not None
            self.access.limits_of(key).admit()
            request.state.key, request.state.caller = key, key.name
            viewer = Viewer(key=key, csrf=csrf_token(token))
        if request.method == "POST":
            return await _checked_form(request, viewer, max_bytes=max_form_bytes)
        return viewer

    def frame(self, request: Request, viewer: Viewer | None) -> PageFrame:
        """Return the frame around a page. `viewer`: None: the reader has not logged in."""
        if viewer is None:
            return PageFrame()
        return PageFrame(links=tuple(self.links), path=request.url.path, viewer=viewer.caller, csrf=viewer.csrf)

    def page(
        self, request: Request, template: str, *, viewer: Viewer | None, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Render a page of the server.

        Args:
            request: The request that it answers.
            template: As for `tirjudge_pages.render_page`.
            viewer: The reader. None: not logged in.
            status: HTTP status, which the template gets too.
            values: Further values for the template.
        """
        html = render_page(template, frame=self.frame(request, viewer), status=status, **values)
        return HTMLResponse(html, status_code=status)

    def _problem(self, request: Request, error: Exception) -> Response:
        """Return the page of an error. A reader who has to log in is sent to the login."""
        status, problem, headers = problem_from(error)
        if status == 401 and request.method == "GET":
            if request.headers.get("sec-fetch-site", "none") in ("cross-site", "same-site"):
                return self.page(request, "reopen", viewer=None)
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"{LOGIN_PATH}?next={quote(request.url.path + query, safe='')}", status_code=303)
        page = self.page(request, "problem", viewer=None, status=status, message=problem.message)
        page.headers.update({name: value for name, value in headers.items() if name != "www-authenticate"})
        return page


def is_page(path: str) -> bool:
    """Whether a path is that of a page for people."""
    return path in ("/", REFERENCE_PATH) or path.startswith(PAGE_PATHS)


async def read_form(request: Request, *, max_bytes: int = MAX_FORM_BYTES) -> dict[str, str]:
    """Read the fields of a form. The last value of a repeated field counts.

    Raises:
        Refused: 413, the form is too large; 400, it is not UTF-8 or has too many fields.
    """
    body = await read_body(request, max_bytes=max_bytes)
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS, errors="strict")
    except ValueError as error:
        raise Refused(invalid(f"form: {error}", param="form", code="invalid_value")) from error
    return dict(fields)


async def _checked_form(request: Request, viewer: Viewer, *, max_bytes: int) -> Viewer:
    """
    Raises:
        Refused: 403, the CSRF token is missing or wrong; or as `read_form`.
    """
    given, form = request.headers.get("x-csrf-token"), {}
    if given is None:
        form = await read_form(request, max_bytes=max_bytes)
        given = form.pop("csrf", "")
    if not compare_digest(given.encode("utf-8", "surrogateescape"), viewer.csrf.encode()):
        message = "csrf: the token of this form is not valid; reload the page and send the form again"
        raise Refused(invalid(message, param="csrf", code="csrf_token_invalid"), status=403)
    return Viewer(key=viewer.key, csrf=viewer.csrf, form=form)


def _check_is_local(request: Request) -> None:
    """
    Raises:
        Refused: 403, the server has no keys and the reader is on another machine.
    """
    if request.client is not None and not is_loopback(request.client.host):
        message = (
            "pages: this server has no API keys, so it shows its pages to readers on the same machine only; "
            "run `tirjudge keys create NAME` on the server and log in with the key"
        )
        raise Refused(invalid(message, param=None, code="pages_need_keys"), status=403)
