"""SandboxFusion's `POST /run_code`, as used by the clients of trainers such as verl.

Details of the protocol:

- Clients concatenate `stdout` and `stderr`, so both are always strings. They show a program's output only if the status
  is `Finished`. A failed program therefore has the status `Finished` and a non-zero return code. Only a timeout has
  a different status.
- The protocol has no status for a program that ran out of memory. The return code is 137, the last line of `stderr`
  names MemoryError, and our additional field `outcome` is `oom`.
- `SandboxError` means a failure of the sandbox, never of a program. Clients drop such a sample or count it separately.
- verl retries only after a 504. The status is therefore 504 if a program certainly did not start.
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
"""Status of the response if the program certainly did not start."""

_KILLED = 137
"""Return code of a program that exceeded its memory: 128 + SIGKILL, as in a shell."""


class RunCodeRequest(Received):
    """A SandboxFusion request. Unknown fields are ignored, as by SandboxFusion."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    code: Text
    language: Text = "python"
    compile_timeout: float = 10.0
    """Ignored: Python has no separate compile step."""
    run_timeout: float = Field(default=10.0, allow_inf_nan=False)
    """Limit in seconds of both CPU and wall time. 0 or less: the service's default."""
    memory_limit_MB: int = -1
    """Memory limit in MiB. 0 or less: the service's default."""
    stdin: Text | None = None
    files: dict[str, Base64 | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


async def run_code(asked: RunCodeRequest, *, service: SandboxService) -> dict[str, Any]:
    """Run a program and return the response body.

    Raises:
        Refused, SandboxBusy, SandboxUnavailable, ShuttingDown: see `SandboxService.execute`.
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
    """Return the response body for a failure of the sandbox."""
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
    """Return the standard error. The error line is appended unless the output already ends with it."""
    if result.error is None or result.stderr.rstrip().endswith(result.error):
        return result.stderr
    gap = "" if result.stderr.endswith("\n") or not result.stderr else "\n"
    return f"{result.stderr}{gap}{result.error}\n"
