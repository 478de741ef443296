"""Tool-integrated LLM judge. This module exports the names that a client of a server needs, and imports them lazily.

    from tirjudge import Client, JudgeRequest

    with Client("http://127.0.0.1:8400") as client:
        judgment = client.judge(JudgeRequest(mode="pairwise", prompt="Write two words.", responses=["red fox", "red"]))

`Client` blocks, `AsyncClient` has the same methods for asyncio. Both raise `RequestRefused` and `ServerUnavailable`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tirjudge.client import AsyncClient, Client, RequestRefused, ServerUnavailable
    from tirjudge.types import JudgeRequest, Judgment, Mode, Verdict

_MODULES = {
    "AsyncClient": "tirjudge.client",
    "Client": "tirjudge.client",
    "JudgeRequest": "tirjudge.types",
    "Judgment": "tirjudge.types",
    "Mode": "tirjudge.types",
    "RequestRefused": "tirjudge.client",
    "ServerUnavailable": "tirjudge.client",
    "Verdict": "tirjudge.types",
}

__all__ = [
    "AsyncClient",
    "Client",
    "JudgeRequest",
    "Judgment",
    "Mode",
    "RequestRefused",
    "ServerUnavailable",
    "Verdict",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tirjudge' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
