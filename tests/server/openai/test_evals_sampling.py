"""Runs whose samples a chat endpoint writes, and criteria with models besides the judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from tests.chat_server import ChatServer, serving_chat
from tests.server.openai.evals import EQUAL, PYTHON, create, ended, finished, inline, items_of, row, start
from tests.servers import serve_async
from tirjudge_server.chat_models import ChatModels, open_chat_models
from tirjudge_server.cost import CostLimits
from tirjudge_server.evals import routes as eval_routes
from tirjudge_server.openai import routes
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records
from tirjudge_server.settings import OptionsClash

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
TEMPLATE = {
    "type": "template",
    "template": [
        {"role": "developer", "content": "Answer with a number."},
        {"role": "user", "content": {"type": "input_text", "text": "{{ item.question }}"}},
    ],
}


def answers(conversation: str) -> str:
    """Compute the sum at the end of a conversation."""
    return str(sum(int(word) for word in conversation.rsplit(":", 1)[1].split() if word.isdecimal()))


def sampled(rows: Any, *, kind: str = "completions", **others: Any) -> dict[str, Any]:
    return inline(rows, **{"model": "small", "input_messages": TEMPLATE, **others, "type": kind})


@pytest.fixture
def with_models(client_of: Callable[..., Any]) -> Callable[..., Any]:
    """Connects a client to a server with the model `small`."""

    @asynccontextmanager
    async def connected(service: Any, chat: ChatServer, **options: Any):
        async with (
            open_chat_models([f"small={chat.url}"], keys=["small=secret"]) as models,
            client_of(service, models=models, **options) as client,
        ):
            yield client

    return connected


@pytest.mark.parametrize("kind", ["completions", "responses"])
async def test_a_model_writes_the_samples(make_judge, with_models, kind) -> None:
    rows = [{"item": row(1)["item"]}, {"item": {"question": "5 + 1", "answer": "7"}}]
    params = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "max_completion_tokens": 16}
    with serving_chat(answers, usage=USAGE) as chat:
        async with with_models(make_judge([]), chat) as client:
            run, items = await finished(client, sampled(rows, kind=kind, sampling_params=params), EQUAL)
    assert (run.status, run.model) == ("completed", "small")
    assert [item.status for item in items] == ["pass", "fail"]
    sample = items[0].sample.to_dict()
    assert sample["input"] == [
        {"role": "system", "content": "Answer with a number."},
        {"role": "user", "content": "1 + 1"},
    ]
    assert sample["output"] == [{"role": "assistant", "content": "2"}]
    assert {name: sample[name] for name in params} == params
    assert sample["usage"] == {"total_tokens": 7, "completion_tokens": 2, "prompt_tokens": 5, "cached_tokens": 1}
    assert [usage.to_dict() for usage in run.per_model_usage] == [
        {
            "model_name": "small",
            "invocation_count": 2,
            "prompt_tokens": 10,
            "completion_tokens": 4,
            "total_tokens": 14,
            "cached_tokens": 2,
        }
    ]
    sent = chat.bodies[0]
    assert {name: sent[name] for name in ("temperature", "top_p", "seed", "max_tokens")} == {
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "max_tokens": 16,
    }
    assert "logprobs" not in sent
    assert chat.headers[0]["authorization"] == "Bearer secret"


async def test_messages_come_from_the_item(make_judge, with_models) -> None:
    messages = [{"role": "user", "content": "What is {{ this }}? 2 + 1"}]
    reference = {"type": "item_reference", "item_reference": "item.history"}
    rows = [{"item": {**row(2)["item"], "history": messages}}, {"item": {**row(2)["item"], "history": []}}]
    with serving_chat(lambda conversation: "3") as chat:
        async with with_models(make_judge([]), chat) as client:
            _, items = await finished(client, sampled(rows, input_messages=reference), EQUAL)
    # Braces in a row are plain text.
    assert chat.bodies[0]["messages"] == messages
    assert [item.status for item in items] == ["pass", "error"]
    assert "expected: a list of 1 to" in items[1].sample.error.message
    assert items[1].results == []


async def test_the_format_of_answers_is_passed_on_and_python_reads_json(make_tool_judge, with_models) -> None:
    schema = {"type": "json_schema", "name": "sum", "schema": {"type": "object"}}
    source = "def grade(sample, item):\n    return float(sample['output_json']['sum'] == 2)"
    with serving_chat(lambda conversation: '{"sum": 2}') as chat:
        async with with_models(make_tool_judge([]), chat) as client:
            data = sampled([row(1)], kind="responses", sampling_params={"text": {"format": schema}})
            _, items = await finished(client, data, {**PYTHON, "source": source})
    assert chat.bodies[0]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "sum", "schema": {"type": "object"}},
    }
    assert items[0].status == "pass"


async def test_rows_with_samples_are_graded_without_a_model(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        run, items = await finished(client, inline([row(1)], type="completions"), EQUAL)
    assert [item.status for item in items] == ["pass"]
    assert run.per_model_usage == []


@pytest.mark.parametrize(
    "params", [{"seed": False}, {"seed": "1"}, {"max_completion_tokens": True}, {"temperature": True}, {"top_p": "1"}]
)
async def test_sampling_parameters_of_another_type_are_refused(make_judge, client_of, params) -> None:
    (name,) = params
    async with client_of(make_judge([])) as client:
        made = await create(client, EQUAL)
        with pytest.raises(BadRequestError) as refused:
            await start(client, made.id, inline([row(1)], type="completions", sampling_params=params))
    assert refused.value.param == f"data_source.sampling_params.{name}"


@pytest.mark.parametrize("name", ["created_after", "created_before", "limit"])
async def test_a_bound_of_records_of_another_type_is_refused(make_judge, client_of, name) -> None:
    async with client_of(make_judge([])) as client:
        made = await create(client, EQUAL)
        source = {"type": "stored_completions", name: False}
        with pytest.raises(BadRequestError) as refused:
            await start(client, made.id, {"type": "completions", "source": source})
    assert refused.value.param == f"data_source.source.{name}"


@pytest.mark.slow
async def test_tools_and_unknown_models_are_refused_by_name(make_judge, with_models) -> None:
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
    search = {"type": "web_search"}
    with serving_chat(answers) as chat:
        async with with_models(make_judge([]), chat) as client:
            made = await create(client, EQUAL)
            with pytest.raises(BadRequestError, match='"get_weather" given; this server samples without tools'):
                await start(client, made.id, sampled([row(1)], sampling_params={"tools": [tool]}))
            with pytest.raises(BadRequestError, match='"web_search"'):
                await start(client, made.id, sampled([row(1)], kind="responses", sampling_params={"tools": [search]}))
            with pytest.raises(NotFoundError, match='"big" given; models of this server: small'):
                await start(client, made.id, sampled([row(1)], model="big"))
            with pytest.raises(BadRequestError, match="input_messages: not given"):
                await start(client, made.id, inline([row(1)], type="completions", model="small"))
            reference = {"type": "item_reference", "item_reference": "sample.x"}
            with pytest.raises(BadRequestError, match=r"input_messages\.item_reference"):
                await start(client, made.id, sampled([row(1)], input_messages=reference))
    assert chat.bodies == []


async def test_an_endpoint_that_refuses_one_row_fails_only_this_row(make_judge, with_models) -> None:
    def refuses(body: Mapping[str, Any]) -> tuple[int, Any] | None:
        if "2 + 1" in json.dumps(body["messages"]):
            return 400, {"error": {"message": "This content is not accepted.", "code": "invalid_prompt"}}
        return None

    with serving_chat(answers, refuses=refuses) as chat:
        async with with_models(make_judge([]), chat) as client:
            run, items = await finished(client, sampled([row(1), row(2), row(3)]), EQUAL)
    assert run.status == "completed"
    assert [item.status for item in items] == ["pass", "error", "pass"]
    assert "not accepted" in items[1].sample.error.message
    assert run.result_counts.to_dict() == {"total": 3, "passed": 2, "failed": 0, "errored": 1}


async def test_an_endpoint_that_refuses_every_row_fails_the_run(make_judge, with_models) -> None:
    refused = (401, {"error": {"message": "Incorrect API key provided: secret.", "code": "invalid_api_key"}})
    with serving_chat(answers, refuses=lambda body: refused) as chat:
        async with with_models(make_judge([]), chat) as client:
            run, items = await finished(client, sampled([row(number) for number in range(50)]), EQUAL)
    assert run.status == "failed"
    assert run.error.code == "engine_refused"
    assert "answered 401" in run.error.message
    assert "secret" not in run.error.message
    assert items == []
    assert len(chat.bodies) < 50


async def test_recorded_judgments_are_graded_and_their_prompts_answered_again(
    make_judge, client_of, tmp_path: Path
) -> None:
    service = make_judge(lambda sequence: "<score>7</score>", fingerprint="f" * 16)
    versions = versions_of(service.judge, fingerprint="f" * 16, isolation=None)
    judged = {"mode": "pointwise", "responses": ["red"], "tools": "off"}
    label = {**EQUAL, "input": "{{ sample.output_json.label }}", "reference": "7"}
    written = {**EQUAL, "reference": "blue"}
    source = {"type": "stored_completions", "model": "judge", "limit": 5}
    with serving_chat(lambda conversation: "blue") as chat:
        async with (
            open_records(str(tmp_path / "records.db"), versions=versions) as records,
            open_chat_models([f"small={chat.url}"]) as models,
            client_of(service, models=models, records=records) as client,
        ):
            service.records = records
            await client.chat.completions.create(
                model="judge", messages=[{"role": "user", "content": "Which colour?"}], extra_body={"judge": judged}
            )
            config = {"type": "stored_completions"}
            _, items = await finished(client, {"type": "completions", "source": source}, label, config=config)
            assert [item.status for item in items] == ["pass"]
            assert items[0].datasource_item["responses"] == ["red"]
            sampling = {"type": "completions", "source": source, "model": "small"}
            run, items = await finished(client, sampling, written, config={"type": "logs"})
            assert [item.status for item in items] == ["pass"]
            none = await ended(
                client, await start(client, run.eval_id, {**sampling, "source": {**source, "model": "other"}})
            )
            for filters in (
                {"metadata": {"a": "b"}},
                {"type": "responses", "instructions_search": "x"},
                {"temperature": 0},
            ):
                with pytest.raises(BadRequestError, match="the records of this server have no such field"):
                    await start(client, run.eval_id, {**sampling, "source": {**source, **filters}})
            made = await create(client, written, config={"type": "logs", "metadata": {"use": "chat"}})
            with pytest.raises(BadRequestError, match="the records of this server have no metadata"):
                await start(client, made.id, sampling)
    assert chat.bodies[0]["messages"] == [{"role": "user", "content": "Which colour?"}]
    assert (none.status, none.error.code) == ("failed", "no_rows")


SCORE = {
    "type": "score_model",
    "name": "score",
    "model": "small",
    "input": [{"role": "user", "content": "Grade {{ sample.output_text }} for {{ item.question }}."}],
    "range": [0, 5],
    "pass_threshold": 4,
}
LABEL = {
    "type": "label_model",
    "name": "label",
    "model": "small",
    "input": [{"role": "system", "content": "You label."}, {"role": "user", "content": "{{ sample.output_text }}"}],
    "labels": ["right", "wrong"],
    "passing_labels": ["right"],
}


async def test_another_model_scores_and_labels(make_judge, with_models) -> None:
    def writes(conversation: str) -> str:
        if "You label." in conversation:
            return '```json\n{"reasoning": "{...}", "result": "right"}\n```'
        return '{"reasoning": "nearly", "result": 4.5}'

    with serving_chat(writes, usage=USAGE) as chat:
        async with with_models(make_judge([]), chat) as client:
            run, items = await finished(client, inline([row(1)]), SCORE, LABEL)
            again = await ended(client, await start(client, run.eval_id, inline([row(1)])))
    score, label = items[0].results
    assert (score.score, score.passed, label.score, label.passed) == (4.5, True, 1.0, True)
    assert score.sample["model"] == "small"
    assert "judgment_ids" not in score.to_dict()
    first = chat.bodies[0]["messages"]
    assert first[0]["role"] == "system"
    assert "from 0 to 5" in first[0]["content"]
    assert first[1]["content"] == "Grade 2 for 1 + 1."
    assert (run.per_model_usage[0].invocation_count, run.per_model_usage[0].total_tokens) == (2, 14)
    # The second run has the same content, so the model is not asked again.
    assert len(chat.bodies) == 2
    assert again.result_counts.passed == 1
    assert again.per_model_usage == []


@pytest.mark.parametrize(
    "text", ["five", '{"result": "5"}', '{"result": 6}', '{"result": true}', "[" * 100_000, '{"result": NaN}', ""]
)
async def test_an_answer_without_a_valid_score_is_an_error(make_judge, with_models, text) -> None:
    with serving_chat(lambda conversation: text) as chat:
        async with with_models(make_judge([]), chat) as client:
            _, items = await finished(client, inline([row(1)]), SCORE)
    assert items[0].status == "error"
    assert items[0].results[0].to_dict()["error"]["code"] == "model_grader_parse_error"


async def test_a_grader_outside_of_evals_uses_the_model_too(make_judge) -> None:
    with serving_chat(lambda conversation: '{"result": 5}') as chat:
        async with open_chat_models([f"small={chat.url}"]) as models:
            app = FastAPI()
            app.include_router(routes.router(make_judge([]), max_body_bytes=100_000, models=models))
            async with serve_async(app) as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
                grader: Any = {name: SCORE[name] for name in SCORE if name != "pass_threshold"}
                result = await client.fine_tuning.alpha.graders.run(
                    grader=grader,
                    model_sample="2",
                    item=row(1)["item"],
                )
    assert result.reward == 5.0


@pytest.mark.parametrize(
    ("urls", "keys", "problem"),
    [
        (["http://127.0.0.1:1"], [], "NAME=URL"),
        (["=http://127.0.0.1:1"], [], "NAME=URL"),
        (["a=http://127.0.0.1:1", "a=http://127.0.0.1:2"], [], "given twice"),
        (["a=http://127.0.0.1:1"], ["b=key"], "'b' is not the NAME"),
    ],
)
async def test_invalid_endpoints_are_refused(urls, keys, problem) -> None:
    with pytest.raises(OptionsClash, match=problem):
        async with open_chat_models(urls, keys=keys) as models:
            assert isinstance(models, ChatModels)


async def test_hostile_rows_meet_the_limits_of_requests(make_judge, with_models) -> None:
    """A short template with a long row is as expensive as a long request."""
    many = {"type": "template", "template": [{"role": "user", "content": "{{ item.question }}" * 1000}]}
    long = {"item": {"question": "x" * 1000, "answer": "1"}, "sample": {"output_text": "1"}}
    deep = {"item": row(1)["item"], "sample": {"output_text": '{"a":' * 10_000}}
    wide = {"item": row(1)["item"], "sample": {"output_text": "[" + "0," * 90_000 + "0]"}}
    doubled = {**EQUAL, "input": "{{ item.question }}" * 1000}
    service = make_judge([], cost_limits=CostLimits(chars=100_000))
    with serving_chat(answers) as chat:
        async with with_models(service, chat) as client:
            _, items = await finished(client, sampled([long], input_messages=many), EQUAL)
            assert items[0].sample.error.code == "too_much_work"
            _, items = await finished(client, inline([long, row(1)]), doubled)
            assert [item.status for item in items] == ["error", "fail"]
            assert items[0].results[0].to_dict()["error"]["code"] == "too_much_work"
            _, items = await finished(client, inline([deep]), EQUAL)
            assert items[0].status == "fail", items[0].results
            _, items = await finished(client, inline([wide]), EQUAL)
            assert items[0].results[0].to_dict()["error"]["code"] == "too_much_work"
    assert chat.bodies == []


async def test_a_hostile_schema_costs_a_limited_number_of_steps(make_judge, client_of) -> None:
    twice = {
        f"a{depth}": {"allOf": [{"$ref": f"#/$defs/a{depth + 1}"}, {"$ref": f"#/$defs/a{depth + 1}"}]}
        for depth in range(60)
    }
    schema = {"$defs": {**twice, "a60": {}}, "$ref": "#/$defs/a0"}
    async with client_of(make_judge([])) as client:
        made = await create(client, EQUAL, config={"type": "custom", "item_schema": schema})
        with pytest.raises(BadRequestError, match="cannot be checked in 50000 steps"):
            await start(client, made.id, inline([row(1)]))
        large = {"type": "custom", "item_schema": {"enum": ["x" * 100_000]}}
        with pytest.raises(BadRequestError, match="65536"):
            await create(client, EQUAL, config=large)
        remote = {"type": "custom", "item_schema": {"$ref": "http://127.0.0.1:1/schema.json"}}
        with pytest.raises(BadRequestError, match="only references such as"):
            await create(client, EQUAL, config=remote)


async def test_all_items_of_a_large_run_are_paged_by_size(make_judge, client_of, monkeypatch) -> None:
    monkeypatch.setattr(eval_routes, "MAX_PAGE_CHARS", 1000)
    async with client_of(make_judge([])) as client:
        run, items = await finished(client, inline([row(number) for number in range(10)]), EQUAL)
        page = await client.evals.runs.output_items.list(run.id, eval_id=run.eval_id, limit=100)
        assert 1 <= len(page.data) < 10
        assert page.has_more
        assert [item.datasource_item_id for item in await items_of(client, run, limit=100)] == list(range(10))
        assert len(items) == 10
