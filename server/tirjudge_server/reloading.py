"""`POST /v1/admin/reload`: judge with the weights of another checkpoint of the same model, without refusing requests."""

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
    checkpoint: Text = Field(min_length=1)
    """A folder on the server's disk; with `--engine`, on that of the vLLM server too, under the same path."""


class Reloaded(Wire):
    object: Literal["model.reloaded"] = "model.reloaded"
    model: str
    model_version: str
    """Of every judgment that begins from now on."""
    previous_version: str | None
    """None: it was out of sight."""


REQUESTS = {RELOAD_PATH: ReloadRequest}
"""What is posted where."""


def router(service: JudgeService, *, model: Model, records: Records | None) -> APIRouter:
    """The endpoint.

    Args:
        service: judges with `model`.
        model: its weights are exchanged.
        records: of `service`; None: there are none.
    """
    routes = APIRouter()

    @routes.post(RELOAD_PATH)
    async def reload(request: Request) -> Reloaded:
        """Exchange the weights: what is under way ends with the old ones, what comes waits for the new ones."""
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
        logger.warning("weights %s took the place of %s", version, previous)
        return Reloaded(model=model.profile.name, model_version=version, previous_version=previous)

    return routes


def _check_key(request: Request) -> None:
    """Weights can only be exchanged with a key, even on a server without keys.

    Raises:
        Refused: 403.
    """
    if getattr(request.state, "key", None) is None:
        message = "key: weights are exchanged for keys of scope admin only; `tirjudge keys create NAME --scope admin`"
        raise Refused(invalid(message, param=None, code="missing_scope"), status=403)
