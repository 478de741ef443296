"""`GET /v1/judgments`, `GET /v1/judgments/{id}` and `POST /v1/judgments/{id}/replay`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request

from tirjudge.formats import FIRST_FORMAT, format_named
from tirjudge.http.protocol import JudgmentRecord, Problem, invalid, shown
from tirjudge.types import Mode, Wire
from tirjudge_server.access import seen_by
from tirjudge_server.openapi import error_responses
from tirjudge_server.records.record import StoredJudgment
from tirjudge_server.records.replay import Replay, StoreChanged, replay
from tirjudge_server.records.store import Records, unknown_judgment
from tirjudge_server.service import JudgeService
from tirjudge_web.connection import while_connected
from tirjudge_web.errors import Refused

MAX_PAGE = 100
"""Maximum number of judgments on a page."""

_DAMAGED: dict[int | str, str] = {500: "The record is damaged and cannot be read."}

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class JudgmentSummary(Wire):
    """A judgment in a list."""

    id: str
    """Id of the judgment, for `GET /v1/judgments/{id}`."""
    object: Literal["judgment.summary"] = "judgment.summary"
    """Type of this object."""
    created_ms: int
    """Time of the judgment, in milliseconds since 1970."""
    mode: Mode
    """Mode of the request."""
    model: str
    """Name of the model that judged."""
    status: str
    """Status of the verdict, such as `decided`."""
    dialect: str
    """Protocol of the request."""
    caller: str | None
    """Name of the caller's key. None: the server had no keys."""


class JudgmentList(Wire):
    """A page of judgments, newest first. `after=last_id` requests the next page."""

    object: Literal["list"] = "list"
    """Type of this object."""
    data: list[JudgmentSummary]
    """The judgments of this page."""
    first_id: str | None
    """Id of the first judgment of this page. None: the page is empty."""
    last_id: str | None
    """Id of the last judgment of this page. None: the page is empty."""
    has_more: bool
    """Whether older judgments follow."""


def router(service: JudgeService, *, records: Records) -> APIRouter:
    """Return the endpoints of recorded judgments. A key without the scope `admin` sees only its own judgments.

    Args:
        service: Runs the programs of a replay in its sandbox.
        records: Holds the judgments.
    """
    routes = APIRouter()

    @routes.get("/v1/judgments")
    async def judgments(
        request: Request,
        limit: Annotated[
            str,
            Query(
                description="Maximum number of judgments.",
                json_schema_extra={"type": "integer", "minimum": 1, "maximum": MAX_PAGE},
            ),
        ] = "20",
        after: Annotated[
            str | None,
            Query(description="Id of the last judgment of the previous page. Default: the first page."),
        ] = None,
    ) -> JudgmentList:
        """List recorded judgments, newest first."""
        if after is not None and not _ID.fullmatch(after):
            raise unknown_judgment(after, param="after")
        num_shown = _page_size(limit)
        rows = await records.page(after=after, limit=num_shown + 1, caller=seen_by(request))
        fields = JudgmentSummary.model_fields.keys() - {"object"}
        data = [JudgmentSummary(**{name: getattr(row, name) for name in fields}) for row in rows[:num_shown]]
        return JudgmentList(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=len(rows) > num_shown,
        )

    @routes.get("/v1/judgments/{judgment_id}", responses=error_responses(_DAMAGED))
    async def judgment(request: Request, judgment_id: str) -> JudgmentRecord:
        """Return a recorded judgment: the request, the judge's turns and programs, and the verdict."""
        return as_record(await find_judgment(request, judgment_id=judgment_id, records=records))

    @routes.post(
        "/v1/judgments/{judgment_id}/replay",
        responses=error_responses(
            {
                409: "A store of evidence is not the one that the judgment queried.",
                410: "Fields needed for a replay are erased.",
                **_DAMAGED,
            }
        ),
    )
    async def replayed(request: Request, judgment_id: str) -> Replay:
        """Run the programs of a judgment again, and compare their output with the recorded output."""
        service.draining.check()
        record = await find_judgment(request, judgment_id=judgment_id, records=records)
        check_replayable(record)
        work = replay_record(record, service=service, records=records)
        async with service.draining.limit():
            return await while_connected(request.receive, work)

    return routes


