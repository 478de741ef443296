"""A toy check: a response has at least a given number of words."""

from pydantic import Field

from tirjudge.types import CheckReason
from tirjudge_evidence.checks.base import CheckContext, CheckFinding, CheckKind, CheckSettings, Examine, Examined


class WordsSettings(CheckSettings):
    least: int = Field(ge=1)


def _open(settings: WordsSettings, context: CheckContext) -> Examine:
    async def examine(examined: Examined) -> list[CheckFinding]:
        count = len(examined.response.split())
        if count >= settings.least:
            return []
        reason = CheckReason(message=settings.said(f"{count} words, expected at least {settings.least}"))
        return [CheckFinding(reason=reason, severity=settings.severity)]

    return examine


KIND = CheckKind(name="words", settings=WordsSettings, open=_open)
