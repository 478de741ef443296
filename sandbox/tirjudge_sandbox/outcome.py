"""From what the kernel said about a process to an `ExecResult`. A program's own words only fill in the text."""

from __future__ import annotations

import codecs
import os
import re
import signal

from tirjudge.observation import TRUNCATED
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox.levels import Level
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.protocol import EXIT_MEMORY, Ending, StoppedBy

_BOX_BORDER = re.compile(r"[\s|+-]*")
"""The frame that Python draws around the parts of an ExceptionGroup."""

_STDERR_TAIL_BYTES = 16_384


def result_of(ending: Ending, *, stdout: int, stderr: int, limits: Limits, level: Level, queue_s: float) -> ExecResult:
    """What is told of a program that ran.

    Args:
        ending: from the slot.
        stdout: descriptor of what was printed.
        stderr: descriptor of what went to the standard error.
        limits: it ran under.
        level: it ran at.
        queue_s: how long it waited for its slot.
    """
    num_bytes = os.fstat(stdout).st_size
    file_is_full = max(num_bytes, os.fstat(stderr).st_size) >= limits.file_mb << 20
    outcome = _outcome(ending, file_is_full=file_is_full, cpu_s=limits.cpu_s)
    exited = os.WIFEXITED(ending.wait_status) and outcome in (Outcome.OK, Outcome.ERROR, Outcome.OUTPUT_LIMIT)
    exit_code = os.WEXITSTATUS(ending.wait_status) if exited else None
    signalled = outcome is Outcome.CRASH and os.WIFSIGNALED(ending.wait_status)
    return ExecResult(
        outcome=outcome,
        stdout=_read_cut(stdout, num_bytes=num_bytes, limit=limits.output_bytes),
        error=_error_line(outcome, ending=ending, stderr=stderr, limits=limits),
        truncated=num_bytes > limits.output_bytes,
        exit_code=exit_code,
        signal=os.WTERMSIG(ending.wait_status) if signalled else None,
        cpu_s=ending.cpu_s,
        wall_s=ending.wall_s,
        queue_s=queue_s,
        max_rss_kb=ending.max_rss_kb,
        level=level,
    )


def _outcome(ending: Ending, *, file_is_full: bool, cpu_s: float) -> Outcome:
    status = ending.wait_status
    if os.WIFSIGNALED(status):
        # Two clocks watch the processor time, ours and the kernel's; a kill by the kernel's shows in the time used.
        used_up = os.WTERMSIG(status) == signal.SIGKILL and ending.cpu_s >= cpu_s
        if used_up or ending.stopped_by is not StoppedBy.NOBODY:
            return Outcome.TIMEOUT
        return Outcome.CRASH
    if file_is_full:
        return Outcome.OUTPUT_LIMIT
    if os.WEXITSTATUS(status) == EXIT_MEMORY:
        return Outcome.OOM
    return Outcome.OK if os.WEXITSTATUS(status) == 0 else Outcome.ERROR


def _error_line(outcome: Outcome, *, ending: Ending, stderr: int, limits: Limits) -> str | None:
    match outcome:
        case Outcome.OK:
            return None
        case Outcome.TIMEOUT if ending.stopped_by is StoppedBy.WALL:
            return f"TimeLimit: not done after {limits.wall_s:g} s"
        case Outcome.TIMEOUT:
            return f"TimeLimit: more than {limits.cpu_s:g} s of processor time"
        case Outcome.OUTPUT_LIMIT:
            return f"OutputLimit: more than {limits.file_mb} MiB printed"
        case Outcome.CRASH:
            return f"Crash: killed by {signal.Signals(os.WTERMSIG(ending.wait_status)).name}"
        case _:
            fallback = "MemoryError" if outcome is Outcome.OOM else f"SystemExit: {os.WEXITSTATUS(ending.wait_status)}"
            return (_last_line(stderr) or fallback)[: limits.error_chars]


def _last_line(stderr: int) -> str:
    num_bytes = os.fstat(stderr).st_size
    tail = os.pread(stderr, _STDERR_TAIL_BYTES, max(0, num_bytes - _STDERR_TAIL_BYTES)).decode(errors="replace")
    lines = [line for line in tail.splitlines() if not _BOX_BORDER.fullmatch(line)]
    return lines[-1].strip() if lines else ""


def _read_cut(descriptor: int, *, num_bytes: int, limit: int) -> str:
    """At most `limit` bytes: three quarters from the head, one from the tail, with a mark between them."""
    if num_bytes <= limit:
        return os.pread(descriptor, limit, 0).decode(errors="replace")
    num_tail = limit // 4
    # A character that straddles a cut is left out, rather than shown as a broken one.
    head = codecs.getincrementaldecoder("utf-8")("replace").decode(os.pread(descriptor, limit - num_tail, 0))
    tail = os.pread(descriptor, num_tail, num_bytes - num_tail)
    while tail and tail[0] & 0b1100_0000 == 0b1000_0000:
        tail = tail[1:]
    return f"{head}\n{TRUNCATED}\n{tail.decode(errors='replace')}"
