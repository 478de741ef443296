"""Use the server whose URL is the first argument, or start one for the time of an example."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

URL_MARK = "http://"


@contextmanager
def server_url() -> Iterator[str]:
    """Yield the URL of a server."""
    if len(sys.argv) > 1:
        yield sys.argv[1]
        return
    command = [sys.executable, "-m", "tirjudge", "serve", "--port", "0", "--records", "none", "--files", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            ready = next(line for line in server.stdout if URL_MARK in line)
            yield URL_MARK + ready.partition(URL_MARK)[2].split()[0].strip('",')
        finally:
            server.terminate()
