"""`/v1/evals`: OpenAI's Evals API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel

from tirjudge.http.protocol import invalid, parse_json
from tirjudge_server.access.keys import Key
from tirjudge_server.chat_models import ChatModels
from tirjudge_server.evals.bodies import (
    DeletedEval,
    DeletedEvalRun,
    EvalObject,
    EvalOutputItem,
    EvalOutputItemPage,
    EvalPage,
    EvalRunObject,
    EvalRunPage,
)
from tirjudge_server.evals.definitions import (
    EvalCreation,
    EvalUpdate,
    FileSource,
    InlineSource,
    RecordsSource,
    RunCreation,
)
from tirjudge_server.evals.objects import EVALS_PATH, eval_object, number_of, output_item, run_object, unknown_item
from tirjudge_server.evals.rows import EvalRow, RowProblem, rows_of, schema_of
from tirjudge_server.evals.running import EvalRunner
from tirjudge_server.evals.sampling import check_models, check_run
from tirjudge_server.evals.store import UNFINISHED, EvalStore, StoredEval, StoredRun
from tirjudge_server.openai.files import owner_of
from tirjudge_server.openai.filestore import FileStore
from tirjudge_server.openai.pages import EvalsQuery, ItemsQuery, RunsQuery, listed, page, query_parameters
from tirjudge_server.openai.wire import parse, parsed
from tirjudge_server.openapi import error_responses
from tirjudge_server.service import JudgeService
from tirjudge_web.body import read_body
from tirjudge_web.errors import Refused
from tirjudge_web.openapi import answers_with

MAX_PAGE_CHARS = 16 * 1024 * 1024
"""Size at which a page ends before its `limit`. A page has at least one object."""

_RUNS, _RUN = EVALS_PATH + "/{eval_id}/runs", EVALS_PATH + "/{eval_id}/runs/{run_id}"

REQUESTS: Mapping[str, type[BaseModel]] = {
    EVALS_PATH: EvalCreation,
    EVALS_PATH + "/{eval_id}": EvalUpdate,
    _RUNS: RunCreation,
}
"""Path -> model of its request body."""

_FULL = error_responses({413: "The rows are too large.", 429: "The caller has too many evals or runs."})

T = TypeVar("T", bound=BaseModel)


def router(
    runner: EvalRunner,
    *,
    service: JudgeService,
    store: EvalStore,
    files: FileStore,
    models: ChatModels,
    max_body_bytes: int,
) -> APIRouter:
    """Return the endpoints. Unfinished runs continue when the application starts.

    Args:
        runner: Runs evals.
        service: Judges and runs programs.
        store: Holds evals and runs.
        files: Holds uploaded rows.
        models: Models besides the judge.
        max_body_bytes: Maximum size of a request body. A larger one is refused with 413.
    """

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        runner.start()
        yield
        await runner.stop()

    routes = APIRouter(lifespan=running)
    _add_evals(routes, runner, service=service, store=store, models=models, max_body_bytes=max_body_bytes)
    _add_run_creation(routes, runner, store=store, files=files, models=models, max_body_bytes=max_body_bytes)
    _add_runs(routes, runner, store=store)
    _add_output_items(routes, store=store)
    return routes


def _add_evals(
    routes: APIRouter,
    runner: EvalRunner,
    *,
    service: JudgeService,
    store: EvalStore,
    models: ChatModels,
    max_body_bytes: int,
) -> None:
    @routes.post(EVALS_PATH, responses=answers_with(EvalObject) | _FULL)
    async def create_eval(request: Request) -> Response:
        """Create an eval: the schema of its rows, and the testing criteria."""
        content, body = await _received(request, EvalCreation, max_bytes=max_body_bytes)
        await asyncio.to_thread(schema_of, body.data_source_config)
        check_models(body, models=models, judge=service.judge.profile.name)
        names = ("name", "data_source_config", "testing_criteria", "metadata")
        kept = {name: content[name] for name in names if name in content}
        made = await store.create_eval(kept, owner=owner_of(request))
        return await _answer(await asyncio.to_thread(eval_object, made))

    @routes.get(
        EVALS_PATH, openapi_extra={"parameters": query_parameters(EvalsQuery)}, responses=answers_with(EvalPage)
    )
    async def list_evals(request: Request) -> Response:
        """List the caller's evals."""
        query, owner = parsed(dict(request.query_params), EvalsQuery), owner_of(request)
        by_update = query.order_by == "updated_at"
        ids = await store.eval_ids(owner=owner, newest_first=query.is_reversed, by_update=by_update)
        found, has_more = page(ids, after=query.after, limit=query.limit, id_of=str)
        return await _page([partial(_shown_eval, store, eval_id, owner=owner) for eval_id in found], has_more=has_more)

    @routes.get(EVALS_PATH + "/{eval_id}", responses=answers_with(EvalObject))
    async def retrieve_eval(request: Request, eval_id: str) -> Response:
        """Return an eval."""
        return await _answer(await _shown_eval(store, eval_id, owner=owner_of(request)))

    @routes.post(EVALS_PATH + "/{eval_id}", responses=answers_with(EvalObject))
    async def update_eval(request: Request, eval_id: str) -> Response:
        """Change the name or the metadata of an eval."""
        _, body = await _received(request, EvalUpdate, max_bytes=max_body_bytes)
        changes = body.model_dump(mode="json", exclude_unset=True)
        if changes.get("name", "") is None:
            del changes["name"]
        changed = await store.update_eval(eval_id, changes, owner=owner_of(request))
        return await _answer(await asyncio.to_thread(eval_object, changed))

    @routes.delete(EVALS_PATH + "/{eval_id}", responses=answers_with(DeletedEval))
    async def delete_eval(request: Request, eval_id: str) -> Response:
        """Delete an eval with its runs."""
        found = await store.get_eval(eval_id, owner=owner_of(request))
        for run_id in await store.delete_eval(found.id):
            runner.jobs.interrupt(run_id)
        return await _answer({"object": "eval.deleted", "deleted": True, "eval_id": eval_id})


