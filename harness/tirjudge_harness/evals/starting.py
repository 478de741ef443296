"""What a command gives as files and options, as the body of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tirjudge.http.protocol import parse_json
from tirjudge_harness.items import InputError


def data_source(file_id: str, *, model: str | None, messages: Sequence[Any] | None) -> dict[str, Any]:
    """Return the data source of a run.

    Args:
        file_id: Id of the uploaded rows.
        model: The model that writes the samples. None: the rows are graded as they are.
        messages: The messages that it answers. None: no model.
    """
    source = {"type": "file_id", "id": file_id}
    if model is None:
        return {"type": "jsonl", "source": source}
    template = {"type": "template", "template": list(messages or ())}
    return {"type": "completions", "source": source, "model": model, "input_messages": template}


def read_messages(path: Path) -> list[Any]:
    """Read a JSON list of messages.

    Raises:
        InputError: The file cannot be read, or has no such list.
    """
    try:
        found = parse_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(found, list) or not found:
        raise InputError(f'{path}: expected: a list of messages, such as [{{"role": "user", "content": "..."}}]')
    return found


def renamed_models(entries: Sequence[str]) -> dict[str, str]:
    """Return old name -> new name, from entries `OLD=NEW`.

    Raises:
        InputError: An entry has another form.
    """
    names = [entry.partition("=") for entry in entries]
    for old, separator, new in names:
        if not old or not separator or not new:
            raise InputError("--rename-model: expected: OLD=NEW, such as gpt-4o-mini=tirjudge-mini")
    return {old: new for old, _, new in names}
