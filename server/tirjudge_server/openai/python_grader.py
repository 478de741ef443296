"""A python grader and the code of a sample, each in programs of their own, so that the sample cannot say its own reward.

The grader's process never runs text: there `exec`, `eval` and `compile` ask for it to be run elsewhere, as `run` does.
Nothing can be sent into a program that runs. So a grader that asks stops there; what it asked for is run; and the grader
is run again from its beginning, with the answers so far.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tirjudge.http.protocol import parse_json
from tirjudge.tools.python import Sandbox
from tirjudge.types import ExecResult, Outcome

MAX_RUNS = 16
"""Most programs that a grader may ask for, for one sample."""

MAX_MESSAGE_BYTES = 2 * 1024 * 1024
"""Most that a program may hand over, unpacked."""

MAX_ANSWERS_BYTES = 4 * 1024 * 1024
"""Most that a grader is told in all."""

_WITH_STDIN = """
import io as _io, sys as _sys
_sys.stdin = _io.TextIOWrapper(_io.BytesIO(_given_stdin.encode("utf-8", "surrogatepass")), encoding="utf-8")
exec(compile(_given_code, "program.py", "exec"), {"__name__": "__main__"})
"""


class GraderFailed(Exception):
    """The grader gives no reward, for a reason of its own; the message is for its author."""


class _Message(BaseModel):
    """What the program of a grader hands over: its reward, or a program that it wants run."""

    model_config = ConfigDict(strict=True, extra="forbid")

    reward: float | None = Field(default=None, allow_inf_nan=False)
    question: dict[str, Any] | None = None


class _Told(BaseModel):
    """What came of code of the sample. The sample may have written any of it, about itself."""

    model_config = ConfigDict(strict=True, extra="forbid")

    error: tuple[str, str] | None
    value: list[Any] | None = None
    variables: dict[str, list[Any]]
    functions: list[str]
    others: list[str]
    arguments: list[Any] | None
    stdout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A program that the grader asked for, and what came of it."""

    question: Mapping[str, Any]
    answer: Mapping[str, Any]


async def grade(source: str, *, sample: Any, item: Any, sandbox: Sandbox) -> float:
    """The reward that `grade(sample, item)` of a grader gives.

    Args:
        source: of the grader.
        sample: JSON value.
        item: JSON value.
        sandbox: runs the grader, and apart from it what it asks for.

    Raises:
        GraderFailed: there is none.
        SandboxUnavailable: the sandbox does not work.
        RecursionError: `sample` or `item` is nested too deeply.
    """
    given = {
        "source": source,
        "sample": json.dumps(sample),
        "item": json.dumps(item),
        "seed": secrets.randbits(32),
    }
    asked: list[_Asked] = []
    while True:
        answers = [[each.question, each.answer] for each in asked]
        if len(json.dumps(answers)) > MAX_ANSWERS_BYTES:
            raise GraderFailed(f"the programs that the grader asked for gave more than {MAX_ANSWERS_BYTES} bytes")
        code = _program("grader_side.py") + _imports_of(source)
        result, content = await _run(code, given={**given, "answers": answers}, sandbox=sandbox)
        message = _message(content, of=result)
        if message.reward is not None:
            return message.reward
        if len(asked) == MAX_RUNS:
            raise GraderFailed(
                f"the grader asked for more than {MAX_RUNS} programs; calls of the sample's functions count"
            )
        assert message.question is not None
        asked.append(_Asked(question=message.question, answer=await _answer(message.question, sandbox=sandbox)))


async def _run(code: str, *, given: Mapping[str, Any], sandbox: Sandbox) -> tuple[ExecResult, bytes | None]:
    """A program, and what it handed over: its last line, behind a mark that is new each time; None: nothing."""
    marker = secrets.token_hex(16)
    result = await sandbox.run(code, bindings={"_given": json.dumps({**given, "marker": marker})})
    last = result.stdout.rstrip("\n").rpartition("\n")[2]
    return result, _unpacked(last.removeprefix(marker)) if last.startswith(marker) else None


def _unpacked(text: str) -> bytes | None:
    try:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(base64.b64decode(text, validate=True), MAX_MESSAGE_BYTES)
    except (binascii.Error, zlib.error, ValueError):
        return None
    return content if unpacking.eof else None


def _message(content: bytes | None, *, of: ExecResult) -> _Message:
    """
    Raises:
        GraderFailed: the grader came to another end.
    """
    if content is None:
        cut = "; what it handed over is too large" if of.truncated else ""
        raise GraderFailed((of.error or f"the grader ended without a reward ({of.outcome})") + cut)
    try:
        message = _Message.model_validate(parse_json(content))
    except (ValidationError, ValueError, RecursionError):
        raise GraderFailed("what the grader handed over cannot be read") from None
    if (message.reward is None) == (message.question is None):
        raise GraderFailed("what the grader handed over cannot be read")
    return message


async def _answer(question: Mapping[str, Any], *, sandbox: Sandbox) -> Mapping[str, Any]:
    """What came of a program that a grader asked for."""
    match question:
        case {"kind": "run", "code": str(code), "stdin": str(stdin)}:
            bindings = {"_given_code": code, "_given_stdin": stdin}
            result = await sandbox.run(*((_WITH_STDIN,) if stdin else (code,)), bindings=bindings if stdin else {})
            return {
                "outcome": result.outcome.value,
                "stdout": result.stdout,
                "stderr": result.stderr,
                "error": result.error,
                "exit_code": result.exit_code,
            }
        case {"kind": "steps", "steps": list(steps)} if steps:
            code = _program("sample_side.py")
            result, content = await _run(code, given={"name": "__main__", "steps": steps}, sandbox=sandbox)
            return _told(content, of=result)
        case _:
            raise GraderFailed("what the grader asked for cannot be read")


def _told(content: bytes | None, *, of: ExecResult) -> Mapping[str, Any]:
    """What code of the sample made; a program that ended in another way is an error that the grader may catch."""
    try:
        if content is not None:
            return _Told.model_validate(parse_json(content), strict=False).model_dump(mode="json")
    except (ValidationError, ValueError, RecursionError):
        pass
    kinds = {Outcome.TIMEOUT: "TimeoutError", Outcome.OOM: "MemoryError"}
    message = of.error or "the code of the sample ended its program, or made more than can be handed over"
    return {"error": [kinds.get(of.outcome, "RuntimeError"), message]}


@cache
def _program(name: str) -> str:
    folder = resources.files("tirjudge_server.openai.apart")
    return "".join(folder.joinpath(file).read_text(encoding="utf-8") for file in ("literals.py", name))


def _imports_of(source: str) -> str:
    """A function that is never called and imports what a grader seems to: the sandbox looks at the text of a program to
    find an interpreter that has these packages already."""
    names = dict.fromkeys(_imported(source))
    return "\n\ndef _imports():\n    pass\n" + "".join(f"    import {name}\n" for name in names)


def _imported(source: str) -> Iterator[str]:
    for line in source.splitlines():
        words = line.split(maxsplit=2)
        if len(words) > 1 and words[0] in ("import", "from"):
            name = words[1].partition(".")[0].rstrip(",;")
            if name.isidentifier() and name.isascii():
                yield name