async def _shown_eval(store: EvalStore, eval_id: str, *, owner: str | None) -> dict[str, Any]:
    return await asyncio.to_thread(eval_object, await store.get_eval(eval_id, owner=owner))


def _add_run_creation(
    routes: APIRouter,
    runner: EvalRunner,
    *,
    store: EvalStore,
    files: FileStore,
    models: ChatModels,
    max_body_bytes: int,
) -> None:
    @routes.post(_RUNS, responses=answers_with(EvalRunObject) | _FULL)
    async def create_run(request: Request, eval_id: str) -> Response:
        """Start a run."""
        owner = owner_of(request)
        of = await store.get_eval(eval_id, owner=owner)
        content, body = await _received(request, RunCreation, max_bytes=max_body_bytes)
        definition = await asyncio.to_thread(EvalCreation.model_validate, of.content)
        check_run(body, config=definition.data_source_config, models=models)
        given = await _checked_rows(request, body, definition=definition, files=files)
        files.check_full(owner, num_bytes=sum(row.num_bytes for row in given or ()))
        kept = {name: content[name] for name in ("name", "data_source", "metadata") if name in content}
        if given is not None:
            data = kept["data_source"]
            kept["data_source"] = {**data, "source": {"type": "file_content", "content": []}}
        runner.start()
        run = await store.create_run(of, kept, given=given)
        runner.start_run(run)
        return await _answer(await _shown_run(store, run, of=of, url=str(request.base_url)))


def _add_runs(routes: APIRouter, runner: EvalRunner, *, store: EvalStore) -> None:
    async def shown_run(run_id: str, *, of: StoredEval, url: str) -> dict[str, Any]:
        return await _shown_run(store, await store.get_run(run_id, eval_id=of.id, owner=of.owner), of=of, url=url)

    @routes.get(_RUNS, openapi_extra={"parameters": query_parameters(RunsQuery)}, responses=answers_with(EvalRunPage))
    async def list_runs(request: Request, eval_id: str) -> Response:
        """List the runs of an eval."""
        query = parsed(dict(request.query_params), RunsQuery)
        of = await store.get_eval(eval_id, owner=owner_of(request))
        ids = await store.run_ids(of.id, status=query.status, newest_first=query.is_reversed)
        found, has_more = page(ids, after=query.after, limit=query.limit, id_of=str)
        making = [partial(shown_run, run_id, of=of, url=str(request.base_url)) for run_id in found]
        return await _page(making, has_more=has_more)

    @routes.get(_RUN, responses=answers_with(EvalRunObject))
    async def retrieve_run(request: Request, eval_id: str, run_id: str) -> Response:
        """Return a run with its counts."""
        of = await store.get_eval(eval_id, owner=owner_of(request))
        return await _answer(await shown_run(run_id, of=of, url=str(request.base_url)))

    # Clients of different versions use one path or the other.
    @routes.post(_RUN, responses=answers_with(EvalRunObject) | error_responses({409: "The run has already ended."}))
    @routes.post(
        _RUN + "/cancel", responses=answers_with(EvalRunObject) | error_responses({409: "The run has already ended."})
    )
    async def cancel_run(request: Request, eval_id: str, run_id: str) -> Response:
        """Cancel a run. It keeps the rows that are graded."""
        of = await store.get_eval(eval_id, owner=owner_of(request))
        run = await store.get_run(run_id, eval_id=of.id, owner=of.owner)
        if run.status not in UNFINISHED or not await store.cancel(run.id):
            message = f"run: already {run.status}; an ended run cannot be canceled"
            problem = invalid(message, param="run_id", code="run_ended")
            # OpenAI's clients retry a 409 unless this header forbids it.
            raise Refused(problem, status=409, headers={"x-should-retry": "false"})
        runner.jobs.interrupt(run.id)
        return await _answer(await shown_run(run_id, of=of, url=str(request.base_url)))

    @routes.delete(_RUN, responses=answers_with(DeletedEvalRun))
    async def delete_run(request: Request, eval_id: str, run_id: str) -> Response:
        """Delete a run with its rows. A run that has not ended is canceled."""
        of = await store.get_eval(eval_id, owner=owner_of(request))
        run = await store.get_run(run_id, eval_id=of.id, owner=of.owner)
        await store.delete_run(run.id)
        runner.jobs.interrupt(run.id)
        return await _answer({"object": "eval.run.deleted", "deleted": True, "run_id": run_id})


