"""The check `shacl`: RDF of the response, validated with the shapes of a store.

The RDF is the first fenced block in Turtle or JSON-LD, or the response's JSON with the JSON-LD context of the check.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

from pydantic import Field

from tirjudge.types import CheckReason, Severity, StoreKind
from tirjudge_evidence.checks.base import (
    MAX_REASON_CHARS,
    CheckContext,
    CheckFinding,
    CheckKind,
    Examine,
    Examined,
    InStoreSettings,
    Missing,
    asked,
)
from tirjudge_evidence.checks.response_json import MAX_JSON_CHARS, fenced_block, json_of

_LEVELS: dict[str, Severity] = {"info": "info", "warning": "warning", "violation": "violation"}


class ShaclSettings(InStoreSettings):
    """Settings of the check."""

    store_kind: ClassVar[StoreKind] = "graph"
    kind: str = Field(pattern="^shacl$")
    format: Literal["turtle", "json-ld"] = "turtle"
    """Format of the block of the response. With `context`, it is JSON-LD."""
    context: dict[str, Any] = Field(default_factory=dict)
    """JSON-LD context of the response's JSON, in place of its own. Empty: the block has RDF."""


def _rdf_of(response: str, settings: ShaclSettings) -> tuple[str, str]:
    """Return the RDF of a response and its format.

    Raises:
        Missing: the response has none.
    """
    if settings.context:
        contents = json_of(response)
        if not isinstance(contents, dict):
            raise Missing("the JSON of the response is not an object")
        return json.dumps({**_without_contexts(contents), "@context": settings.context}), "json-ld"
    languages = ("turtle", "ttl") if settings.format == "turtle" else ("json-ld", "jsonld", "json")
    block = fenced_block(response, languages=languages)
    if block is None:
        raise Missing(f"the response has no fenced block in {settings.format}")
    if len(block) > MAX_JSON_CHARS:
        raise Missing(f"the block has {len(block):,} characters, the limit is {MAX_JSON_CHARS:,}")
    return block, settings.format


def _without_contexts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_contexts(each) for key, each in value.items() if key != "@context"}
    return [_without_contexts(each) for each in value] if isinstance(value, list) else value


def _open(settings: ShaclSettings, context: CheckContext) -> Examine:
    store_of = context.store_of(settings)

    async def examine(examined: Examined) -> list[CheckFinding]:
        data, format = _rdf_of(examined.response, settings)
        store = await store_of(examined)
        report = await asked(store, "shacl", data=data, format=format)
        return [_finding(each, settings, sha256=store.card.sha256) for each in report["results"]]

    return examine


def _finding(result: dict[str, Any], settings: ShaclSettings, *, sha256: str) -> CheckFinding:
    level = str(result.get("severity", "violation")).lower().rpartition("#")[2]
    shape = f" ({result['shape']})" if result.get("shape") else ""
    said = f"{result.get('message') or 'a shape is violated'}{shape}"
    return CheckFinding(
        reason=CheckReason(
            message=(f"{settings.message}: {said}" if settings.message else said)[:MAX_REASON_CHARS],
            focus=result.get("focus"),
            path=result.get("path"),
            value=result.get("value"),
            store=settings.store,
            store_sha256=sha256,
        ),
        severity=_LEVELS.get(level, "violation"),
    )


KIND = CheckKind(name="shacl", settings=ShaclSettings, open=_open)
