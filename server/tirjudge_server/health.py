"""Responses of `/health` and `/ready`, for the OpenAPI document."""

from __future__ import annotations

from pydantic import BaseModel


class WorkerState(BaseModel):
    """State of one engine or sandbox worker."""

    url: str
    """Its address."""
    running: int
    """Number of calls that run on it."""
    problem: str | None
    """Why it gets no calls. None: it works."""


class Health(BaseModel):
    """Whether the process works."""

    status: str
    """`ok`, or why the process must be restarted."""
    sandbox: str | None
    """Isolation level of the sandbox. None: programs are not run."""
    running: int
    """Number of judgments that run."""
    waiting: int
    """Number of judgments that wait."""
    workers: dict[str, list[WorkerState]]
    """Part of the server, such as `engine` or `sandbox` -> its workers, if it has several."""


class ReadyState(BaseModel):
    """Whether the server can judge now."""

    ready: bool
    """Whether it can."""
    problem: str | None
    """Why it cannot. None: it can."""
