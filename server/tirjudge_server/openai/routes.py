"""All endpoints with OpenAI's wire format, in two routers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from tirjudge.http.protocol import JUDGE_PATH
from tirjudge.types import JudgeRequest
from tirjudge_server.call import Call
from tirjudge_server.chat_models import NO_MODELS, ChatModels
from tirjudge_server.evals import routes as evals
from tirjudge_server.evals.running import EvalRunner
from tirjudge_server.evals.store import EvalStore
from tirjudge_server.openai import batches, chat, completions, decisions, files, fine_tuning
from tirjudge_server.openai import models as model_cards
from tirjudge_server.openai.batchrun import BatchRunner, Endpoint
from tirjudge_server.openai.batchstore import BatchStore
from tirjudge_server.openai.bodies import ChatCompletionChunk, TextCompletionChunk
from tirjudge_server.openai.chat import ChatRequest, answer_chat
from tirjudge_server.openai.decisions import DecisionRequest, answer_decisions
from tirjudge_server.openai.filestore import FileQuota, FileStore
from tirjudge_server.openai.graders import RunRequest, ValidateRequest
from tirjudge_server.openai.wire import parsed, refuse
from tirjudge_server.records.database import Database, create_file, url_of
from tirjudge_server.records.store import Records
from tirjudge_server.service import JudgeService

REQUESTS = {
    chat.CHAT_PATH: ChatRequest,
    completions.COMPLETIONS_PATH: completions.CompletionRequest,
    decisions.DECISIONS_PATH: DecisionRequest,
    f"{fine_tuning.GRADERS_PATH}/run": RunRequest,
    f"{fine_tuning.GRADERS_PATH}/validate": ValidateRequest,
}
"""Path -> model of its request body, for the routes of `router`."""

STREAMS = {chat.CHAT_PATH: ChatCompletionChunk, completions.COMPLETIONS_PATH: TextCompletionChunk}
"""Path -> model of its chunks, for paths that can answer with a stream."""

BATCH_REQUESTS = {batches.BATCHES_PATH: batches.BatchCreation, **evals.REQUESTS}
"""Path -> model of its request body, for the routes of `batch_router`."""


def router(service: JudgeService, *, max_body_bytes: int, models: ChatModels = NO_MODELS) -> APIRouter:
    """Return the endpoints that store nothing: models, chat, completions, decisions, graders.

    Args:
        service: Judges the requests.
        max_body_bytes: Maximum size of a request body. A larger one is refused with 413.
        models: Models besides the judge, for graders.
    """
    routes = APIRouter()
    routes.include_router(model_cards.router(service))
    for family in (chat, completions, decisions):
        routes.include_router(family.router(service, max_body_bytes=max_body_bytes))
    routes.include_router(fine_tuning.router(service, max_body_bytes=max_body_bytes, models=models))
    return routes


def batch_router(
    service: JudgeService,
    *,
    folder: Path,
    max_body_bytes: int,
    quota: FileQuota = FileQuota(),  # noqa: B008 (it is frozen)
    models: ChatModels = NO_MODELS,
    records: Records | None = None,
    eval_store: EvalStore | None = None,
) -> APIRouter:
    """Return the endpoints of files, batches and evals.

    Args:
        service: Judges the lines of batches, and grades the rows of evals.
        folder: Folder of files, batches and evals. Created if missing.
        max_body_bytes: Maximum length of a line of a batch, and of a row of an eval.
        quota: Limits per caller.
        models: Models besides the judge.
        records: Recorded judgments, as rows of evals. None: the server has none.
        eval_store: Holds evals and runs. None: `open_eval_store` opens one.
    """
    file_store, batch_store = FileStore(folder / "files", quota=quota), BatchStore(folder / "batches", quota=quota)
    runner = BatchRunner(
        files=file_store,
        batches=batch_store,
        endpoints=endpoints(service),
        num_parallel=service.admission.max_running,
        max_line_bytes=max_body_bytes,
    )
    routes = APIRouter()
    routes.include_router(files.router(file_store))
    routes.include_router(batches.router(runner, files=file_store, batches=batch_store))
    eval_store = eval_store or open_eval_store(folder, quota=quota, records=records)
    eval_runner = EvalRunner(
        service,
        store=eval_store,
        files=file_store,
        models=models,
        records=records,
        max_line_bytes=max_body_bytes,
        caches=records is None or records.policy.cache,
    )
    routes.include_router(
        evals.router(
            eval_runner,
            service=service,
            store=eval_store,
            files=file_store,
            models=models,
            max_body_bytes=max_body_bytes,
        )
    )
    return routes


def open_eval_store(folder: Path, *, quota: FileQuota, records: Records | None) -> EvalStore:
    """Open the evals: in the database of the records if other servers can use it too, otherwise in a file of this server.

    Args:
        folder, quota, records: As for `batch_router`.
    """
    if records is not None and not records.database.is_sqlite:
        return EvalStore(records.database, quota=quota)
    path = folder / "evals.db"
    create_file(path)
    return EvalStore(Database(url_of(str(path))), quota=quota)


def endpoints(service: JudgeService) -> dict[str, Endpoint]:
    """Return the endpoints that a batch may use: path -> the function that answers the body of a line."""

    async def judge(body: Mapping[str, Any], call: Call) -> Mapping[str, Any]:
        _check_whole(body)
        judgment = await service.answer(parsed(body, JudgeRequest), call=call)
        return judgment.model_dump(mode="json")

    async def chat_completions(body: Mapping[str, Any], call: Call) -> Mapping[str, Any]:
        _check_whole(body)
        return await answer_chat(service, parsed(body, ChatRequest), call=call)

    async def decide(body: Mapping[str, Any], call: Call) -> Mapping[str, Any]:
        return await answer_decisions(service, parsed(body, DecisionRequest), call=call)

    return {JUDGE_PATH: judge, chat.CHAT_PATH: chat_completions, decisions.DECISIONS_PATH: decide}


def _check_whole(body: Mapping[str, Any]) -> None:
    if body.get("stream"):
        raise refuse("stream", body["stream"], hint="a batch cannot stream; leave it out")
