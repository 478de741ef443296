"""`/ui/judgments`: the list of judgments with filters, the page of a judgment, labels, and running a program again."""

from __future__ import annotations

import asyncio
import csv
import datetime
import io
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from tirjudge.http.protocol import invalid, shown
from tirjudge.types import Mode
from tirjudge_pages import NavLink, PageFrame, render_page
from tirjudge_pages.judgment import JudgmentView, LabelShown, LiveJudgment, RanAgain
from tirjudge_server.access.authorization import check_scope
from tirjudge_server.records.account import account_of
from tirjudge_server.records.account_page import ACCOUNT_POLICY, account_page
from tirjudge_server.records.endpoints import as_record, check_replayable, find_judgment, replay_record
from tirjudge_server.records.filters import STATUSES, UNLABELED, RecordFilter
from tirjudge_server.records.labels import LABELS, MAX_NOTE_CHARS, GivenLabel, StoredLabel
from tirjudge_server.records.record import StoredJudgment
from tirjudge_server.records.store import Records
from tirjudge_server.service import JudgeService
from tirjudge_server.ui.site import PageSite, Viewer
from tirjudge_web.connection import while_connected
from tirjudge_web.errors import Refused

PATH = "/ui/judgments"

PAGE_ROWS = 50
"""Number of judgments on a page of the list."""

EXPORT_ROWS = 1_000
"""Number of judgments that an export reads at once."""

RUN_SCOPE = "judge"
"""Scope for running a program again: it uses the sandbox of judgments."""

BASES = ("checked", "reasoned", "guessed")

FIELDS = (
    "seq", "id", "created_ms", "caller", "dialect", "mode", "model", "status", "label", "forced", "flipped", "basis",
    "tool_error", "human",
)  # fmt: skip
"""Columns of an export."""

_TEXTS = ("id", "model", "caller", "verdict")
_FLAGS = ("forced", "flipped", "tool_error")
_CHOICES = {"mode": tuple(map(str, Mode)), "basis": BASES, "human": (*LABELS, UNLABELED)}
_DATES = {"since": "since_ms", "until": "until_ms"}

MAX_FILTER_CHARS = 200
"""Maximum length of a filter's value, in characters."""


def router(site: PageSite, *, service: JudgeService, records: Records) -> APIRouter:
    """Return the pages of recorded judgments.

    Args:
        site: What all pages share. The list is added to its links.
        service: Runs programs again in its sandbox.
        records: Holds the judgments.
    """
    site.links.append(NavLink(url=PATH, text="Judgments"))
    pages = JudgmentPages(site, service=service, records=records)
    routes = site.router()
    _add_reading(routes, pages, reads=Depends(site.viewing("read")))
    _add_actions(routes, pages, labels=Depends(site.viewing("label")), runs=Depends(site.viewing(RUN_SCOPE)))
    return routes


def _add_reading(routes: APIRouter, pages: JudgmentPages, *, reads: Any) -> None:
    records = pages.records

    @routes.get(PATH)
    async def judgments(request: Request, viewer: Viewer = reads) -> Response:
        return await pages.listed(request, viewer=viewer)

    @routes.get(f"{PATH}.csv")
    async def export(request: Request, viewer: Viewer = reads) -> Response:
        lines = _csv(records, where=parse_filter(_given(request)), caller=viewer.seen)
        headers = {"Content-Disposition": 'attachment; filename="judgments.csv"'}
        return StreamingResponse(lines, media_type="text/csv", headers=headers)

    @routes.get(PATH + "/{judgment_id}.json")
    async def as_json(request: Request, judgment_id: str, viewer: Viewer = reads) -> Response:
        record = as_record(await find_judgment(request, judgment_id=judgment_id, records=records))
        headers = {"Content-Disposition": f'attachment; filename="{record.id}.json"'}
        return Response(record.model_dump_json(indent=1), media_type="application/json", headers=headers)

    @routes.get(PATH + "/{judgment_id}.html")
    async def as_file(request: Request, judgment_id: str, viewer: Viewer = reads) -> Response:
        record = as_record(await find_judgment(request, judgment_id=judgment_id, records=records))
        frame, view = PageFrame(is_file=True), JudgmentView.of_record(record)
        headers = {"Content-Disposition": f'attachment; filename="{record.id}.html"'}
        return Response(
            render_page("judgment", frame=frame, view=view, live=None), media_type="text/html", headers=headers
        )

    @routes.get(PATH + "/{judgment_id}/account")
    async def account(request: Request, judgment_id: str, viewer: Viewer = reads) -> Response:
        record = await find_judgment(request, judgment_id=judgment_id, records=records)
        page = await asyncio.to_thread(lambda: account_page(account_of(record)))
        headers = {"Content-Security-Policy": f"{ACCOUNT_POLICY}; frame-ancestors 'none'"}
        return Response(page, media_type="text/html", headers=headers)

    @routes.get(PATH + "/{judgment_id}")
    async def judgment(request: Request, judgment_id: str, viewer: Viewer = reads) -> Response:
        return await pages.judgment(request, judgment_id, viewer=viewer)


