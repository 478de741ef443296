"""Recorded judgments: from a server by their id, or from a file that has one judgment or record as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tirjudge.client import Client
from tirjudge.http import DEFAULT_URL
from tirjudge.http.protocol import JudgmentRecord
from tirjudge.types import ChatMessage, Judgment
from tirjudge_harness.items import InputError
from tirjudge_harness.showing.items import ShownItem, item_of

ID_PREFIX = "jdg_"
"""Beginning of the id of a judgment."""


def fetch_item(judgment_id: str, *, url: str | None, api_key: str | None) -> ShownItem:
    """Read a judgment from the records of a server.

    Args:
        judgment_id: Its id.
        url: URL of the server. None: the default address of a server on this machine.
        api_key: API key with the scope `read`. None: the server needs none.

    Raises:
        ServerUnavailable: The server cannot be reached.
        ServerRefused: The server does not have the judgment, or the key may not read it.
    """
    with Client(url or DEFAULT_URL, api_key=api_key) as client:
        return item_of_record(client.judgment(judgment_id))


def read_single(path: Path) -> ShownItem | None:
    """Read a file with one judgment, or one record as `GET /v1/judgments/{id}` returns it. None: another kind of file.

    Raises:
        InputError: The file claims to have a judgment or a record, but is invalid.
    """
    found = _only_object(path)
    kind = {"judgment.record": JudgmentRecord, "judgment": Judgment}.get(str(found.get("object")))
    if kind is None:
        return None
    try:
        read = kind.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: not a valid {found['object']}: {place}: {first['msg']}") from error
    return item_of_record(read) if isinstance(read, JudgmentRecord) else item_of(read, id=read.id)


def _only_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file consists of. Empty: the file has anything else, such as several lines of JSON."""
    with open(path, encoding="utf-8", errors="replace") as file:
        first = file.readline()
        try:
            found = json.loads(first)
        except (ValueError, RecursionError):
            if not first.startswith("{"):
                return {}
            try:
                found = json.loads(first + file.read())
            except (ValueError, RecursionError):
                return {}
        else:
            if file.read(1):
                return {}
    return found if isinstance(found, dict) else {}


def item_of_record(record: JudgmentRecord) -> ShownItem:
    """Return the item of a record, with the texts that are not erased."""
    prompt: Any = record.request.get("prompt")
    if isinstance(prompt, list):
        prompt = tuple(ChatMessage.model_validate(message) for message in prompt)
    responses = record.request.get("responses")
    return item_of(
        record.judgment,
        id=record.id,
        prompt=prompt,
        responses=None if responses is None else tuple(responses),
        record=record,
    )
