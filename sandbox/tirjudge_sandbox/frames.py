"""What the pool and the relay in a container say to each other: a header of JSON, and bytes that belong to it.

A frame is two lengths of four bytes, big-endian, then the header, then the bytes. Every request carries a number, and its
one answer carries it again. Standard library only: the relay reads this file too.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from tirjudge_sandbox.protocol import Ending, Printed, ProgramReport

LENGTHS = struct.Struct(">II")

HEADER_BYTES = 65_536
"""More than any header that comes out of a container."""


def frame(header: dict[str, Any], *parts: bytes) -> bytes:
    text = json.dumps(header).encode()
    return b"".join([LENGTHS.pack(len(text), sum(map(len, parts))), text, *parts])


def report_frame(request: int, report: ProgramReport) -> bytes:
    """The answer to a program that ran. Files are not among it: there is no place for them in a container."""
    stdout, stderr = report.stdout, report.stderr
    header = {
        "request": request,
        "ending": report.ending.to_packet().decode(),
        "lengths": [[printed.num_bytes, len(printed.head), len(printed.tail)] for printed in (stdout, stderr)],
    }
    return frame(header, stdout.head, stdout.tail, stderr.head, stderr.tail)


def report_from(header: dict[str, Any], body: bytes) -> ProgramReport:
    """The other way round; raises ValueError if it is not what `report_frame` makes, whoever made it."""
    try:
        ending = Ending.from_packet(header["ending"].encode())
        (stdout, stderr), rest = header["lengths"], body
        numbers = (ending.wait_status, ending.max_rss_kb, *stdout, *stderr)
        times = (ending.cpu_s, ending.wall_s)
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
            raise ValueError("a number that none can be")
        if not all(type(time_s) in (int, float) and 0 <= time_s < 1e9 for time_s in times):
            raise ValueError("a time that none can be")
        if type(ending.failure) is not str or ending.fetched:
            raise ValueError("a field that none can be")
        printed = []
        for num_bytes, num_head, num_tail in (stdout, stderr):
            head, tail, rest = rest[:num_head], rest[num_head : num_head + num_tail], rest[num_head + num_tail :]
            printed.append(Printed(num_bytes, head, tail))
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no report: {error!r}") from error
    return ProgramReport(ending=ending, stdout=printed[0], stderr=printed[1], files={})