def _add_actions(routes: APIRouter, pages: JudgmentPages, *, labels: Any, runs: Any) -> None:
    records = pages.records

    @routes.post(PATH + "/{judgment_id}/labels")
    async def label(request: Request, judgment_id: str, viewer: Viewer = labels) -> Response:
        _check_reads(viewer)
        record = await find_judgment(request, judgment_id=judgment_id, records=records)
        await records.label(_given_label(viewer, record))
        return RedirectResponse(f"{PATH}/{record.id}?{urlencode(_given(request))}#labels", status_code=303)

    @routes.post(PATH + "/{judgment_id}/programs/{rollout}/{turn}")
    async def run(request: Request, judgment_id: str, rollout: int, turn: int, viewer: Viewer = runs) -> Response:
        _check_reads(viewer)
        again = await pages.run_again(request, judgment_id, rollout=rollout, turn=turn)
        return await pages.judgment(request, judgment_id, viewer=viewer, again=again)


class JudgmentPages:
    """The pages of recorded judgments. The arguments are as for `router`."""

    def __init__(self, site: PageSite, *, service: JudgeService, records: Records) -> None:
        self.site = site
        self.service = service
        self.records = records

    async def listed(self, request: Request, *, viewer: Viewer) -> Response:
        """Answer with the list of judgments that meet the filters of a request."""
        given, after = _given(request), request.query_params.get("after")
        where = parse_filter(given)
        rows = await self.records.page(after=after, limit=PAGE_ROWS + 1, caller=viewer.seen, where=where)
        more = urlencode({**given, "after": rows[PAGE_ROWS - 1].id}) if len(rows) > PAGE_ROWS else None
        return self.site.page(
            request,
            "judgments",
            viewer=viewer,
            rows=rows[:PAGE_ROWS],
            given=given,
            query=urlencode(given),
            more=more,
            is_first=after is None,
            choices=_CHOICES,
            statuses=STATUSES,
            sees_all=viewer.seen is None,
        )

    async def judgment(
        self, request: Request, judgment_id: str, *, viewer: Viewer, again: RanAgain | None = None
    ) -> Response:
        """Answer with the page of a judgment.

        Args:
            request: Its query has the filters of the list.
            judgment_id: Id of the judgment.
            viewer: The reader.
            again: A program that ran again. None: none.
        """
        given = _given(request)
        record = await find_judgment(request, judgment_id=judgment_id, records=self.records)
        newer, older = await self.records.neighbours(record.seq, caller=viewer.seen, where=parse_filter(given))
        query = f"?{urlencode(given)}" if given else ""
        live = LiveJudgment(
            path=f"{PATH}/{record.id}",
            query=query,
            back=PATH + query,
            newer=None if newer is None else f"{PATH}/{newer}{query}",
            older=None if older is None else f"{PATH}/{older}{query}",
            may_label=viewer.may("label"),
            may_run=viewer.may(RUN_SCOPE) and self.service.judge.sandbox is not None,
            labels=[_shown(label) for label in await self.records.labels(record.id)],
            again=again,
        )
        view = JudgmentView.of_record(as_record(record))
        return self.site.page(request, "judgment", viewer=viewer, view=view, live=live)

    async def run_again(self, request: Request, judgment_id: str, *, rollout: int, turn: int) -> RanAgain:
        """Run a program of a judgment again.

        Raises:
            Refused: 404, the judgment or the program does not exist; or as `replay_record`.
        """
        self.service.draining.check()
        record = await find_judgment(request, judgment_id=judgment_id, records=self.records)
        check_replayable(record)
        work = replay_record(record, service=self.service, records=self.records, only=(rollout, turn))
        async with self.service.draining.limit():
            replayed = await while_connected(request.receive, work)
        if not replayed.programs:
            message = f"turn: rollout {rollout}, turn {turn} of {judgment_id} ran no program"
            raise Refused(invalid(message, param="turn", code="no_program"), status=404)
        found = replayed.programs[0]
        return RanAgain(
            rollout=rollout,
            turn=turn,
            result=found.result,
            outcome=found.replayed_outcome,
            output=found.replayed_output,
            reason=found.reason,
        )


