"""Settings files of tools: JSON or TOML, checked against a model."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

Settings = TypeVar("Settings", bound=BaseModel)


def read_settings(path: str, model: type[Settings], *, tool: str) -> Settings:
    """Read a settings file.

    Args:
        path: path of a `.json` or `.toml` file.
        model: model of the contents.
        tool: name of the tool, for error messages.

    Raises:
        ValueError: the file cannot be read, or its contents are invalid. The message names the file and the setting.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--tool {tool}:{path}: cannot be read: {error}") from None
    try:
        contents = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"--tool {tool}:{path}: not valid {'TOML' if path.endswith('.toml') else 'JSON'}: {error}"
        ) from None
    try:
        return model.model_validate(contents)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"--tool {tool}:{path}: {where}: {first['msg']}") from None
