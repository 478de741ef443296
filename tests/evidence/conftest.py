"""Stores of evidence over real files, and programs in a real sandbox that query them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tirjudge.tools.functions import CallAccount, Offer
from tirjudge.types import ExecResult, JudgeRequest
from tirjudge_evidence.functions import EvidenceSettings, Stores, functions_of, open_stores
from tirjudge_evidence.stores import EvidenceStore, StoreSettings
from tirjudge_sandbox import SandboxPool

OpenStores = Callable[..., Awaitable[Stores]]
OpenStore = Callable[..., Awaitable[EvidenceStore]]
RunProgram = Callable[..., Awaitable[ExecResult]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenStores]:
    """Function that opens registered stores, given as the entries of a settings file."""
    async with AsyncExitStack() as stack:

        async def open_all(*entries: Mapping[str, Any]) -> Stores:
            settings = EvidenceSettings(store=[StoreSettings.model_validate(entry) for entry in entries])
            return await stack.enter_async_context(open_stores(settings, folder=tmp_path))

        yield open_all


@pytest.fixture
def open_one(opened: OpenStores, tmp_path: Path) -> OpenStore:
    """Function that writes files, given as name -> content, and opens a store of them."""

    async def open_it(kind: str, files: Mapping[str, str | bytes], **settings: Any) -> EvidenceStore:
        for name, content in files.items():
            (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        stores = await opened({"name": "facts", "kind": kind, "files": list(files), **settings})
        return stores.registered["facts"]

    return open_it


@pytest.fixture
async def run_program() -> AsyncIterator[RunProgram]:
    """Function that runs a program with the functions of open stores, for a request with stores of its own."""
    async with SandboxPool(slots=2) as pool:

        async def run(code: str, stores: Stores, *evidence: Mapping[str, Any]) -> ExecResult:
            request = JudgeRequest.model_validate(
                {"mode": "pointwise", "prompt": "p", "responses": ["r"], "evidence": list(evidence) or None}
            )
            offer = Offer(functions=functions_of(stores), account=CallAccount(), request=request)
            return await pool.run(code, offer=offer)

        yield run


def attached(
    name: str, content: str | bytes, *, kind: str = "table", format: str = "csv", file: str = "t"
) -> dict[str, Any]:
    """Return a store of one file for the field `evidence` of a request."""
    data = {"text": content} if isinstance(content, str) else {"base64": base64.b64encode(content).decode()}
    return {"name": name, "kind": kind, "files": [{"name": file, "format": format, **data}]}