def _shown(label: StoredLabel) -> LabelShown:
    return LabelShown(
        label=label.label, best=label.best, note=label.note, caller=label.caller, created_ms=label.created_ms
    )


def _check_reads(viewer: Viewer) -> None:
    """
    Raises:
        Refused: 403, the reader may not read judgments.
    """
    if viewer.key is not None:
        check_scope(viewer.key, scope="read")


def _given(request: Request) -> dict[str, str]:
    """Return the filters in the query of a request, without empty ones."""
    names = (*_TEXTS, *_FLAGS, *_CHOICES, *_DATES)
    return {name: value for name in names if (value := request.query_params.get(name, "").strip())}


def parse_filter(given: Mapping[str, str]) -> RecordFilter:
    """Parse the filters of a list.

    Args:
        given: Name -> value.

    Raises:
        Refused: 400, a value is invalid.
    """
    parsed: dict[str, Any] = {}
    for name, value in given.items():
        if len(value) > MAX_FILTER_CHARS or "\x00" in value:
            raise _wrong(name, value, expected=f"at most {MAX_FILTER_CHARS} characters")
        if name in _TEXTS:
            parsed[name] = value
        elif name in _FLAGS:
            if value not in ("yes", "no"):
                raise _wrong(name, value, expected="yes or no")
            parsed[name] = value == "yes"
        elif name in _CHOICES:
            if value not in _CHOICES[name]:
                raise _wrong(name, value, expected=", ".join(_CHOICES[name]))
            parsed[name] = value
        else:
            parsed[_DATES[name]] = _day_ms(name, value)
    return RecordFilter(**parsed)


def _day_ms(name: str, value: str) -> int:
    """Return the start of a day in UTC, as Unix time in milliseconds. `until`: the end of the day."""
    try:
        day = datetime.datetime.combine(datetime.date.fromisoformat(value), datetime.time(), tzinfo=datetime.UTC)
        day += datetime.timedelta(days=name == "until")
    except (ValueError, OverflowError):
        raise _wrong(name, value, expected="a date such as 2030-01-31") from None
    return int(day.timestamp() * 1000)


def _wrong(name: str, value: str, *, expected: str) -> Refused:
    return Refused(invalid(f"{name}: {shown(value)} given; use {expected}", param=name, code="invalid_value"))


def _given_label(viewer: Viewer, record: StoredJudgment) -> GivenLabel:
    """
    Raises:
        Refused: 400, the form is invalid.
    """
    label, note, best = (viewer.form.get(name, "").strip() for name in ("label", "note", "best"))
    if label not in LABELS:
        raise _wrong("label", label, expected=", ".join(LABELS))
    if len(note) > MAX_NOTE_CHARS:
        raise _wrong("note", note, expected=f"at most {MAX_NOTE_CHARS} characters")
    num_responses = len(record.judgment.judged)
    if best and (label != "other" or best not in map(str, range(num_responses))):
        raise _wrong("best", best, expected="the index of a response, with the label other")
    return GivenLabel(
        judgment_id=record.id,
        label=label,
        best=int(best) if best else None,
        note=note or None,
        caller=viewer.caller,
    )


async def _csv(records: Records, *, where: RecordFilter, caller: str | None) -> AsyncIterator[str]:
    """Yield the judgments of a list as CSV, newest first, without their texts."""
    yield _line(FIELDS)
    after = None
    while rows := await records.page(after=after, limit=EXPORT_ROWS, caller=caller, where=where):
        yield "".join(_line(_cell(getattr(row, name)) for name in FIELDS) for row in rows)
        after = rows[-1].id


def _line(cells: Any) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return a cell that a spreadsheet does not take for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
