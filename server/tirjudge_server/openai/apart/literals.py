"""Encode values as JSON with their types: numbers, texts, None, and lists, tuples, sets and dicts of them.

Both programs of a python grader start with this text, so it uses the standard library only.
"""

import base64
import json
import os
import zlib

PLAIN = (bool, int, float, complex, str, bytes, type(None))
MANY = (list, tuple, set, frozenset)


class NoLiteral(TypeError):
    """The value has a different type and cannot be encoded."""


def encoded(value):
    """Return the value as nested JSON lists.

    Subclasses are refused, because their methods can run arbitrary code.
    """
    kind = type(value)
    if kind in PLAIN:
        return [kind.__name__, value.hex() if kind is bytes else value if kind in (bool, str) else repr(value)]
    if kind in MANY:
        return [kind.__name__, [encoded(item) for item in value]]
    if kind is dict:
        return ["dict", [[encoded(key), encoded(item)] for key, item in value.items()]]
    raise NoLiteral(f"a {kind.__name__} given")


def decoded(value):
    """Return the value that `encoded` encoded."""
    kind, content = value
    if kind in ("bool", "str"):
        return content
    if kind == "NoneType":
        return None
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "int":
        return int(content)
    if kind in ("float", "complex"):
        return {"float": float, "complex": complex}[kind](content)
    if kind == "dict":
        return {decoded(key): decoded(item) for key, item in content}
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](decoded(item) for item in content)


def tell(channel, marker, message):
    """Write a message to the server as the last line of the output, and exit."""
    packed = base64.b64encode(zlib.compress(json.dumps(message).encode()))
    data = b"\n" + marker.encode() + packed + b"\n"
    while data:
        data = data[os.write(channel, data) :]
    os._exit(0)
