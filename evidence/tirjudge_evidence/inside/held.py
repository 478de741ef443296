"""The store that a fork server holds, and the queries on it. Each query runs in a process of its own.

    load      reads the store, before the isolation
    rehearse  prepares a process for its query
    answer    runs one query and prints the answer, in the isolated process

An answer is one line of JSON: `{"result": ...}`, or `{"error": "..."}` for an error of the query. It is the last line of the
output, because a library may print something before, as DuckDB does if a statement takes two seconds.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import hashlib
import importlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_ANSWER_BYTES = 1 << 20
"""Maximum size of an answer."""

_store: Any = None


def load(settings: Mapping[str, Any]) -> None:
    """Open the store of the settings, or import the libraries only. A store may have a method `prepare` for what its queries
    share, and a module a function `prepare` for what the stores share that queries open.

    Args:
        settings: `imports`, names of modules to import; and `store`: None or the `kind`, the `files` (`name`, `format`,
            `path`, `sha256`), and the other settings of the kind.

    Raises:
        ValueError: the store cannot be read, or a file changed.
    """
    global _store
    for name in settings.get("imports", ()):
        module = importlib.import_module(name)
        if hasattr(module, "prepare"):
            module.prepare()
    if settings.get("store") is not None:
        store = dict(settings["store"])
        store["files"] = [{**each, "data": _read(each)} for each in store["files"]]
        _store = _opened(store)
        if hasattr(_store, "prepare"):
            _store.prepare()


def rehearse() -> Iterator[None]:
    """Take short steps that make a query faster: a process that was forked copies each page that it writes, also for the
    reference counts of a library. A store may have a generator `rehearse` for this."""
    if _store is not None:
        _encoded(json.loads('{"error": [1, 1.5, null]}'))
        yield
        if hasattr(_store, "rehearse"):
            yield from _store.rehearse()


def answer(query: str, attached: str = "") -> None:
    """Run a query and print the answer.

    Args:
        query: JSON with the `operation` and its `arguments`.
        attached: JSON of a store to open for this query; its files have their `data` in base64. Empty: the store that
            `load` opened.
    """
    try:
        asked = json.loads(query)
        store = _store if not attached else _opened(_decoded(json.loads(attached)))
        operation = store.operations.get(asked["operation"])
        if operation is None:
            raise ValueError(f"this store has no {asked['operation']}; it has {', '.join(store.operations)}")
        text = _encoded({"result": operation(**asked["arguments"])})
        if len(text) > MAX_ANSWER_BYTES:
            raise ValueError(f"the result has {len(text):,} bytes, the limit is {MAX_ANSWER_BYTES:,}; select less")
    except MemoryError:
        raise
    except Exception as error:
        name = "" if type(error) is ValueError else f"{type(error).__name__}: "
        text = _encoded({"error": f"{name}{error}"[:1000]})
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


def _opened(store: Mapping[str, Any]) -> Any:
    return importlib.import_module(store["kind"]).open_store(store["files"], store)


def _read(file: Mapping[str, Any]) -> bytes:
    with open(file["path"], "rb") as opened:
        data = opened.read()
    if hashlib.sha256(data).hexdigest() != file["sha256"]:
        raise ValueError(f"{file['name']}: the file changed while it was opened")
    return data


def _decoded(store: dict[str, Any]) -> dict[str, Any]:
    files: Sequence[Mapping[str, Any]] = store["files"]
    return store | {"files": [{**each, "data": base64.b64decode(each["data"])} for each in files]}


def _encoded(value: Any) -> str:
    return json.dumps(to_json(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def to_json(value: Any) -> Any:
    """Convert a value of a library to JSON: dates and times to ISO 8601, decimals to numbers, bytes to hexadecimal digits,
    numbers that JSON lacks to None."""
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float | decimal.Decimal):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(each) for each in value]
    return str(value)
