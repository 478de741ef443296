"""The check `sql`: a SELECT on a store with values of the response. Each row that it returns is a violation."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tirjudge.types import CheckReason, StoreKind
from tirjudge_evidence.checks.base import (
    CheckContext,
    CheckFinding,
    CheckKind,
    Examine,
    Examined,
    InStoreSettings,
    asked,
)
from tirjudge_evidence.checks.response_json import FromResponse


class SqlSettings(FromResponse, InStoreSettings):
    """Settings of the check."""

    store_kind: ClassVar[StoreKind] = "table"
    kind: str = Field(pattern="^sql$")
    query: str
    """One SELECT. `$name` is a value of the response."""
    expect: Literal["no_rows", "rows"] = "no_rows"
    """`no_rows`: each row is a violation. `rows`: no row is a violation."""


def _open(settings: SqlSettings, context: CheckContext) -> Examine:
    store_of = context.store_of(settings)

    async def examine(examined: Examined) -> list[CheckFinding]:
        values = settings.values_in(examined.response)
        store = await store_of(examined)
        rows = await asked(store, "sql", query=settings.query, params=values)
        if settings.expect == "rows":
            shown, message = [] if rows else [None], "no row fits the response"
        else:
            shown, message = rows, f"a row of {settings.store} contradicts the response"
        reasons = [
            CheckReason(message=settings.said(message), row=row, store=settings.store, store_sha256=store.card.sha256)
            for row in shown
        ]
        return [CheckFinding(reason=reason, severity=settings.severity) for reason in reasons]

    return examine


KIND = CheckKind(name="sql", settings=SqlSettings, open=_open)
