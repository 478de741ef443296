"""Code for a request: hostile texts and addresses stay inside their literals."""

from __future__ import annotations

import ast
import json
import shlex

import pytest

from tirjudge.types import JudgeRequest
from tirjudge_pages.snippets import MAX_CODE_CHARS, code_of

TEXTS = ["'''\"\"\"\\", "\nEOF\n$(id) `id`", "\u202e\u2028\x1b[0m\x00 é 名", "{x}%s", "'; echo \"", ""]


def codes(request: JudgeRequest, *, url: str = "http://h:1", needs_key: bool = False) -> list[str]:
    code = code_of(request, url=url, model="m", needs_key=needs_key)
    return [snippet.code or "" for snippet in code.snippets]


def request_of(text: str) -> JudgeRequest:
    return JudgeRequest.model_validate(
        {"mode": "pointwise", "prompt": text, "responses": [text], "rubric": text, "criteria": [{"text": f"c{text}"}]}
    )


def literals_of(code: str) -> list[object]:
    """All dictionaries of a program whose values are literals."""
    return [ast.literal_eval(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Dict)]


@pytest.mark.parametrize("text", TEXTS)
def test_code_has_the_request_and_is_ascii(text: str) -> None:
    request = request_of(text)
    curl, python, openai = codes(request)
    assert (curl + python + openai).isascii()
    command, _, rest = curl.partition("\n")
    body, end, after = rest.rpartition("\nEOF\n")
    assert (end, after) == ("\nEOF\n", "")
    assert "EOF" not in body.splitlines()
    assert JudgeRequest.model_validate(json.loads(body)) == request
    assert command.endswith("<<'EOF'")
    assert JudgeRequest.model_validate(literals_of(python)[0]) == request
    chat = literals_of(openai)
    judge = next(each["judge"] for each in chat if isinstance(each, dict) and "judge" in each)
    message = next(each for each in chat if isinstance(each, dict) and "role" in each)
    assert JudgeRequest.model_validate({**judge, "prompt": message["content"]}) == request


@pytest.mark.parametrize("host", ["h'; id; '", 'h"$(id)`id`', "h\u202e", "h\\"])
def test_the_address_stays_inside_its_literal(host: str) -> None:
    curl, python, openai = codes(request_of("p"), url=f"http://{host}")
    words = shlex.split(curl.partition("\n")[0])
    assert words[:2] == ["curl", "-sS"]
    assert words[2].endswith("/v1/judge")
    assert words[3:] == ["-H", "content-type: application/json", "--data", "@-", "<<EOF"]
    for code in (python, openai):
        texts = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
        assert any(isinstance(text, str) and text.startswith(f"http://{host}") for text in texts)


def test_the_key_comes_from_the_environment() -> None:
    assert all("TIRJUDGE_API_KEY" in code for code in codes(request_of("p"), needs_key=True))
    assert not any("TIRJUDGE_API_KEY" in code for code in codes(request_of("p")))


def test_long_requests_have_no_code() -> None:
    code = code_of(request_of("x" * MAX_CODE_CHARS), url="http://h", model="m", needs_key=False)
    assert [snippet.code for snippet in code.snippets] == [None, None, None]
