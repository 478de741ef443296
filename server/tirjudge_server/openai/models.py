"""`/v1/models` and `/v1/models/{id}`: the served judge as an OpenAI model."""

from __future__ import annotations

import time

from fastapi import APIRouter

from tirjudge.formats import shown_name
from tirjudge.http.protocol import MODELS_PATH, ModelCard, ModelList, invalid, shown
from tirjudge.types import MODEL_MODES, Mode
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import Refused


def router(service: JudgeService) -> APIRouter:
    """Return the endpoints."""
    routes = APIRouter()
    created = int(time.time())

    @routes.get(MODELS_PATH)
    async def models() -> ModelList:
        """List the served judge, in OpenAI's format."""
        return ModelList(data=[_card(service, created=created)])

    @routes.get(MODELS_PATH + "/{model:path}")
    async def model(model: str) -> ModelCard:
        """Return the served judge, in OpenAI's format."""
        card = _card(service, created=created)
        if model != card.id:
            message = f"model: {shown(model)} given; this server serves {shown(card.id)}"
            raise Refused(invalid(message, param="model", code="model_not_found"), status=404)
        return card

    return routes


def _card(service: JudgeService, *, created: int) -> ModelCard:
    profile = service.judge.profile
    modes = MODEL_MODES if service.judge.engine.facts.scores else service.judge.format.traits.modes
    return ModelCard(
        id=profile.name,
        created=created,
        owned_by="tirjudge",
        modes=[*modes, *([Mode.RULES] if service.judge.checks is not None else [])],
        context_tokens=profile.context_tokens,
        rollout_tokens=profile.rollout_tokens,
        group_size=profile.group_size,
        fingerprint=service.fingerprint,
        format=shown_name(service.judge.format.name),
        functions=service.judge.function_versions,
    )
