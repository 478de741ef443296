"""SandboxFusion's `POST /run_code`, as trainers' clients use it (verl among them).

What a reader would trip over:

- Clients join `stdout` and `stderr`, so both are always strings. They show a program's output only if its status is
  `Finished`, so a program that failed is `Finished` with a return code that is not 0; only a timeout is not.
- There is no status for a program that ran out of memory: it is code 137, `MemoryError` in its last line, and `outcome`, a
  field of ours beside theirs, says `oom`.
- `SandboxError` is what we did wrong, never what a program did. Clients drop such a sample or count it apart.
- verl asks again after a 504 and after nothing else, so that is the answer when a program certainly did not start.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from tirjudge.types import ExecResult, Outcome, Received, Text
from tirjudge_sandbox.cost import answer_bytes, check_answer
from tirjudge_sandbox.service import SandboxService
from tirjudge_sandbox.wire import SANDBOX_ERROR, Base64, encoded

RUN_CODE_PATH = "/run_code"
PING_PATH = "/v1/ping"

NOT_STARTED = 504

_KILLED = 137
"""128 + SIGKILL, what a shell says of a program that the kernel killed for its memory."""


class RunCodeRequest(Received):
    """Fields that it does not know are left alone, as SandboxFusion does."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    code: Text
    language: Text = "python"
    compile_timeout: float = 10.0
    """Without effect: Python is not compiled apart."""
    run_timeout: float = Field(default=10.0, allow_inf_nan=False)
    """Seconds, of processor time and on the clock; 0 or less: the service's own."""
    memory_limit_MB: int = -1
    """0 or less: the service's own."""
    stdin: Text | None = None
    files: dict[str, Base64 | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


async def run_code(asked: RunCodeRequest, *, service: SandboxService) -> dict[str, Any]:
    """The answer to a program that ran.

    Raises:
        Refused, SandboxBusy, SandboxUnavailable, ShuttingDown: as `SandboxService.execute`.
    """
    limits = service.capped(
        time_s=asked.run_timeout if asked.run_timeout > 0 else None,
        memory_mb=asked.memory_limit_MB if asked.memory_limit_MB > 0 else None,
    )
    check_answer(
        [answer_bytes(limits, fetches=bool(asked.fetch_files))], most=service.max_answer_bytes, param="fetch_files"
    )
    result = await service.execute(
        asked.code,
        stdin=asked.stdin or "",
        files={path: content for path, content in asked.files.items() if content is not None},
        fetch=asked.fetch_files,
        limits=limits,
    )
    return _answer(result)


def failure(error: Exception) -> dict[str, Any]:
    """The answer when the sandbox failed."""
    return {
        "status": "SandboxError",
        "message": str(error),
        "compile_result": None,
        "run_result": None,
        "executor_pod_name": None,
        "files": {},
        "outcome": SANDBOX_ERROR,
    }


def _answer(result: ExecResult) -> dict[str, Any]:
    timed_out = result.outcome is Outcome.TIMEOUT
    return {
        "status": "Success" if result.outcome.is_ok else "Failed",
        "message": "",
        "compile_result": None,
        "run_result": {
            "status": "TimeLimitExceeded" if timed_out else "Finished",
            "execution_time": result.wall_s,
            "return_code": _return_code(result),
            "stdout": result.stdout,
            "stderr": _stderr(result),
        },
        "executor_pod_name": None,
        "files": encoded(result.files),
        "outcome": str(result.outcome),
    }


def _return_code(result: ExecResult) -> int | None:
    match result.outcome:
        case Outcome.OK:
            return 0
        case Outcome.TIMEOUT:
            return None
        case Outcome.OOM:
            return _KILLED
        case Outcome.CRASH if result.signal is not None:
            return -result.signal
        case _:
            return result.exit_code or 1


def _stderr(result: ExecResult) -> str:
    """What the program wrote there; why it ended comes last, unless the program said so itself."""
    if result.error is None or result.stderr.rstrip().endswith(result.error):
        return result.stderr
    gap = "" if result.stderr.endswith("\n") or not result.stderr else "\n"
    return f"{result.stderr}{gap}{result.error}\n"
