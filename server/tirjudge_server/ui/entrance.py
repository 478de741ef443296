"""`/`, `/ui/login`, `/ui/logout`, `/ui/static/...`, and the reports of content security policies."""

from __future__ import annotations

import asyncio
import logging
from pathlib import PurePath

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from tirjudge.http.protocol import invalid, shown
from tirjudge_pages import asset, asset_names
from tirjudge_pages.environment import MEDIA_TYPES
from tirjudge_pages.policy import REPORT_PATH
from tirjudge_server.access.sessions import SESSION_S, end_session, start_session
from tirjudge_server.ui.site import COOKIE, LOGIN_PATH, MAX_FORM_BYTES, PageSite, read_form
from tirjudge_web.body import read_body
from tirjudge_web.errors import Refused

logger = logging.getLogger(__name__)

FIRST_PAGE = "/"
"""Path of the first page after the login."""

_FOREVER = "public, max-age=31536000, immutable"


def router(site: PageSite) -> APIRouter:
    """Return the routes that a reader needs before the first page."""
    routes = site.router()

    @routes.get(LOGIN_PATH)
    async def login_page(request: Request, next: str = FIRST_PAGE) -> Response:
        return site.page(request, "login", viewer=None, next=_own_path(next), problem=None)

    @routes.post(LOGIN_PATH)
    async def login(request: Request) -> Response:
        # A form of another site does not get here: `BrowserCheck` refuses it.
        form = await read_form(request)
        target, given = _own_path(form.get("next", FIRST_PAGE)), form.get("key", "").strip()
        if site.access is None or not site.access.is_guarded:
            return RedirectResponse(target, status_code=303)
        try:
            key = await site.access.valid_key(given)
        except Refused as refused:
            problem = refused.problem.message
            return site.page(request, "login", viewer=None, status=401, next=target, problem=problem)
        token = await asyncio.to_thread(start_session, site.access.database, key=key)
        response = RedirectResponse(target, status_code=303)
        is_secure = site.url(request).startswith("https:")
        response.set_cookie(COOKIE, token, max_age=SESSION_S, httponly=True, samesite="strict", secure=is_secure)
        return response

    @routes.post("/ui/logout")
    async def logout(request: Request) -> Response:
        await site.viewer_of(request, scope=None)
        token = request.cookies.get(COOKIE)
        if site.access is not None and token is not None:
            await asyncio.to_thread(end_session, site.access.database, token=token)
        response = RedirectResponse(LOGIN_PATH, status_code=303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    @routes.get("/ui/static/{name}")
    async def static(name: str) -> Response:
        if name not in asset_names():
            raise Refused(invalid(f"name: {shown(name)} does not exist", param="name", code="not_found"), status=404)
        media_type = MEDIA_TYPES[PurePath(name).suffix]
        return Response(asset(name), media_type=media_type, headers={"Cache-Control": _FOREVER})

    @routes.post(REPORT_PATH)
    async def report(request: Request) -> Response:
        body = await read_body(request, max_bytes=MAX_FORM_BYTES)
        logger.warning("a browser reports a violation of the content security policy (%d bytes)", len(body))
        return Response(status_code=204)

    return routes


def _own_path(given: str) -> str:
    """Return a path of this server; `FIRST_PAGE` in place of any other target. `//host` and `/\\host` are other sites."""
    is_path = given.startswith("/") and given.isascii() and given.isprintable() and not given.startswith(("//", "/\\"))
    return given if is_path else FIRST_PAGE
