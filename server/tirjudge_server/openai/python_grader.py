"""Run a python grader, and the code of a sample in separate programs, so that the sample cannot set its own reward.

The grader's process never runs code given as text. Its `exec`, `eval`, `compile` and `run` request a separate program
instead. The sandbox cannot send input to a running program. So a grader stops at such a request, the server runs the
requested program, and the grader is run again from its beginning with all answers so far.
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
"""Maximum number of programs that a grader may request for one sample."""

MAX_MESSAGE_BYTES = 2 * 1024 * 1024
"""Maximum size of a program's message to the server, uncompressed."""

MAX_ANSWERS_BYTES = 4 * 1024 * 1024
"""Maximum total size of the answers that a grader receives."""

_WITH_STDIN = """
import io as _io, sys as _sys
_sys.stdin = _io.TextIOWrapper(_io.BytesIO(_given_stdin.encode("utf-8", "surrogatepass")), encoding="utf-8")
exec(compile(_given_code, "program.py", "exec"), {"__name__": "__main__"})
"""


class GraderFailed(Exception):
    """The grader returned no reward, through its own fault. The message is meant for the author of the grader."""


class _Message(BaseModel):
    """Message from a grader's program: its reward, or a request to run a program. Exactly one is set."""

    model_config = ConfigDict(strict=True, extra="forbid")

    reward: float | None = Field(default=None, allow_inf_nan=False)
    question: dict[str, Any] | None = None


class _SampleResult(BaseModel):
    """Result of running code of the sample. Untrusted: the code can forge it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    error: tuple[str, str] | None
    value: list[Any] | None = None
    variables: dict[str, list[Any]]
    functions: list[str]
    others: list[str]
    arguments: list[Any] | None
    stdout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """A program that the grader requested, and its result."""

    question: Mapping[str, Any]
    answer: Mapping[str, Any]


async def grade(source: str, *, sample: Any, item: Any, sandbox: Sandbox) -> float:
    """Return the reward from `grade(sample, item)` of a grader.

    Args:
        source: Source code of the grader.
        sample: JSON value.
        item: JSON value.
        sandbox: Runs the grader, and in separate programs the code that the grader requests.

    Raises:
        GraderFailed: The grader returned no reward.
        SandboxUnavailable: The sandbox is down.
        RecursionError: `sample` or `item` is nested too deeply.
    """
    given = {
        "source": source,
        "sample": json.dumps(sample),
        "item": json.dumps(item),
        "seed": secrets.randbits(32),
    }
    exchanges: list[_Exchange] = []
    while True:
        answers = [[each.question, each.answer] for each in exchanges]
        if len(json.dumps(answers)) > MAX_ANSWERS_BYTES:
            raise GraderFailed(f"the results of the grader's programs are larger than {MAX_ANSWERS_BYTES} bytes")
        code = _program("grader_side.py") + _imports_of(source)
        result, content = await _run(code, given={**given, "answers": answers}, sandbox=sandbox)
        message = _message(content, of=result)
        if message.reward is not None:
            return message.reward
        if len(exchanges) == MAX_RUNS:
            raise GraderFailed(
                f"the grader ran more than {MAX_RUNS} programs; each call of a function of the sample counts as one"
            )
        assert message.question is not None
        exchanges.append(_Exchange(question=message.question, answer=await _answer(message.question, sandbox=sandbox)))


async def _run(code: str, *, given: Mapping[str, Any], sandbox: Sandbox) -> tuple[ExecResult, bytes | None]:
    """Run a program. Return its result and its message, which is its last line after a random marker; None: no message."""
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
    """Parse the message of a grader's program.

    Raises:
        GraderFailed: The program ended without a valid message.
    """
    if content is None:
        cut = "; its message to the server is too large" if of.truncated else ""
        raise GraderFailed((of.error or f"the grader ended without a reward ({of.outcome})") + cut)
    try:
        message = _Message.model_validate(parse_json(content))
    except (ValidationError, ValueError, RecursionError):
        raise GraderFailed("the grader's message to the server is malformed") from None
    if (message.reward is None) == (message.question is None):
        raise GraderFailed("the grader's message to the server is malformed")
    return message


async def _answer(question: Mapping[str, Any], *, sandbox: Sandbox) -> Mapping[str, Any]:
    """Run a program that a grader requested, and return its result."""
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
            return _sample_result(content, of=result)
        case _:
            raise GraderFailed("the grader's request to run a program is malformed")


def _sample_result(content: bytes | None, *, of: ExecResult) -> Mapping[str, Any]:
    """Return the result of the sample's code. A program without a result is an error that the grader may catch."""
    try:
        if content is not None:
            return _SampleResult.model_validate(parse_json(content), strict=False).model_dump(mode="json")
    except (ValidationError, ValueError, RecursionError):
        pass
    kinds = {Outcome.TIMEOUT: "TimeoutError", Outcome.OOM: "MemoryError"}
    message = of.error or "the code of the sample ended its process, or its result is too large"
    return {"error": [kinds.get(of.outcome, "RuntimeError"), message]}


@cache
def _program(name: str) -> str:
    folder = resources.files("tirjudge_server.openai.apart")
    return "".join(folder.joinpath(file).read_text(encoding="utf-8") for file in ("literals.py", name))


def _imports_of(source: str) -> str:
    """Return the source of an uncalled function that imports the same packages as the grader.

    The sandbox reads the imports in a program's text to choose an interpreter that has already loaded these packages.
    """
    names = dict.fromkeys(_imported(source))
    return "\n\ndef _imports():\n    pass\n" + "".join(f"    import {name}\n" for name in names)


def _imported(source: str) -> Iterator[str]:
    for line in source.splitlines():
        words = line.split(maxsplit=2)
        if len(words) > 1 and words[0] in ("import", "from"):
            name = words[1].partition(".")[0].rstrip(",;")
            if name.isidentifier() and name.isascii():
                yield name
