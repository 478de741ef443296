"""The messages between a program and the host: JSON after a length of four bytes, over one socket.

    program -> host   {"id": 1, "function": "run", "arguments": {...}}    a call; ids rise
    host -> program   {"id": 1, "call": 1, "result": ...} or {"id": 1, "call": 1, "error": "..."}

`call` is the position of the call in the host's record, from 1. An answer to a call that is not recorded, such as one of an
unknown function, has none.

The program side is `guest`, the host side is `exchange`. Everything that the program sends is untrusted. This module imports
only the standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import struct

LENGTH = struct.Struct(">I")

MAX_MESSAGE_BYTES = 16 << 20
"""Maximum size of a message without its length. A longer one closes the channel."""


def framed(message: bytes) -> bytes:
    """Return a message with its length.

    Raises:
        ValueError: the message is too long.
    """
    if len(message) > MAX_MESSAGE_BYTES:
        raise ValueError(f"{len(message):,} bytes given, the limit of a message is {MAX_MESSAGE_BYTES:,}")
    return LENGTH.pack(len(message)) + message
