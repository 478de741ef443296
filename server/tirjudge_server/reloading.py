"""`POST /v1/admin/reload`: load the weights of another checkpoint of the same model, without refusing requests."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import Field

from tirjudge.errors import CheckpointError
from tirjudge.http.protocol import invalid
from tirjudge.model import Model
from tirjudge.types import Text, Wire
from tirjudge_server.records.store import Records
from tirjudge_server.service import JudgeService
from tirjudge_web.body import read_request
from tirjudge_web.errors import Refused

RELOAD_PATH = "/v1/admin/reload"

MAX_BODY_BYTES = 16 * 1024

logger = logging.getLogger(__name__)


class ReloadRequest(Wire):
    """Request of the reload endpoint."""

    checkpoint: Text = Field(min_length=1)
    """Checkpoint folder on the server's disk. With `--engine`, the vLLM server needs it too, under the same path."""


class Reloaded(Wire):
    """Response of the reload endpoint."""

    object: Literal["model.reloaded"] = "model.reloaded"
    """Type of this object."""
    model: str
    """Name of the model."""
    model_version: str
    """Version of the weights of every judgment that starts from now on."""
    previous_version: str | None
    """Version of the previous weights; None: unknown."""


REQUESTS = {RELOAD_PATH: ReloadRequest}
"""Path -> model of its request body."""


def router(service: JudgeService, *, model: Model, records: Records | None) -> APIRouter:
    """The reload endpoint.

    Args:
        service: the service that judges with `model`.
        model: the model whose weights are replaced.
        records: records of `service`; None: the server keeps no records.
    """
    routes = APIRouter()

    @routes.post(RELOAD_PATH)
    async def reload(request: Request) -> Reloaded:
        """Replace the weights: drain running judgments, hold new ones, then swap."""
        asked = await read_request(request, ReloadRequest, draining=service.draining, max_bytes=MAX_BODY_BYTES)
        _check_key(request)
        service.draining.check()
        previous = model.fingerprint
        try:
            version = await model.swap(Path(asked.checkpoint))
        except CheckpointError as error:
            problem = invalid(f"checkpoint: {error}", param="checkpoint", code="checkpoint_refused")
            raise Refused(problem) from error
        finally:
            if records is not None:
                records.follow(model.fingerprint)
        logger.warning("weights replaced: %s -> %s", previous, version)
        return Reloaded(model=model.profile.name, model_version=version, previous_version=previous)

    return routes


def _check_key(request: Request) -> None:
    """Check that the request has an API key. Reloading needs one even on a server without keys.

    Raises:
        Refused: 403, the request has no key.
    """
    if getattr(request.state, "key", None) is None:
        message = "key: reloading needs an API key of scope admin; run `tirjudge keys create NAME --scope admin`"
        raise Refused(invalid(message, param=None, code="missing_scope"), status=403)
