"""Turn a report about a program into an `ExecResult`. The outcome is based on the kernel's data about the process; the
program itself controls only the texts."""

from __future__ import annotations

import codecs
import os
import re
import signal

from tirjudge.formats.texts import TRUNCATED
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.limits import STDERR_BYTES, Limits
from tirjudge_sandbox.presets import Preset
from tirjudge_sandbox.protocol import EXIT_MEMORY, Ending, Printed, ProgramReport, StoppedBy

_CONTINUATION = bytes(range(0b1000_0000, 0b1100_0000))
"""The continuation bytes of UTF-8."""

_BOX_BORDER = re.compile(r"[\s|+-]*")
"""The frame that Python draws around the parts of an ExceptionGroup."""


def result_of(
    report: ProgramReport, *, limits: Limits, level: IsolationLevel, preset: Preset, queue_s: float
) -> ExecResult:
    """Return the result of a program that ran.

    Args:
        report: the slot's report.
        limits: limits of the program.
        level: isolation level at which it ran.
        preset: warm interpreter in which it ran.
        queue_s: seconds that it waited for its slot.
    """
    ending, stdout, stderr, files, reports, _ = report
    file_is_full = max(stdout.num_bytes, stderr.num_bytes) >= limits.file_mb << 20
    outcome = _outcome(ending, file_is_full=file_is_full, cpu_s=limits.cpu_s)
    exited = os.WIFEXITED(ending.wait_status) and outcome in (Outcome.OK, Outcome.ERROR, Outcome.OUTPUT_LIMIT)
    exit_code = os.WEXITSTATUS(ending.wait_status) if exited else None
    signalled = outcome is Outcome.CRASH and os.WIFSIGNALED(ending.wait_status)
    complaint = (stderr.head + stderr.tail)[-STDERR_BYTES:].decode(errors="replace")
    return ExecResult(
        outcome=outcome,
        stdout=_text(stdout),
        error=_error_line(outcome, ending=ending, complaint=complaint, limits=limits),
        truncated=stdout.is_cut,
        exit_code=exit_code,
        signal=os.WTERMSIG(ending.wait_status) if signalled else None,
        cpu_s=ending.cpu_s,
        wall_s=ending.wall_s,
        queue_s=queue_s,
        max_rss_kb=ending.max_rss_kb,
        level=level,
        preset=preset,
        stderr=complaint,
        files=files,
        in_process=reports,
    )


def _outcome(ending: Ending, *, file_is_full: bool, cpu_s: float) -> Outcome:
    status = ending.wait_status
    if ending.stopped_by is StoppedBy.MEMORY:
        return Outcome.OOM
    if os.WIFSIGNALED(status):
        # Both the slot and the kernel (RLIMIT_CPU) limit CPU time. A kill by the kernel shows only in the CPU time
        # used.
        used_up = os.WTERMSIG(status) == signal.SIGKILL and ending.cpu_s >= cpu_s
        if used_up or ending.stopped_by is not StoppedBy.NONE:
            return Outcome.TIMEOUT
        return Outcome.CRASH
    if file_is_full:
        return Outcome.OUTPUT_LIMIT
    if os.WEXITSTATUS(status) == EXIT_MEMORY:
        return Outcome.OOM
    return Outcome.OK if os.WEXITSTATUS(status) == 0 else Outcome.ERROR


def _error_line(outcome: Outcome, *, ending: Ending, complaint: str, limits: Limits) -> str | None:
    match outcome:
        case Outcome.OK:
            return None
        case Outcome.TIMEOUT if ending.stopped_by is StoppedBy.WALL:
            return f"TimeLimit: not done after {limits.wall_s:g} s"
        case Outcome.TIMEOUT:
            return f"TimeLimit: more than {limits.cpu_s:g} s of processor time"
        case Outcome.OUTPUT_LIMIT:
            return f"OutputLimit: more than {limits.file_mb} MiB printed"
        case Outcome.OOM if ending.stopped_by is StoppedBy.MEMORY:
            return f"MemoryLimit: more than {limits.memory_mb} MiB in all"
        case Outcome.CRASH:
            return f"Crash: killed by {_signal_name(os.WTERMSIG(ending.wait_status))}"
        case _:
            fallback = "MemoryError" if outcome is Outcome.OOM else f"SystemExit: {os.WEXITSTATUS(ending.wait_status)}"
            return (_last_line(complaint) or fallback)[: limits.error_chars]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if not _BOX_BORDER.fullmatch(line)]
    return lines[-1].strip() if lines else ""


def _text(printed: Printed) -> str:
    """Return the output as text. If it was cut, a marker separates its two ends."""
    if not printed.is_cut:
        return printed.head.decode(errors="replace")
    # A character that is cut in two is dropped instead of shown as a replacement character.
    head = codecs.getincrementaldecoder("utf-8")("replace").decode(printed.head)
    tail = printed.tail.lstrip(_CONTINUATION)
    return f"{head}\n{TRUNCATED}\n{tail.decode(errors='replace')}"
