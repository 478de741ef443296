"""`/v1/models` and `/v1/completions`."""

from __future__ import annotations

import pytest
from openai import BadRequestError, NotFoundError

from tirjudge_server.app import create_app
from tirjudge_server.openai.routes import BATCH_REQUESTS, REQUESTS

SINGLE = (
    '[Instruction]\nRate the response by strictly following this format: "[[rating]]".\n\n[Question]\nSay hello.\n\n'
    "[The Start of Assistant's Answer]\nHello.\n[The End of Assistant's Answer]"
)


async def test_the_judge_is_listed_and_retrieved_by_name(make_judge, client_of) -> None:
    async with client_of(make_judge([], fingerprint="0123")) as client:
        listed = [model async for model in client.models.list()]
        found = await client.models.retrieve("judge")
        with pytest.raises(NotFoundError) as caught:
            await client.models.retrieve("other/model")
    assert listed == [found]
    assert found.id == "judge"
    assert found.owned_by == "tirjudge"
    assert found.fingerprint == "0123"  # type: ignore
    assert caught.value.code == "model_not_found"


@pytest.mark.slow
async def test_the_application_has_all_paths(make_judge, tmp_path) -> None:
    app = create_app(make_judge([]), files=tmp_path)
    paths = set(app.openapi()["paths"])
    assert {*REQUESTS, *BATCH_REQUESTS, "/v1/models/{model}", "/v1/files/{file_id}/content"} <= paths


async def test_a_judge_prompt_as_text_is_judged(make_judge, client_of) -> None:
    async with client_of(make_judge(["<score>7</score>"])) as client:
        answer = await client.completions.create(model="judge", prompt=SINGLE, max_tokens=16, temperature=0)
    assert answer.object == "text_completion"
    assert answer.choices[0].text == "Rating: [[7]]"
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0


async def test_a_streamed_completion_ends_with_done(make_judge, client_of) -> None:
    async with client_of(make_judge(["<score>7</score>"])) as client:
        stream = await client.completions.create(model="judge", prompt=SINGLE, stream=True)
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Rating: [[7]]"
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"prompt": "Yes or no?", "max_tokens": 1}, "prompt"),
        ({"prompt": SINGLE, "max_tokens": 1, "logprobs": 5}, "logprobs"),
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"prompt": SINGLE, "echo": True}, "echo"),
    ],
)
async def test_error_for_an_unsupported_completion_option_names_it(make_judge, client_of, options, param) -> None:
    async with client_of(make_judge([])) as client:
        with pytest.raises(BadRequestError) as caught:
            await client.completions.create(model="judge", **options)
    assert caught.value.param == param
