"""The declared formats render the prompts of their authors' code, and read verdicts as it does.

`other_formats/prompts.json` has hashes of what the authors' code makes of `other_formats/rows.json`
(`benchmarks/authors_prompts.py`).
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tirjudge.control_tokens import FAMILIES
from tirjudge.formats import format_named
from tirjudge.formats.declared import DeclaredFormat, shipped_names
from tirjudge.prompt_messages import chat_of
from tirjudge.types import JudgeRequest, Mode

FOLDER = Path(__file__).parent / "other_formats"
ROWS = json.loads((FOLDER / "rows.json").read_text(encoding="utf-8"))
PROMPTS = json.loads((FOLDER / "prompts.json").read_text(encoding="utf-8"))
NUM_SHOWN = {Mode.POINTWISE: 1, Mode.PAIRWISE: 2, Mode.LISTWISE: 4}


def shipped(name: str) -> DeclaredFormat:
    format = format_named(name)
    assert isinstance(format, DeclaredFormat)
    return format


def request(row: dict[str, Any], *, mode: Mode, sections: list[str]) -> JudgeRequest:
    given = {name: row[name] for name in sections}
    return JudgeRequest(mode=mode, prompt=row["prompt"], responses=row["responses"][: NUM_SHOWN[mode]], **given)


def messages(format: DeclaredFormat, asked: JudgeRequest, **limits: int) -> list[dict[str, str]]:
    shown = {"prompt_chars": 10**6, "response_chars": 10**6} | limits
    order = range(len(asked.responses))
    return chat_of(format.render(asked, order=order, tools=(), control_tokens=FAMILIES, **shown))


def label(name: str, text: str, *, mode: Mode = Mode.PAIRWISE) -> str | None:
    labels = shipped(name).labels(mode, NUM_SHOWN[mode])
    found = shipped(name).find_verdict([text], mode=mode, labels=labels)
    return None if found is None else found.label


@pytest.mark.parametrize("key", PROMPTS)
def test_prompts_are_those_of_the_authors(key: str) -> None:
    name, mode, *sections = key.split()
    asked = [request(row, mode=Mode(mode), sections=sections) for row in ROWS]
    shown = [[[each["role"], each["content"]] for each in messages(shipped(name), one)] for one in asked]
    assert hashlib.sha256(json.dumps(shown, ensure_ascii=False).encode()).hexdigest() == PROMPTS[key]


def test_every_shipped_prompt_is_compared_with_the_authors() -> None:
    compared = {tuple(key.split()[:2]) for key in PROMPTS}
    assert compared == {(name, mode.value) for name in shipped_names() for mode in shipped(name).file.modes}


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_formats_name_their_source(name: str) -> None:
    source = shipped(name).file.source
    assert source is not None
    assert source.licence in ("Apache-2.0", "MIT")
    assert not shipped(name).file.unverified
