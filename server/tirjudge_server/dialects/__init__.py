"""Reward and scoring protocols of other projects: one file a dialect, found by the entry points `tirjudge.dialects`.

What an outside package needs to add one is exported here; `docs/rewards.md` has an example.
"""

from __future__ import annotations

from collections.abc import Collection

from fastapi import APIRouter
from pydantic import BaseModel

from tirjudge.http.rewards import RERANK_PATH
from tirjudge.kinds import Kinds
from tirjudge_server import reranking
from tirjudge_server.dialects.base import Dialect, DialectEndpoint, Handler, add_endpoint, handlers, scored
from tirjudge_server.dialects.bodies import ForeignMessage, ForeignRequest, chat_message, text_of
from tirjudge_server.dialects.context import DialectContext, DialectSettings
from tirjudge_server.dialects.options import DialectOptions
from tirjudge_server.failure import FailureRow, FailureStyle
from tirjudge_server.scoring import ResponseGroup, ResponseScore
from tirjudge_server.service import JudgeService

__all__ = [
    "DIALECTS",
    "Dialect",
    "DialectContext",
    "DialectEndpoint",
    "DialectOptions",
    "DialectSettings",
    "FailureRow",
    "FailureStyle",
    "ForeignMessage",
    "ForeignRequest",
    "ResponseGroup",
    "ResponseScore",
    "chat_message",
    "requests_of",
    "routers",
    "scored",
    "text_of",
]

DIALECTS: Kinds[Dialect] = Kinds("tirjudge.dialects", what="dialect")


def routers(service: JudgeService, *, names: Collection[str], settings: DialectSettings) -> list[APIRouter]:
    """The endpoints of some dialects, and the native reranking whose path one of them may share.

    Raises:
        ValueError: there is no such dialect.
    """
    made: list[APIRouter] = []
    foreign: Handler | None = None
    for dialect in map(DIALECTS.named, names):
        found = handlers(dialect, service, settings=settings)
        foreign = found.get(RERANK_PATH, foreign)
        routes = APIRouter() if dialect.routes is None else dialect.routes(settings)
        for endpoint in dialect.endpoints:
            if endpoint.path != RERANK_PATH:
                add_endpoint(routes, endpoint, found[endpoint.path])
        made.append(routes)
    shared = reranking.router(
        service, max_body_bytes=settings.max_body_bytes, fallbacks=settings.fallbacks, foreign=foreign
    )
    return [shared, *made]


def requests_of(names: Collection[str]) -> dict[str, type[BaseModel]]:
    """Path -> what is posted there, for the OpenAPI page; the shared path is described by its native endpoint."""
    endpoints = [endpoint for name in names for endpoint in DIALECTS.named(name).endpoints]
    return {endpoint.path: endpoint.body for endpoint in endpoints if endpoint.path != RERANK_PATH}
