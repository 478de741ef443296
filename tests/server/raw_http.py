"""Sends raw bytes to a real server and reads its responses, for input that no HTTP client sends."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI

from tirjudge_web.process import bind, serve_app


class Caller:
    """A connection that sends raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, *, ssl: ssl.SSLContext | None = None) -> Caller:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=ssl))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read_all(self, pieces: Iterable[bytes] = (), *, every_s: float = 0.05) -> bytes:
        """Read until the server closes the connection; meanwhile send the pieces one by one."""
        sending = asyncio.create_task(self._drip(pieces, every_s=every_s))
        found = b""
        try:
            async with asyncio.timeout(60):
                while data := await self.reader.read(65536):
                    found += data
        except ConnectionError:
            pass
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return found

    async def answers(self, pieces: Iterable[bytes] = (), *, every_s: float = 0.05) -> list[tuple[int, Any]]:
        """Return status and body of each response until the server closes the connection.

        A JSON body is parsed. Any other body is returned as bytes.
        """
        rest = await self.read_all(pieces, every_s=every_s)
        found = []
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            body, rest = rest[: int(fields[b"content-length"])], rest[int(fields[b"content-length"]) :]
            is_json = fields[b"content-type"] == b"application/json"
            found.append((int(head[9:12]), json.loads(body) if is_json else body))
        return found

    async def _drip(self, pieces: Iterable[bytes], *, every_s: float) -> None:
        for piece in pieces:
            self.send(piece)
            await asyncio.sleep(every_s)

    async def end(self) -> None:
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()

    async def refusal(self, pieces: Iterable[bytes] = (), *, every_s: float = 0.05) -> tuple[int, str]:
        """Status and error code of the only response."""
        [(status, body)] = await self.answers(pieces, every_s=every_s)
        return status, body["error"]["code"]


async def talk(port: int, request: bytes) -> list[tuple[int, Any]]:
    """Send a request over a new connection; return status and body of each response."""
    caller = await Caller.connect(port)
    caller.send(request)
    try:
        return await caller.answers()
    finally:
        await caller.end()


@asynccontextmanager
async def serving(app: FastAPI, **options: Any) -> AsyncIterator[int]:
    with bind("127.0.0.1", port=0) as bound:
        port = bound.getsockname()[1]
        started = asyncio.Event()
        task = asyncio.create_task(
            serve_app(app, bound=bound, grace_s=0.0, on_start=started.set, on_stop=lambda: None, **options)
        )
        await started.wait()
        yield port
        signal.raise_signal(signal.SIGTERM)
        await task
