"""Read one request for `tirjudge judge`: a JSON file, or a prompt and files of responses. `-` is standard input."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError

from tirjudge.http.protocol import parse_json, problem_of
from tirjudge.types import JudgeRequest
from tirjudge_harness.items import InputError, JudgeItem, JudgeSettings, default_mode
from tirjudge_harness.sources import one_line

TEXT_FILES = (
    ".txt",
    ".text",
    ".md",
    ".markdown",
    ".rst",
    ".json",
    ".jsonl",
    ".yaml",
    ".yml",
    ".xml",
    ".html",
    ".csv",
    ".log",
)
"""Endings of the names of text files."""

STDIN = "-"
"""Name of standard input, and of standard output for `--out`."""


def path_of(name: str) -> Path:
    """Return the path of an input file; that of standard input for `-`."""
    return Path("/dev/stdin") if name == STDIN else Path(name)


def read_request(inputs: Sequence[str], *, settings: JudgeSettings) -> JudgeRequest:
    """Return the request that the arguments of the command describe.

    Args:
        inputs: a JSON file with a request; or a prompt, which is a text or the name of a file, and files with one response
            each. At most one of them is `-`.
        settings: settings of a request from a prompt and responses.

    Raises:
        InputError: a file cannot be read, the prompt is the name of a file that does not exist, the request is invalid, or
            settings are given for a file that has its own.
    """
    if list(inputs).count(STDIN) > 1:
        raise InputError("standard input can be read only once; give - once")
    if len(inputs) == 1:
        return _from_file(inputs[0], settings=settings)
    prompt, *responses = inputs
    is_file = prompt == STDIN or _is_file(prompt)
    if not is_file and _is_file_name(prompt):
        raise InputError(
            f"{one_line(prompt)}: no such file; give the prompt as the name of a file or as a text. To judge this very text, "
            "give - as the prompt, and the text on standard input"
        )
    texts = [_text(prompt) if is_file else prompt, *map(_text, responses)]
    item = JudgeItem.model_validate({"id": "", "prompt": texts[0], "responses": texts[1:]})
    try:
        return settings.request(item)
    except ValidationError as error:
        raise InputError(problem_of(error).message) from error


def _from_file(name: str, *, settings: JudgeSettings) -> JudgeRequest:
    given = [field for field, value in asdict(settings).items() if value != getattr(JudgeSettings(), field)]
    if given:
        options = ", ".join(f"--{field.replace('_', '-')}" for field in given)
        raise InputError(f"{options} cannot be combined with a request file; write the field into the request")
    content = _content(
        name, wanted="a JSON file with one request, or a prompt and files of responses: PROMPT FILE FILE"
    )
    try:
        request = parse_json(content.removeprefix(BOM_UTF8))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{name}: not a JSON request: {error}; for JSONL items, give --out FILE (or --out -); for a prompt and "
            "responses, give PROMPT FILE FILE"
        ) from None
    if not isinstance(request, dict):
        raise InputError(f"{name}: expected a JSON object with prompt and responses")
    if "mode" not in request and isinstance(request.get("responses"), list):
        request["mode"] = default_mode(len(request["responses"]))
    try:
        return JudgeRequest.model_validate(request)
    except ValidationError as error:
        raise InputError(f"{name}: {problem_of(error).message}") from error


def _is_file(name: str) -> bool:
    """Whether a text is the name of a file. A long text is not."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def _is_file_name(prompt: str) -> bool:
    """Whether a text is meant as the name of a file: without a blank, and with the ending of a text file or in a folder that
    exists. Other texts without a blank are prompts, such as `1/2+1/3=?`."""
    if any(map(str.isspace, prompt)):
        return False
    folder, separator, _ = prompt.rpartition(os.sep)
    return prompt.lower().endswith(TEXT_FILES) or (bool(separator) and _is_folder(folder or os.sep))


def _is_folder(name: str) -> bool:
    """Whether a text is the name of a folder. A long text is not."""
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


def _text(name: str) -> str:
    try:
        return _content(name).decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError:
        raise InputError(f"{name}: not UTF-8 text") from None


def _content(name: str, *, wanted: str = "a file with the text of one response") -> bytes:
    try:
        return path_of(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{one_line(name)}: cannot be read: {reason}; give {wanted}") from None
