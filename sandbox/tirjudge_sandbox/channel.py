"""The host's end of a program's channel for function calls: splits the bytes that a program sends into messages.

A program may send anything. A message that is too long, or refused by the receiver, closes the channel; the program goes on
without it. This module imports only the standard library, because the relay in a container imports it too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from tirjudge_sandbox.messages import LENGTH, MAX_MESSAGE_BYTES


class Link(Protocol):
    """What the receiver of a program's messages can do with the program."""

    def send(self, message: bytes) -> None:
        """Send an answer, without its length. Does nothing if the program has ended."""

    def close(self) -> None:
        """Close the channel. The program goes on."""

    def pause(self) -> None:
        """Stop the wall time of the program."""

    def resume(self, calls_s: float) -> None:
        """Let the wall time run again. `calls_s`: duration of all calls so far, which does not count as wall time."""


class Calls(Protocol):
    """Receiver of a program's messages."""

    @property
    def max_s(self) -> float:
        """Maximum total duration of the calls, in seconds."""
        ...

    def begin(self, link: Link) -> None:
        """Called before the program starts. Called again if the program is started again."""

    def receive(self, message: bytes) -> None:
        """Called with each message. Raises ValueError if it is invalid; the channel is then closed."""

    async def end(self) -> None:
        """Called after the program has ended. Cancels calls in progress."""


class ForwardedCalls:
    """Receiver of the messages of a program whose calls are answered elsewhere: by the pool outside a container, or by the
    client of a service. It forwards one message at a time and checks nothing else.

    Args:
        forward: forwards a message.
        max_s: see `Calls`.
    """

    def __init__(self, forward: Callable[[bytes], None], *, max_s: float) -> None:
        self._forward = forward
        self._link: Link | None = None
        self._is_waiting = False
        self.max_s = max_s

    def begin(self, link: Link) -> None:
        self._link = link

    def receive(self, message: bytes) -> None:
        if self._is_waiting:
            raise ValueError("a message during a call")
        self._is_waiting = True
        self._forward(message)

    async def end(self) -> None:
        self._link = None

    def answer(self, message: bytes) -> None:
        """Send an answer to the program. Does nothing if no call is in progress."""
        if self._link is not None and self._is_waiting:
            self._is_waiting = False
            self._link.send(message)

    def pause(self) -> None:
        """Stop the wall time of the program."""
        if self._link is not None:
            self._link.pause()

    def resume(self, calls_s: float) -> None:
        """Let the wall time run again. See `Link.resume`."""
        if self._link is not None:
            self._link.resume(calls_s)

    def hang_up(self) -> None:
        """Close the channel. The program goes on."""
        if self._link is not None:
            self._link.close()


class Channel(asyncio.Protocol):
    """Protocol of the host's end. Create it with `open_channel`."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            (num_bytes,) = LENGTH.unpack_from(self._buffer)
            if num_bytes > MAX_MESSAGE_BYTES:
                self.close()
                return
            end = LENGTH.size + num_bytes
            if len(self._buffer) < end:
                return
            message = bytes(self._buffer[LENGTH.size : end])
            del self._buffer[:end]
            try:
                self._receive(message)
            except ValueError:
                self.close()
                return

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def send(self, message: bytes) -> None:
        """Send an answer, without its length. Close the channel of a program that does not read its answers."""
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size() > MAX_MESSAGE_BYTES:
            self.close()
        else:
            self._transport.writelines((LENGTH.pack(len(message)), message))

    def close(self) -> None:
        """Close the channel. Does nothing if it is closed."""
        self._buffer.clear()
        if self._transport is not None:
            self._transport.abort()


async def open_channel(receive: Callable[[bytes], None]) -> tuple[Channel, socket.socket]:
    """Return a new channel and the program's end of its socket.

    Args:
        receive: called with each message. A ValueError closes the channel.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    try:
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(lambda: Channel(receive), sock=ours)
    except BaseException:
        ours.close()
        theirs.close()
        raise
    return channel, theirs
