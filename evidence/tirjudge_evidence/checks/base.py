"""What all kinds of checks share: their settings, what they are given, and what they find."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.checks import NeededStore
from tirjudge.errors import EvidenceRefused, SandboxUnavailable
from tirjudge.tools.functions import ToolError
from tirjudge.types import CheckReason, JudgeRequest, Severity, StoreKind
from tirjudge_evidence.stores import EvidenceStore, LazyPools, open_attached
from tirjudge_sandbox import SandboxPool

MAX_REASONS = 20
"""Maximum number of reasons of a result."""

MAX_REASON_CHARS = 500
"""Maximum length of a message in a reason."""

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "violation")
"""Severities from the lowest to the highest."""


class GateSettings(BaseModel):
    """`gate = {cap = 3}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cap: Annotated[float, Field(ge=1, le=10)]
    """Highest pointwise score of a response that fails."""
    decides: bool = False
    """Whether a response that fails also loses comparisons."""


class CheckSettings(BaseModel):
    """A check, an entry `[[check]]` of the settings file. Each kind adds its own fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    kind: str
    severity: Severity = "violation"
    """Lowest severity of a finding that fails the check. Kinds without severities of their own give this one."""
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Weight in the score without a model."""
    gate: GateSettings | Literal["decides"] | None = None
    """Effect of a failure on the model's verdict. None: none."""
    message: str | None = None
    """Message of a finding. None: the kind writes one."""
    if_missing: Literal["fail", "skip"] = "fail"
    """Result if the response lacks what the check reads."""

    def said(self, default: str) -> str:
        """Return the message of a finding."""
        return (self.message or default)[:MAX_REASON_CHARS]


class InStoreSettings(CheckSettings):
    """A check that asks a store."""

    store: str
    """Name of the store."""
    attached: bool = False
    """Whether the store comes with the request. False: it is a store of the same file."""
    store_kind: ClassVar[StoreKind]
    """Kind of the store."""

    @property
    def needs(self) -> NeededStore | None:
        """Store that each request must attach."""
        return NeededStore(name=self.store, kind=self.store_kind) if self.attached else None


class Missing(Exception):
    """The response lacks what the check reads. The message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """What a check found in a response."""

    reason: CheckReason
    severity: Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A response with its request."""

    request: JudgeRequest
    response: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """What a check may use."""

    stores: Mapping[str, EvidenceStore] = field(default_factory=dict)
    """Open stores of the same file, by name."""
    pools: LazyPools = field(default_factory=LazyPools)
    """Pools that open the stores of requests."""
    sandbox: SandboxPool | None = None
    """Runs programs. None: no check of the file needs it."""

    def store_of(self, settings: InStoreSettings) -> StoreOf:
        """Return the function that gives the store of a check for a response.

        Raises:
            ValueError: no such store, or it has another kind; or a store of the file has the name of an attached one.
        """
        store = self.stores.get(settings.store)
        if settings.attached:
            if store is not None:
                raise ValueError(
                    f"check {settings.name}: {settings.store!r} is a store of the file; remove `attached` or rename it"
                )
            return lambda examined: _attached_store(examined.request, settings.store, pools=self.pools)
        if store is None:
            known = ", ".join(self.stores) or "none"
            raise ValueError(
                f"check {settings.name}: store {settings.store!r} is not in the file; it has {known}; "
                "with `attached = true` the store comes with the request"
            )
        if store.card.kind != settings.store_kind:
            raise ValueError(
                f"check {settings.name}: {settings.kind} needs a {settings.store_kind} store, {settings.store} has kind "
                f"{store.card.kind}"
            )

        async def registered(_: Examined) -> EvidenceStore:
            return store

        return registered


StoreOf = Callable[[Examined], Awaitable[EvidenceStore]]
"""Return the store that a check asks about a response."""


async def _attached_store(request: JudgeRequest, name: str, *, pools: LazyPools) -> EvidenceStore:
    item = next(store for store in request.evidence or () if store.name == name)  # `require_stores` found it
    try:
        return await open_attached(item, pools=pools)
    except ToolError as error:
        raise SandboxUnavailable(str(error)) from error


Examine = Callable[[Examined], Awaitable[list[CheckFinding]]]
"""Checks one response. It raises `Missing`, or EvidenceRefused or SandboxUnavailable if the check could not be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckKind:
    """A kind of check, the object that an entry point of the group `tirjudge.checks` names."""

    name: str
    """Value of `kind` in the settings."""
    settings: type[CheckSettings]
    """Model of its settings."""
    open: Callable[[Any, CheckContext], Examine]
    """Return the function that checks a response. Arguments: the settings and the context. It raises ValueError for invalid
    settings and ToolUnavailable if a library is not installed."""
    needs_sandbox: bool = False
    """Whether it runs programs."""


async def asked(store: EvidenceStore, operation: str, **arguments: Any) -> Any:
    """Ask a store.

    Raises:
        Missing: the query fails for the values of this response, or exceeds a limit.
        EvidenceRefused: the store came with the request and cannot be read.
        SandboxUnavailable: the store changed on disk, or cannot be asked.
    """
    try:
        await asyncio.to_thread(store.check_files)
    except ToolError as error:
        raise SandboxUnavailable(str(error)) from error
    try:
        return await store.ask(operation, **arguments)
    except ToolError as error:
        if store.attached:
            await _check_readable(store)
        raise Missing(f"{store.card.name}: {error}"[:MAX_REASON_CHARS]) from error


async def _check_readable(store: EvidenceStore) -> None:
    try:
        await store.ask("describe")
    except ToolError as error:
        raise EvidenceRefused(f"evidence: {store.card.name}: {error}") from error
