"""How large the answer to a request may become, computed from its programs before one of them runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tirjudge_sandbox.limits import STDERR_BYTES, Limits
from tirjudge_web.cost import check_cost

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Of one request, before JSON and base64 make it longer."""

MIN_OUTPUT_BYTES = 1024
"""Less output than this is not worth a program."""


def answer_bytes(limits: Limits, *, fetches: bool) -> int:
    """The most that one program can make an answer longer by."""
    return limits.output_bytes + STDERR_BYTES + (limits.fetch_bytes if fetches else 0)


def check_answer(sizes: Iterable[int], *, most: int, param: str) -> None:
    """
    Args:
        sizes: `answer_bytes` of each program.
        most: bytes of the whole answer.
        param: the field with the programs.

    Raises:
        Refused: 413, together they are more.
    """
    remedy = "split the request, or ask for a lower limits.output_bytes or limits.fetch_bytes"
    check_cost(sum(sizes), most=most, what="bytes of output and fetched files are possible", param=param, remedy=remedy)


def shared_output(limits: Limits, *, num_programs: int, most: int) -> Limits:
    """Limits under which so many programs fit one answer: each may print less.

    Raises:
        Refused: 413, there are too many.
    """
    share = most // max(1, num_programs) - STDERR_BYTES
    check_answer([num_programs * (MIN_OUTPUT_BYTES + STDERR_BYTES)], most=most, param="actions")
    return replace(limits, output_bytes=min(limits.output_bytes, share))
