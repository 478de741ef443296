"""A request as code for curl, Python and OpenAI's SDK. The code is ASCII: other characters are escapes of its language, so a
text of a stranger can neither end its literal nor reorder the code on the screen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tirjudge.types import JudgeRequest, prompt_text

KEY_VARIABLE = "TIRJUDGE_API_KEY"
"""Environment variable from which the code reads the API key."""

MAX_CODE_CHARS = 100_000
"""Maximum length of code on a page, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A request as code."""

    name: str
    """Name of the client."""
    id: str
    """Id of the element that shows the code."""
    code: str | None
    """The code. None: it is longer than `MAX_CODE_CHARS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCode:
    """A request as code for each client."""

    snippets: Sequence[Snippet]
    key_variable: str | None
    """Environment variable from which the code reads the API key. None: the server needs no key."""


def code_of(request: JudgeRequest, *, url: str, model: str, needs_key: bool) -> RequestCode:
    """Return code that sends a request. The code prints the judgment or its verdict.

    Args:
        request: The request.
        url: URL of the server, without a slash at the end.
        model: Name of the judge.
        needs_key: Whether the server needs an API key. The code reads it from the environment.
    """
    fields = request.model_dump(mode="json", exclude_defaults=True)
    made = {
        "curl": _curl(fields, url=url, needs_key=needs_key),
        "Python": _python(fields, url=url, needs_key=needs_key),
        "OpenAI SDK": _openai(request, fields, url=url, model=model, needs_key=needs_key),
    }
    snippets = [
        Snippet(name=name, id=f"code-{name.split()[0].lower()}", code=code if len(code) <= MAX_CODE_CHARS else None)
        for name, code in made.items()
    ]
    return RequestCode(snippets=snippets, key_variable=KEY_VARIABLE if needs_key else None)


def _curl(fields: dict[str, object], *, url: str, needs_key: bool) -> str:
    # In a quoted here-document the shell expands nothing. A line of the JSON begins with a brace, a bracket or a space.
    key = f' -H "authorization: Bearer ${KEY_VARIABLE}"' if needs_key else ""
    body = json.dumps(fields, indent=1)
    return f"curl -sS {_quoted(url + '/v1/judge')} -H 'content-type: application/json'{key} --data @- <<'EOF'\n{body}\nEOF\n"


def _quoted(text: str) -> str:
    """Return a URL between quotes of the shell. A URL has no quote: it is escaped."""
    return "'" + text.encode("ascii", "replace").decode().replace("'", "%27") + "'"


def _python(fields: dict[str, object], *, url: str, needs_key: bool) -> str:
    return (
        f"{_imports(needs_key)}from tirjudge import Client, JudgeRequest\n\n"
        f"request = JudgeRequest.model_validate({_literal(fields)})\n"
        f"with Client({url!a}{f', api_key={_KEY}' if needs_key else ''}) as client:\n"
        "    judgment = client.judge(request)\n"
        "print(judgment.model_dump_json(indent=1))\n"
    )


def _openai(request: JudgeRequest, fields: dict[str, object], *, url: str, model: str, needs_key: bool) -> str:
    message = {"role": "user", "content": prompt_text(request.prompt)}
    judge = {name: value for name, value in fields.items() if name != "prompt"}
    return (
        f"{_imports(needs_key)}from openai import OpenAI\n\n"
        f"client = OpenAI(base_url={url + '/v1'!a}, api_key={_KEY if needs_key else ascii('none')})\n"
        "answer = client.chat.completions.create(\n"
        f"    model={model!a},\n"
        f"    messages={_literal([message], indent=4)},\n"
        f"    extra_body={_literal({'judge': judge}, indent=4)},\n"
        ")\n"
        "print(answer.choices[0].message.content)\n"
    )


_KEY = f'os.environ["{KEY_VARIABLE}"]'


def _imports(needs_key: bool) -> str:
    return "import os\n\n" if needs_key else ""


def _literal(value: object, *, indent: int = 0) -> str:
    """Return a Python literal, with one line for each element."""
    inner = indent + 4
    match value:
        case dict():
            lines = [f"{key!a}: {_literal(item, indent=inner)}" for key, item in value.items()]
            opening, closing = "{", "}"
        case list():
            lines = [_literal(item, indent=inner) for item in value]
            opening, closing = "[", "]"
        case _:
            return ascii(value)
    body = "".join(f"{' ' * inner}{line},\n" for line in lines)
    return f"{opening}\n{body}{' ' * indent}{closing}"
