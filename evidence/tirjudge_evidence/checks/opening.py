"""Opens the checks of a settings file, with the stores that they ask, and examines responses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tirjudge.checks import CheckCard, Gate
from tirjudge.concurrency import map_concurrently
from tirjudge.errors import ToolUnavailable
from tirjudge.kinds import Kinds
from tirjudge.tools.base import ToolOptions
from tirjudge.types import CheckReason, CheckResult, JudgeRequest
from tirjudge_evidence.checks.base import (
    MAX_REASONS,
    SEVERITIES,
    CheckContext,
    CheckFinding,
    CheckKind,
    CheckSettings,
    Examine,
    Examined,
    InStoreSettings,
    Missing,
)
from tirjudge_evidence.functions import shared_stores
from tirjudge_sandbox import SandboxPool

CHECKS: Kinds[CheckKind] = Kinds("tirjudge.checks", what="kind of check")
"""Installed kinds of checks, by the value of `kind`."""

MAX_AT_ONCE = 16
"""Maximum number of concurrent checks of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCheck:
    """An open check."""

    card: CheckCard
    settings: CheckSettings
    examine: Examine

    async def result(self, examined: Examined) -> CheckResult:
        """Check a response.

        Raises:
            SandboxUnavailable: the check could not be made.
        """
        settings = self.settings
        try:
            findings = await self.examine(examined)
        except Missing as missing:
            if settings.if_missing == "skip":
                return self._made(passed=False, skipped=str(missing))
            findings = [CheckFinding(reason=CheckReason(message=str(missing)), severity=settings.severity)]
        findings = sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity))
        lowest = SEVERITIES.index(settings.severity)
        passed = all(SEVERITIES.index(finding.severity) < lowest for finding in findings)
        severity = findings[0].severity if findings and not passed else settings.severity
        return self._made(passed=passed, severity=severity, reasons=[each.reason for each in findings[:MAX_REASONS]])

    def _made(self, **fields: Any) -> CheckResult:
        settings = self.settings
        fields = {"severity": settings.severity} | fields
        return CheckResult(check=settings.name, kind=settings.kind, **fields)


@dataclass(frozen=True, slots=True)
class OpenChecks:
    """The open checks of a file."""

    checks: Sequence[OpenCheck]

    @property
    def cards(self) -> Sequence[CheckCard]:
        return [check.card for check in self.checks]

    async def examine(self, request: JudgeRequest) -> list[list[CheckResult]]:
        """Check each response. Equal responses are checked once."""
        texts = list(dict.fromkeys(request.responses))
        works = (check.result(Examined(request=request, response=text)) for text in texts for check in self.checks)
        results = await map_concurrently(works, num_at_once=MAX_AT_ONCE)
        width = len(self.checks)
        by_text = {text: results[i * width : (i + 1) * width] for i, text in enumerate(texts)}
        return [by_text[text] for text in request.responses]


@asynccontextmanager
async def open_file(path: str, options: ToolOptions) -> AsyncIterator[OpenChecks]:
    """Open the checks of a settings file, and close them at the end of the block.

    Raises:
        ValueError: the file or a check is invalid, or there are no checks.
        ToolUnavailable: a library is not installed.
        SandboxUnavailable: no isolation works here.
    """
    async with AsyncExitStack() as stack:
        settings, stores = await stack.enter_async_context(shared_stores(path))
        if not settings.check:
            raise ValueError(f"{path}: no checks; add a [[check]]")
        kinds = [_kind_of(given, path=path) for given in settings.check]
        parsed = [_parsed(given, kind, path=path) for given, kind in zip(settings.check, kinds, strict=True)]
        names = [each.name for each in parsed]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"{path}: two checks named {twice!r}")
        sandbox = None
        if any(kind.needs_sandbox for kind in kinds):
            pool = SandboxPool(slots=options.slots, allow_unsafe=options.allow_unsafe_sandbox)
            sandbox = await stack.enter_async_context(pool)
        context = CheckContext(stores=stores.registered, pools=stores.pools, sandbox=sandbox)
        yield OpenChecks(
            [
                OpenCheck(card=_card(each, given, context), settings=each, examine=kind.open(each, context))
                for each, given, kind in zip(parsed, settings.check, kinds, strict=True)
            ]
        )


def _kind_of(given: dict[str, Any], *, path: str) -> CheckKind:
    name = given.get("kind")
    try:
        return CHECKS.named(str(name))
    except ImportError as error:
        raise ToolUnavailable(f"check {name}: {error}; pip install 'tirjudge[evidence]'") from error
    except ValueError as error:
        raise ValueError(f"{path}: check {given.get('name')}: {error}") from None


def _parsed(given: dict[str, Any], kind: CheckKind, *, path: str) -> CheckSettings:
    try:
        return kind.settings.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the check"
        raise ValueError(f"{path}: check {given.get('name')}: {where}: {first['msg']}") from None


def _card(settings: CheckSettings, given: dict[str, Any], context: CheckContext) -> CheckCard:
    asks = settings if isinstance(settings, InStoreSettings) else None
    store = None if asks is None else context.stores.get(asks.store)
    defined = json.dumps([given, None if store is None else store.card.sha256], sort_keys=True, default=str)
    gate = settings.gate
    return CheckCard(
        name=settings.name,
        kind=settings.kind,
        severity=settings.severity,
        weight=settings.weight,
        gate=None
        if gate is None
        else Gate(decides=True)
        if gate == "decides"
        else Gate(cap=gate.cap, decides=gate.decides),
        sha256=hashlib.sha256(defined.encode()).hexdigest(),
        needs=None if asks is None else asks.needs,
    )
