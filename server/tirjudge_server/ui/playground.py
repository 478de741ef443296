"""The playground, `/`: a form for a request, the judgment turn by turn, and the request as code.

A browser with scripts asks for `text/event-stream` and gets parts of the page. Each part is one JSON object: a rendered
template with the id of the element that shows it, a status, or a problem. Without scripts, the answer is the whole page.
Clients that do not ask for HTML get the paths of the API from `GET /`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import JSONResponse, Response, StreamingResponse

from tirjudge.http.protocol import (
    HEARTBEAT,
    JUDGE_PATH,
    MODELS_PATH,
    ErrorBody,
    Event,
    JudgmentCreated,
    JudgmentTurn,
    Problem,
    problem_of,
)
from tirjudge.types import MODEL_MODES, JudgeRequest, Judgment, Mode, label_of
from tirjudge_pages import NavLink, PageFrame, render_page
from tirjudge_pages.judgment import MAX_TURNS, JudgmentView, TurnView
from tirjudge_pages.request_form import MAX_CRITERION_FIELDS, MAX_RESPONSE_FIELDS, RequestForm
from tirjudge_pages.snippets import RequestCode, code_of
from tirjudge_pages.untrusted import shown_text
from tirjudge_server.call import call_of
from tirjudge_server.demo import REQUESTS
from tirjudge_server.service import JudgeService
from tirjudge_server.streaming import EventStream, judgment_events
from tirjudge_server.ui.site import PageSite, Viewer
from tirjudge_web.connection import while_connected
from tirjudge_web.errors import FAILURES, Refused, problem_from

PATH = "/"

SCOPE = "judge"
"""Scope that a reader's key must have to send a request."""

MAX_PROBLEM_CHARS = 2_000
"""Maximum length of an error on the page, in characters."""

STREAM = "text/event-stream"

INDEX = {
    "name": "tirjudge",
    "version": version("tirjudge"),
    "openapi": "/openapi.json",
    "judge": JUDGE_PATH,
    "models": MODELS_PATH,
    "health": "/health",
    "ready": "/ready",
}
"""What clients other than browsers get from `GET /`."""

_EXAMPLES = {str(request.mode): request for request in REQUESTS}
_EXAMPLES[str(Mode.RULES)] = _EXAMPLES[str(Mode.LISTWISE)].model_copy(update={"mode": Mode.RULES})

_TOOLS = (("auto", "may run Python"), ("on", "must run Python"), ("off", "none"))

_OPTIONS = ("reference", "rubric", "votes", "criteria.0.text")
"""Fields that are shown at once if they have a text."""


def router(site: PageSite, *, service: JudgeService, max_body_bytes: int, records_path: str | None) -> APIRouter:
    """Return the routes of the playground.

    Args:
        site: What all pages share. The playground is added to its links.
        service: Judges the requests.
        max_body_bytes: Maximum size of a form.
        records_path: Path of the pages of records. None: judgments are not stored.
    """
    site.links.append(NavLink(url=PATH, text="Playground"))
    routes = site.router()
    playground = _Playground(site, service=service, max_body_bytes=max_body_bytes, records_path=records_path)

    @routes.get(PATH)
    async def show(request: Request, example: str = "") -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            return JSONResponse(INDEX, headers={"Vary": "Accept"})
        return await playground.show(request, example=example)

    @routes.post(PATH)
    async def submit(request: Request) -> Response:
        return await playground.submit(request)

    return routes


