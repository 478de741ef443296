"""The check `python`: a program in the sandbox, which prints `{"passed": bool, "reason": str}` as its last line.

It finds the texts in the variables `response`, `prompt` and `reference`, and must not execute the response: a response that
runs in the program's process could print the answer. Such an execution is refused and fails the check.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from tirjudge.errors import SandboxUnavailable
from tirjudge.tools.functions import CallAccount, Offer
from tirjudge.types import CheckReason, ExecResult, prompt_text
from tirjudge_evidence.checks.base import (
    MAX_REASON_CHARS,
    CheckContext,
    CheckFinding,
    CheckKind,
    CheckSettings,
    Examine,
    Examined,
)


class PythonSettings(CheckSettings):
    """Settings of the check."""

    kind: str = Field(pattern="^python$")
    code: str
    """The program."""


class _Printed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    passed: StrictBool
    reason: str = ""


def _open(settings: PythonSettings, context: CheckContext) -> Examine:
    try:
        compile(settings.code, settings.name, "exec")
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"check {settings.name}: the code is not valid Python: {error}") from None

    async def examine(examined: Examined) -> list[CheckFinding]:
        if context.sandbox is None:
            raise SandboxUnavailable(f"check {settings.name} needs a sandbox")
        request = examined.request
        bindings = {
            "response": examined.response,
            "prompt": prompt_text(request.prompt),
            "reference": request.reference or "",
        }
        offer = Offer(account=CallAccount(), watched=["response"], candidate_code="refuse")
        problem = _problem(await context.sandbox.run(settings.code, bindings=bindings, offer=offer))
        if problem is None:
            return []
        message = f"{settings.message}: {problem}" if settings.message else problem
        return [CheckFinding(reason=CheckReason(message=message[:MAX_REASON_CHARS]), severity=settings.severity)]

    return examine


def _problem(result: ExecResult) -> str | None:
    """Return why a program did not pass the response; None: it did."""
    if result.in_process:
        return f"the program executed the response in its own process ({', '.join(result.in_process)})"
    if not result.outcome.is_ok or result.truncated:
        return f"the program ended with {result.outcome}: {result.error or 'too much output'}"
    last = result.stdout.rstrip().rpartition("\n")[2]
    try:
        printed = _Printed.model_validate(json.loads(last))
    except (ValueError, RecursionError):
        return 'the last line of the program is not {"passed": true or false, "reason": "..."}'
    return None if printed.passed else printed.reason or "the program did not pass the response"


KIND = CheckKind(name="python", settings=PythonSettings, open=_open, needs_sandbox=True)
