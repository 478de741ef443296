"""Reward and scoring protocols of other projects: one file per dialect, registered as entry points `tirjudge.dialects`.

This module exports the names that an outside package needs to define a dialect. `docs/rewards.md` has an example.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

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
    "examples_of",
    "requests_of",
    "routers",
    "scored",
    "text_of",
]

DIALECTS: Kinds[Dialect] = Kinds("tirjudge.dialects", what="dialect")
"""All installed dialects, by name."""


def routers(service: JudgeService, *, names: Collection[str], settings: DialectSettings) -> list[APIRouter]:
    """The endpoints of the named dialects, and native reranking, whose path a dialect may share.

    Args:
        service: judges the requests.
        names: names of the dialects.
        settings: settings of the dialects.

    Raises:
        ValueError: a dialect does not exist.
    """
    made: list[APIRouter] = []
    foreign: Handler | None = None
    foreign_answer: Any = None
    for dialect in map(DIALECTS.named, names):
        found = handlers(dialect, service, settings=settings)
        foreign = found.get(RERANK_PATH, foreign)
        routes = APIRouter() if dialect.routes is None else dialect.routes(settings)
        for endpoint in dialect.endpoints:
            if endpoint.path == RERANK_PATH:
                foreign_answer = endpoint.answer
            else:
                add_endpoint(routes, endpoint, found[endpoint.path])
        made.append(routes)
    shared = reranking.router(
        service,
        max_body_bytes=settings.max_body_bytes,
        fallbacks=settings.fallbacks,
        foreign=foreign,
        foreign_answer=foreign_answer,
    )
    return [shared, *made]


def requests_of(names: Collection[str]) -> dict[str, type[BaseModel]]:
    """Path -> model of its request body, for the OpenAPI schema. The native endpoint describes the shared path."""
    endpoints = [endpoint for name in names for endpoint in DIALECTS.named(name).endpoints]
    return {endpoint.path: endpoint.body for endpoint in endpoints if endpoint.path != RERANK_PATH}


def examples_of(names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Path -> title of an example -> body, for the OpenAPI schema."""
    endpoints = [endpoint for name in names for endpoint in DIALECTS.named(name).endpoints]
    return {endpoint.path: dict(endpoint.examples) for endpoint in endpoints if endpoint.examples}
