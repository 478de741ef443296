"""Reward and scoring protocols of others, each a thin translation of its own that can be switched off."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from tirjudge_server import reranking
from tirjudge_server.dialects import (
    eval_protocol,
    llamafactory,
    nemo_gym,
    openrlhf,
    rerank_shapes,
    rewardanything,
    slime,
    systemone,
    vllm_scoring,
)
from tirjudge_server.dialects.context import DialectSettings
from tirjudge_server.service import JudgeService

__all__ = ["DIALECTS", "DialectSettings", "requests_of", "routers"]

DIALECTS: Mapping[str, Callable[..., APIRouter]] = {
    "openrlhf": openrlhf.router,
    "slime": slime.router,
    "llamafactory": llamafactory.router,
    "nemo_gym": nemo_gym.router,
    "eval_protocol": eval_protocol.router,
    "systemone": systemone.router,
    "vllm_scoring": vllm_scoring.router,
    "rerank_shapes": rerank_shapes.router,
    "rewardanything": rewardanything.router,
}
"""Name -> what makes its endpoints from a service, and `settings`."""

_REQUESTS: Mapping[str, Mapping[Any, type[BaseModel]]] = {
    "openrlhf": openrlhf.REQUESTS,
    "slime": slime.REQUESTS,
    "llamafactory": llamafactory.REQUESTS,
    "nemo_gym": nemo_gym.REQUESTS,
    "eval_protocol": eval_protocol.REQUESTS,
    "systemone": systemone.REQUESTS,
    "vllm_scoring": vllm_scoring.REQUESTS,
    "rerank_shapes": rerank_shapes.REQUESTS,
    "rewardanything": rewardanything.REQUESTS,
}


def routers(service: JudgeService, *, names: Collection[str], settings: DialectSettings) -> list[APIRouter]:
    """The endpoints of some dialects, and the native reranking whose path one of them shares.

    Raises:
        ValueError: there is no such dialect.
    """
    unknown = sorted(set(names) - set(DIALECTS))
    if unknown:
        raise ValueError(f"dialects: {unknown[0]!r} given; known are {', '.join(DIALECTS)}")
    foreign = rerank_shapes.foreign(service, settings=settings) if "rerank_shapes" in names else None
    shared = reranking.router(
        service, max_body_bytes=settings.max_body_bytes, fallbacks=settings.fallbacks, foreign=foreign
    )
    return [shared, *(DIALECTS[name](service, settings=settings) for name in DIALECTS if name in names)]


def requests_of(names: Collection[str]) -> dict[str, type[BaseModel]]:
    """Path -> what is posted there, for the OpenAPI page."""
    return {path: model for name in DIALECTS if name in names for path, model in _REQUESTS[name].items()}
