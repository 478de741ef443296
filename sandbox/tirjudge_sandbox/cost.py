"""Limit the size of a response, based on the limits of the request's programs, before any program runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tirjudge_sandbox.limits import STDERR_BYTES, Limits
from tirjudge_web.cost import check_cost

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Default maximum of the output and files of one response, before JSON and base64 encoding."""

MIN_OUTPUT_BYTES = 1024
"""Smallest output limit that a program gets in a batch. If there is room for less, the batch is refused."""


def answer_bytes(limits: Limits, *, fetches: bool) -> int:
    """Return the maximum number of bytes that one program adds to a response."""
    return limits.output_bytes + STDERR_BYTES + (limits.fetch_bytes if fetches else 0)


def check_answer(sizes: Iterable[int], *, most: int, param: str) -> None:
    """Check that the response cannot become too large.

    Args:
        sizes: `answer_bytes` of each program.
        most: maximum number of bytes of the response.
        param: name of the request field with the programs.

    Raises:
        Refused: 413, the response could become larger than `most`.
    """
    remedy = "split the request, or ask for a lower limits.output_bytes or limits.fetch_bytes"
    check_cost(sum(sizes), most=most, what="bytes of output and fetched files are possible", param=param, remedy=remedy)


def shared_output(limits: Limits, *, num_programs: int, most: int) -> Limits:
    """Return limits with an output limit low enough that the outputs of all programs fit one response.

    Raises:
        Refused: 413, there are too many programs.
    """
    share = most // max(1, num_programs) - STDERR_BYTES
    check_answer([num_programs * (MIN_OUTPUT_BYTES + STDERR_BYTES)], most=most, param="actions")
    return replace(limits, output_bytes=min(limits.output_bytes, share))