async def _shown_run(store: EvalStore, run: StoredRun, *, of: StoredEval, url: str) -> dict[str, Any]:
    """Return a run as an object, with its inline rows."""
    shown = await asyncio.to_thread(run_object, run, of=of, url=url)
    if shown["data_source"]["source"]["type"] == "file_content":
        source = {"type": "file_content", "content": await store.given_rows(run.id)}
        shown["data_source"] = {**shown["data_source"], "source": source}
    return shown


def _add_output_items(routes: APIRouter, *, store: EvalStore) -> None:
    path = _RUN + "/output_items"

    async def found_run(request: Request, *, eval_id: str, run_id: str) -> StoredRun:
        return await store.get_run(run_id, eval_id=eval_id, owner=owner_of(request))

    @routes.get(
        path, openapi_extra={"parameters": query_parameters(ItemsQuery)}, responses=answers_with(EvalOutputItemPage)
    )
    async def list_output_items(request: Request, eval_id: str, run_id: str) -> Response:
        """List the graded rows of a run, by their position."""
        query = parsed(dict(request.query_params), ItemsQuery)
        run = await found_run(request, eval_id=eval_id, run_id=run_id)
        last = None if query.after is None else number_of(query.after, run_id=run.id, param="after")
        rows, has_more = await store.graded_rows(
            run.id,
            after=last,
            limit=query.limit,
            max_chars=MAX_PAGE_CHARS,
            newest_first=query.is_reversed,
            status=query.status,
        )
        return await _answer(listed([output_item(row, run=run) for row in rows], has_more=has_more))

    @routes.get(path + "/{output_item_id}", responses=answers_with(EvalOutputItem))
    async def retrieve_output_item(request: Request, eval_id: str, run_id: str, output_item_id: str) -> Response:
        """Return a graded row."""
        run = await found_run(request, eval_id=eval_id, run_id=run_id)
        row = await store.row(run.id, number_of(output_item_id, run_id=run.id, param="output_item_id"))
        if row is None:
            raise unknown_item(output_item_id, param="output_item_id")
        return await _answer(output_item(row, run=run))


# Requests and responses -----------------------------------------------------------------------------------------------


async def _received(request: Request, model: type[T], *, max_bytes: int) -> tuple[dict[str, Any], T]:
    """Read a request body. Return it as plain JSON, which the server stores and shows again, and as a valid object.

    Raises:
        Refused: The body is too large (413), or not a valid request (400).
    """
    raw = await read_body(request, max_bytes=max_bytes)
    body = await asyncio.to_thread(parse, raw, model)
    return await asyncio.to_thread(parse_json, raw), body


async def _checked_rows(
    request: Request, body: RunCreation, *, definition: EvalCreation, files: FileStore
) -> list[EvalRow] | None:
    """Return the inline rows of a run. None: its rows are copied later.

    Raises:
        Refused: The schema or a row is invalid, the file is missing, or the key may not read records.
    """
    source = body.data_source.source
    match source:
        case InlineSource():
            schema = await asyncio.to_thread(schema_of, definition.data_source_config)
            try:
                return await asyncio.to_thread(rows_of, source.content, schema=schema)
            except RowProblem as error:
                param = "data_source.source.content"
                raise Refused(invalid(f"{param}: {error}", param=param, code="invalid_row")) from None
        case FileSource():
            if files.get(source.id, owner=owner_of(request)).purpose == "batch_output":
                message = (
                    'data_source.source.id: an output file of a batch given; expected: a file with purpose "evals"'
                )
                raise Refused(invalid(message, param="data_source.source.id", code="invalid_value"))
        case RecordsSource():
            key: Key | None = getattr(request.state, "key", None)
            if key is not None and not key.may("read"):
                message = f"key: {key.name} lacks the scope read, which rows from the records require"
                raise Refused(invalid(message, param=None, code="missing_scope"), status=403)
    return None


async def _answer(found: Mapping[str, Any]) -> Response:
    """Return an object as a response. It is ASCII, because rows may contain what UTF-8 cannot encode."""
    return Response(await asyncio.to_thread(json.dumps, found), media_type="application/json")


async def _page(making: Sequence[Callable[[], Awaitable[dict[str, Any]]]], *, has_more: bool) -> Response:
    """Return a page of objects. It ends early if the objects are large."""
    found: list[dict[str, Any]] = []
    num_chars = 0
    for make in making:
        shown = await make()
        num_chars += len(await asyncio.to_thread(json.dumps, shown))
        if found and num_chars > MAX_PAGE_CHARS:
            return await _answer(listed(found, has_more=True))
        found.append(shown)
    return await _answer(listed(found, has_more=has_more))