class _Playground:
    """The playground of one server. Arguments: see `router`."""

    def __init__(self, site: PageSite, *, service: JudgeService, max_body_bytes: int, records_path: str | None) -> None:
        self._site = site
        self._service = service
        self._max_body_bytes = max_body_bytes
        self._records_path = records_path

    async def show(self, request: Request, *, example: str) -> Response:
        """Return the page with an example, or with an empty form."""
        viewer = await self._site.viewer_of(request, scope=None)
        form = RequestForm.of_request(_EXAMPLES[example]) if example in _EXAMPLES else RequestForm()
        return self._page(request, viewer, form)

    async def submit(self, request: Request) -> Response:
        """Answer a form. A failure is shown at its field, or below the form."""
        viewer, form = None, RequestForm()
        try:
            async with self._service.draining.limit():
                viewer = await self._site.viewer_of(request, scope=SCOPE, max_form_bytes=self._max_body_bytes)
            form = RequestForm.of_form(viewer.form)
            return await self._answer(request, viewer, form)
        except FAILURES as error:
            status, problem, headers = problem_from(error)
            if _wants_stream(request):
                return _one_block(_problem_block(form, problem, headers=headers))
            if viewer is None:
                raise
            shown = {"problem": _told(problem, headers), "problem_field": form.field_of(problem.param)}
            page = self._page(request, viewer, form, status=status, **shown)
            page.headers.update(headers)
            return page

    async def _answer(self, request: Request, viewer: Viewer, form: RequestForm) -> Response:
        match form.text("action"):
            case "response":
                more = form.with_response()
                return self._page(request, viewer, more, focused=f"responses.{more.num_responses - 1}")
            case "criterion":
                more = form.with_criterion()
                return self._page(request, viewer, more, focused=f"criteria.{more.num_criteria - 1}.text")
        asked = _request_of(form)
        code = code_of(
            asked,
            url=self._site.url(request),
            model=self._service.judge.profile.name,
            needs_key=viewer.key is not None,
        )
        if form.text("action") == "code":
            if _wants_stream(request):
                return _one_block(_html_block("code", is_last=True, code=code))
            return self._page(request, viewer, form, code=code)
        return await self._judge(request, viewer, form, asked=asked, code=code)

    async def _judge(
        self, request: Request, viewer: Viewer, form: RequestForm, *, asked: JudgeRequest, code: RequestCode
    ) -> Response:
        call = call_of(request, dialect="playground")
        may_read = self._records_path is not None and viewer.may("read")

        def result_of(judgment: Judgment) -> dict[str, Any]:
            view = JudgmentView(judgment, request={"responses": asked.responses}, id="result-")
            return {"view": view, "record": f"{self._records_path}/{judgment.id}" if may_read else None}

        if _wants_stream(request):
            events = judgment_events(self._service, asked, call=call)
            return EventStream(await anext(events), events, encode=_encoder(form, code=code, result_of=result_of))
        judgment = await while_connected(request.receive, self._service.answer(asked, call=call))
        return self._page(request, viewer, form, code=code, **result_of(judgment))

    def _page(
        self, request: Request, viewer: Viewer, form: RequestForm, *, status: int = 200, **values: Any
    ) -> Response:
        judge = self._service.judge
        modes = [*MODEL_MODES, *([Mode.RULES] if judge.checks is not None else [])]
        shown = {
            "form": form,
            "may_judge": viewer.may(SCOPE),
            "model": judge.profile.name,
            "modes": [str(mode) for mode in sorted(modes, key=lambda mode: mode is not Mode.PAIRWISE)],
            "tools": _TOOLS if judge.tools else _TOOLS[-1:],
            "has_options": form.num_criteria > 1 or any(form.text(name) not in ("", "1") for name in _OPTIONS),
            "max_responses": MAX_RESPONSE_FIELDS,
            "max_criteria": MAX_CRITERION_FIELDS,
            "problem": "",
            "problem_field": None,
            "view": None,
            "code": None,
            "focused": None,
        }
        page = self._site.page(request, "playground", viewer=viewer, status=status, **{**shown, **values})
        page.headers["Vary"] = "Accept"
        return page


def _wants_stream(request: Request) -> bool:
    return STREAM in request.headers.get("accept", "")


def _request_of(form: RequestForm) -> JudgeRequest:
    """
    Raises:
        Refused: 400, a value is not valid.
    """
    try:
        return form.request()
    except ValidationError as error:
        raise Refused(problem_of(error)) from error


def _told(problem: Problem, headers: dict[str, str]) -> str:
    """Return the message of an error, with the seconds until a retry."""
    retry_s = headers.get("retry-after")
    text = problem.message if retry_s is None else f"{problem.message}. Try again in {retry_s} s."
    return shown_text(text, MAX_PROBLEM_CHARS)


def _block(*, is_last: bool = False, **part: str) -> bytes:
    return f"data: {json.dumps({**part, 'is_last': is_last})}\n\n".encode()


def _one_block(block: bytes) -> Response:
    return StreamingResponse(iter([block]), media_type=STREAM)


def _html_block(target: str, *, is_last: bool = False, **values: Any) -> bytes:
    html = render_page(f"playground_{target}", frame=PageFrame(), **values)
    return _block(target=target, html=html, is_last=is_last)


def _problem_block(form: RequestForm, problem: Problem, *, headers: dict[str, str]) -> bytes:
    text = _told(problem, headers)
    return _block(target="problem", field=form.field_of(problem.param), text=text, is_last=True)


def _encoder(
    form: RequestForm, *, code: RequestCode, result_of: Callable[[Judgment], dict[str, Any]]
) -> Callable[[Event | None], bytes]:
    """Return a function that encodes the events of one judgment as parts of the page."""
    num_turns = 0

    def encode(event: Event | None) -> bytes:
        nonlocal num_turns
        match event:
            case None:
                return HEARTBEAT
            case JudgmentCreated():
                text = f"The server accepted the request as {event.id}. Waiting for the first turn."
                status = _block(target="status", text=text)
                return status + _html_block("code", code=code)
            case JudgmentTurn():
                num_turns += 1
                status = _block(target="status", text=f"Turns so far: {num_turns}")
                if num_turns > MAX_TURNS:
                    return status
                turn = TurnView(turn=event.turn, rollout=0, index=num_turns - 1, prefix="streamed-")
                note = f"Order of the answers: {', '.join(map(label_of, event.order))}" if len(event.order) > 1 else ""
                return status + _html_block("turn", turn=turn, note=note)
            case Judgment():
                status = _block(target="status", text="Done.")
                return status + _html_block("result", is_last=True, **result_of(event))
            case ErrorBody():
                return _problem_block(form, event.error, headers={})

    return encode
