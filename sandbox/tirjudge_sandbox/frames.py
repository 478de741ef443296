"""The messages between the pool and the relay in a container: a JSON header followed by binary data.

A frame consists of two big-endian lengths of four bytes, the header, and the data. Each request has a number, and its
single answer has the same number. This module imports only the standard library, because the relay imports it too.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from tirjudge_sandbox.protocol import Ending, Printed, ProgramReport
from tirjudge_sandbox.watching import MAX_REPORTS

LENGTHS = struct.Struct(">II")

HEADER_BYTES = 65_536
"""Maximum size of a header from a container; a longer one is rejected."""


def frame(header: dict[str, Any], *parts: bytes) -> bytes:
    """Encode one frame."""
    text = json.dumps(header).encode()
    return b"".join([LENGTHS.pack(len(text), sum(map(len, parts))), text, *parts])


def report_frame(request: int, report: ProgramReport) -> bytes:
    """Encode the answer for a program that ran. It has no files: programs in a container have no writable directory."""
    stdout, stderr = report.stdout, report.stderr
    header = {
        "request": request,
        "ending": report.ending.to_packet().decode(),
        "lengths": [[printed.num_bytes, len(printed.head), len(printed.tail)] for printed in (stdout, stderr)],
        "reports": report.reports,
        "has_value": report.value is not None,
    }
    value = (report.value or "").encode(errors="replace")
    return frame(header, stdout.head, stdout.tail, stderr.head, stderr.tail, value)


def report_from(header: dict[str, Any], body: bytes) -> ProgramReport:
    """Decode a frame of `report_frame`. The frame may be hostile: raises ValueError if a field has an impossible
    value."""
    try:
        ending = Ending.from_packet(header["ending"].encode())
        (stdout, stderr), rest = header["lengths"], body
        numbers = (ending.wait_status, ending.max_rss_kb, *stdout, *stderr)
        times = (ending.cpu_s, ending.wall_s)
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
            raise ValueError("a number is out of range")
        if not all(type(time_s) in (int, float) and 0 <= time_s < 1e9 for time_s in times):
            raise ValueError("a time is out of range")
        if type(ending.failure) is not str or ending.fetched:
            raise ValueError("a field has an impossible value")
        printed = []
        for num_bytes, num_head, num_tail in (stdout, stderr):
            head, tail, rest = rest[:num_head], rest[num_head : num_head + num_tail], rest[num_head + num_tail :]
            printed.append(Printed(num_bytes, head, tail))
        reports, has_value = tuple(header["reports"]), header["has_value"]
        if len(reports) > MAX_REPORTS or not all(type(each) is str for each in reports):
            raise ValueError("a field has an impossible value")
        value = rest.decode(errors="replace") if has_value is True else None
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a report: {error!r}") from error
    return ProgramReport(ending=ending, stdout=printed[0], stderr=printed[1], files={}, reports=reports, value=value)