async def find_judgment(request: Request, *, judgment_id: str, records: Records) -> StoredJudgment:
    """Read a record.

    Raises:
        Refused: 404, no such judgment exists or it belongs to another caller; 500, the record cannot be read.
    """
    try:
        record = await records.read(judgment_id) if _ID.fullmatch(judgment_id) else None
    except ValueError as error:
        message = f"judgment_id: the record of {judgment_id} is damaged: {error}"
        raise Refused(Problem(message=message, type="server_error", code="record_damaged"), status=500) from error
    owner = seen_by(request)
    if record is None or (owner is not None and record.values.get("caller") != owner):
        raise unknown_judgment(judgment_id, param="judgment_id")
    return record


async def replay_record(
    record: StoredJudgment, *, service: JudgeService, records: Records, only: tuple[int, int] | None = None
) -> Replay:
    """Run the programs of a judgment again.

    Args:
        record: The judgment.
        service: Has the sandbox and the functions.
        records: Has the versions of this server.
        only: Index of a rollout and of a turn in it: only this program runs. None: all.

    Raises:
        Refused: 400, this server has no sandbox, or does not know the format; 409, a store of evidence is another one.
    """
    if service.judge.sandbox is None and record.judgment.usage.tool_calls > 0:
        message = "judgment_id: the judgment ran programs, but this server has no sandbox to run them in"
        raise Refused(invalid(message, param="judgment_id", code="no_sandbox"))
    try:
        format = format_named(record.values["versions"].get("format", FIRST_FORMAT))
    except ValueError as error:
        raise Refused(invalid(f"judgment_id: {error}", param="judgment_id", code="no_format")) from error
    try:
        return await replay(
            record,
            sandbox=service.judge.sandbox,
            functions=service.judge.functions,
            format=format,
            tokenizer=service.judge.engine.tokenizer,
            versions=records.versions,
            only=only,
        )
    except StoreChanged as error:
        raise Refused(
            invalid(f"judgment_id: {error}", param="judgment_id", code="store_changed"), status=409
        ) from error


def check_replayable(record: StoredJudgment) -> None:
    """Check that a judgment can be replayed.

    Raises:
        Refused: 410, fields that a replay needs are erased.
    """
    if gone := [name for name in record.content.erased if name in ("turns", "calls") or name.startswith("request.")]:
        message = f"judgment_id: {record.id} cannot be replayed, because these fields are erased: {', '.join(gone)}"
        raise Refused(invalid(message, param="judgment_id", code="judgment_erased"), status=410)


def as_record(record: StoredJudgment) -> JudgmentRecord:
    """Return a record as it is sent to clients."""
    return JudgmentRecord(
        id=record.id,
        created_ms=record.created_ms,
        sequence=record.seq,
        hash=record.hash,
        previous_hash=record.previous,
        intact=record.is_intact,
        dialect=record.values["dialect"],
        caller=record.values.get("caller"),
        request_id=record.values.get("request_id"),
        request=record.request_fields,
        judgment=record.judgment,
        versions=dict(record.values["versions"]),
        erased=list(record.content.erased),
    )


def _page_size(given: str) -> int:
    """Parse the query parameter `limit`.

    Raises:
        Refused: 400, the value is not an integer from 1 to `MAX_PAGE`.
    """
    if not given.isascii() or not given.isdecimal() or not 1 <= int(given[:4]) <= MAX_PAGE or len(given) > 3:
        message = f"limit: {shown(given)} given; use a number from 1 to {MAX_PAGE}"
        raise Refused(invalid(message, param="limit", code="invalid_value"))
    return int(given)
