"""The check `pattern`: the response must match a pattern, or must not. It takes linear time (re2)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from tirjudge.types import CheckReason
from tirjudge_evidence.checks.base import CheckContext, CheckFinding, CheckKind, CheckSettings, Examine, Examined
from tirjudge_evidence.checks.response_json import compiled

_SHOWN_CHARS = 200


class PatternSettings(CheckSettings):
    """Settings of the check."""

    kind: str = Field(pattern="^pattern$")
    pattern: str
    """Pattern in the syntax of re2."""
    expect: Literal["match", "no_match"] = "match"
    """Whether the response must match somewhere, or nowhere."""

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        compiled(pattern)
        return pattern


def _open(settings: PatternSettings, context: CheckContext) -> Examine:
    pattern = compiled(settings.pattern)

    async def examine(examined: Examined) -> list[CheckFinding]:
        match = pattern.search(examined.response)
        if (match is not None) == (settings.expect == "match"):
            return []
        if match is None:
            reason = CheckReason(message=settings.said(f"the response does not match {settings.pattern}"))
        else:
            reason = CheckReason(
                message=settings.said(f"the response matches {settings.pattern}"), value=match.group()[:_SHOWN_CHARS]
            )
        return [CheckFinding(reason=reason, severity=settings.severity)]

    return examine


KIND = CheckKind(name="pattern", settings=PatternSettings, open=_open)
