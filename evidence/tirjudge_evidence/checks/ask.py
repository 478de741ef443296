"""The check `ask`: a SPARQL ASK on a store, with values of the response in place of `$name`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tirjudge.types import CheckReason, StoreKind
from tirjudge_evidence.checks.base import (
    CheckContext,
    CheckFinding,
    CheckKind,
    Examine,
    Examined,
    InStoreSettings,
    Missing,
    asked,
)
from tirjudge_evidence.checks.response_json import FromResponse, Scalar

_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""'
    r"|'''(?:[^'\\]|\\.|'(?!''))*'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'"
    r'|<[^<>"{}|^`\\\s]*>'
    r"|#[^\n]*"
    r"|\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)",
    re.DOTALL,
)
"""Strings, IRIs and comments of SPARQL, in which no value is filled in; and `$name`."""

_NO_IRI = frozenset('<>"{}|^`\\')
_XSD = "http://www.w3.org/2001/XMLSchema#"


class AskSettings(FromResponse, InStoreSettings):
    """Settings of the check."""

    store_kind: ClassVar[StoreKind] = "graph"
    kind: str = Field(pattern="^ask$")
    query: str
    """An ASK query. `$name` is a value of the response."""
    expect: bool = True
    """Answer of a response that passes."""


def filled(query: str, values: Mapping[str, str]) -> str:
    """Return a query with terms in place of `$name`, outside strings, IRIs and comments.

    Args:
        query: query of the operator.
        values: name -> SPARQL term.
    """
    return _TOKEN.sub(lambda found: values.get(found["name"] or "", found.group()), query)


def term(value: Scalar, *, is_iri: bool = False) -> str:
    """Return a value as a SPARQL term: a typed literal, or an IRI.

    Raises:
        Missing: the value is not an IRI.
    """
    if is_iri:
        text = str(value)
        if not text or any(char in _NO_IRI or char <= " " for char in text) or ":" not in text:
            raise Missing(f"{json.dumps(text[:80])} is not an absolute IRI")
        return f"<{text}>"
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "double"}
    kind = kinds.get(type(value), "string")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    escaped = "".join(_escaped(char) for char in text)
    return f'"{escaped}"^^<{_XSD}{kind}>'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return f"\\u{ord(char):04X}" if ord(char) < 0x20 or char == "\x7f" else char


def _open(settings: AskSettings, context: CheckContext) -> Examine:
    store_of = context.store_of(settings)
    named = {found["name"] for found in _TOKEN.finditer(settings.query) if found["name"]}
    if unused := sorted(settings.names - named):
        raise ValueError(f"check {settings.name}: the query does not use ${unused[0]}")

    async def examine(examined: Examined) -> list[CheckFinding]:
        values = settings.values_in(examined.response)
        terms = {name: term(value, is_iri=settings.types.get(name) == "iri") for name, value in values.items()}
        store = await store_of(examined)
        answer = await asked(store, "ask", query=filled(settings.query, terms))
        if answer is settings.expect:
            return []
        message = settings.said(f"the query on {settings.store} answers {str(answer).lower()}")
        value = json.dumps(values)
        reason = CheckReason(message=message, value=value, store=settings.store, store_sha256=store.card.sha256)
        return [CheckFinding(reason=reason, severity=settings.severity)]

    return examine


KIND = CheckKind(name="ask", settings=AskSettings, open=_open)
