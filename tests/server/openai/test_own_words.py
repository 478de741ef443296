"""Judge prompts of chats at a server with the format of another judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.servers import scripted_service
from tirjudge.control_tokens import FAMILIES
from tirjudge.formats import format_named
from tirjudge.profile import Profile
from tirjudge.prompt_messages import chat_of
from tirjudge.types import JudgeRequest
from tirjudge_server.app import create_app
from tirjudge_server.openai.own_words import own_rubrics

Connect = Callable[[Any], httpx2.AsyncClient]

PAIR = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"], "tools": "off"}
ONE = {"mode": "pointwise", "prompt": "Which is longer?", "responses": ["one"], "tools": "off"}


def prompt_of(format: str, **fields: Any) -> list[dict[str, str]]:
    """Return the messages that a client of this judge sends."""
    request = JudgeRequest.model_validate(fields)
    messages = format_named(format).render(
        request,
        order=range(len(request.responses)),
        tools=(),
        prompt_chars=10_000,
        response_chars=10_000,
        control_tokens=FAMILIES,
    )
    return chat_of(messages)


async def ask(
    connect: Connect, *, format: str, messages: list[dict[str, str]], text: str, **body: Any
) -> httpx2.Response:
    service = scripted_service(lambda prompt: text, profile=Profile(format=format), label_probs={"A": 0.5, "B": 0.5})
    async with connect(create_app(service)) as client:
        return await client.post("/v1/chat/completions", json={"model": "judge", "messages": messages, **body})


@pytest.mark.parametrize(
    ("format", "fields", "text", "content"),
    [
        ("mt-bench-pair", PAIR, "I compare. [[A]]", "[[A]]"),
        ("mt-bench-pair", PAIR | {"reference": "three"}, "[[C]]", "[[C]]"),
        ("mt-bench-single", ONE, "Rating: [[7]]", "Rating: [[7]]"),
        ("arena-hard", PAIR, "[[A>B]]", "[[A>B]]"),
    ],
)
async def test_a_prompt_in_the_words_of_the_served_format_is_judged(
    connect: Connect, format: str, fields: dict[str, Any], text: str, content: str
) -> None:
    response = await ask(connect, format=format, messages=prompt_of(format, **fields), text=text)
    assert response.status_code == 200, response.text
    answer = response.json()["choices"][0]["message"]["content"]
    # The order shown is drawn from the content, so the label may be that of the other response.
    assert answer in (content, content.translate(str.maketrans("AB", "BA")))


async def test_a_format_with_a_place_for_a_rubric_takes_other_instructions(connect: Connect) -> None:
    response = await ask(
        connect, format="prometheus-2", messages=prompt_of("mt-bench-pair", **PAIR), text="Feedback: good [RESULT] A"
    )
    assert response.status_code == 200, response.text


async def test_other_instructions_are_refused_with_the_reason(connect: Connect) -> None:
    response = await ask(connect, format="arena-hard", messages=prompt_of("mt-bench-pair", **PAIR), text="[[A>B]]")
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, "messages", "not_shown_by_format")
    assert "the pairwise prompt of the format arena-hard has no place for it" in error["message"]
    assert "Please act as an impartial judge" in error["message"]


async def test_an_explicit_rubric_is_refused_as_in_other_requests(connect: Connect) -> None:
    judge = {"mode": "pairwise", "responses": ["a", "b"], "rubric": "Short is good."}
    chat = [{"role": "user", "content": "Which?"}]
    response = await ask(connect, format="arena-hard", messages=chat, text="[[A>B]]", judge=judge)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("rubric: given, but")


def test_only_formats_with_prompts_of_clients_have_own_rubrics() -> None:
    assert len(own_rubrics(format_named("mt-bench-pair"))) == 2
    assert len(own_rubrics(format_named("arena-hard"))) == 1
    assert own_rubrics(format_named("prometheus-2")) == own_rubrics(format_named("tirjudge/2")) == frozenset()
