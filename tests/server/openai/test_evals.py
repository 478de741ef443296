"""OpenAI's client against `/v1/evals`: definitions, runs, output items, every criterion, pages, cancellation and errors."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError, ConflictError, NotFoundError, OpenAI, RateLimitError

from tests.server.openai.evals import (
    CONFIG,
    EQUAL,
    PYTHON,
    create,
    ended,
    finished,
    inline,
    items_of,
    jsonl,
    row,
    start,
)
from tirjudge_server import jobs
from tirjudge_server.evals import routes, store
from tirjudge_server.openai.filestore import FileQuota

SIMILAR = {
    "type": "text_similarity",
    "name": "similar",
    "input": "{{ sample.output_text }}",
    "reference": "{{ item.answer }}",
    "evaluation_metric": "fuzzy_match",
    "pass_threshold": 0.6,
}
SCORE = {
    "type": "score_model",
    "name": "score",
    "model": "judge",
    "input": [{"role": "user", "content": "{{ item.question }}?"}],
    "range": [1, 10],
}
LABEL = {
    "type": "label_model",
    "name": "label",
    "model": "judge",
    "input": [{"role": "user", "content": "Is this right? {{ item.question }} = {{ sample.output_text }}"}],
    "labels": ["right", "wrong"],
    "passing_labels": ["right"],
}


async def test_an_eval_is_created_changed_listed_and_deleted(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        made = await create(client, EQUAL, name="sums", metadata={"team": "a"})
        assert (made.object, made.name, made.metadata) == ("eval", "sums", {"team": "a"})
        assert made.testing_criteria[0].to_dict() == EQUAL
        assert made.data_source_config.to_dict()["schema"]["properties"]["item"] == CONFIG["item_schema"]
        assert set(made.data_source_config.to_dict()["schema"]["required"]) == {"item", "sample"}
        changed = await client.evals.update(made.id, name="more sums")
        assert (changed.name, changed.metadata) == ("more sums", {"team": "a"})
        assert (await client.evals.retrieve(made.id)).to_dict() == changed.to_dict()
        second = await create(client, EQUAL)
        assert [each.id async for each in client.evals.list(limit=1)] == [made.id, second.id]
        assert [each.id async for each in client.evals.list(order="desc")] == [second.id, made.id]
        by_update = [each.id async for each in client.evals.list(order_by="updated_at", order="desc")]
        assert set(by_update) == {made.id, second.id}
        deleted = await client.evals.delete(made.id)
        assert (deleted.deleted, deleted.eval_id, deleted.object) == (True, made.id, "eval.deleted")
        with pytest.raises(NotFoundError, match="not found"):
            await client.evals.retrieve(made.id)


async def test_a_run_grades_rows_and_counts_them(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        made = await create(client, EQUAL, SIMILAR)
        rows = [row(1), row(2, right=False), row(10, right=False)]
        run = await start(client, made.id, inline(rows), name="first", metadata={"a": "b"})
        assert (run.object, run.status, run.eval_id, run.name) == ("eval.run", "queued", made.id, "first")
        done = await ended(client, run)
        items = await items_of(client, done)
    assert done.status == "completed"
    assert done.error is None
    assert done.metadata == {"a": "b"}
    assert [each.to_dict() for each in done.data_source.source.content] == rows
    assert done.result_counts.to_dict() == {"total": 3, "passed": 1, "failed": 2, "errored": 0}
    # "10" and "11" are similar to 0.5, which is below the threshold of 0.6.
    assert [each.to_dict() for each in done.per_testing_criteria_results] == [
        {"testing_criteria": "equal", "passed": 1, "failed": 2, "errored": 0},
        {"testing_criteria": "similar", "passed": 1, "failed": 2, "errored": 0},
    ]
    assert [item.status for item in items] == ["pass", "fail", "fail"]
    assert [item.datasource_item_id for item in items] == [0, 1, 2]
    assert items[0].datasource_item == rows[0]["item"]
    assert items[2].results[1].to_dict() == {
        "name": "similar",
        "type": "text-similarity-grader",
        "passed": False,
        "score": 0.5,
        "sample": None,
    }
    assert items[0].sample.output[0].content == "2"
    assert (items[0].run_id, items[0].eval_id, items[0].object) == (done.id, made.id, "eval.run.output_item")


async def test_rows_come_from_an_uploaded_file(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        file = await client.files.create(file=("rows.jsonl", jsonl([row(1), row(2, right=False)])), purpose="evals")
        assert file.purpose == "evals"
        source = {"type": "jsonl", "source": {"type": "file_id", "id": file.id}}
        run, items = await finished(client, source, EQUAL)
        # The rows were copied, so the file may be deleted.
        assert (await client.files.delete(file.id)).deleted
        assert [item.status for item in items] == ["pass", "fail"]
        assert run.data_source.source.id == file.id
        with pytest.raises(NotFoundError):
            await start(client, run.eval_id, source)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (jsonl([row(1), {"item": {"question": "x"}}]), "line 2: item: 'answer' is a required property"),
        (jsonl([row(1), {"item": {"question": "x", "answer": 3}}]), "line 2: item: answer: 3 is not of type 'string'"),
        (jsonl([row(1)]) + b"{", "line 2: not JSON"),
        (b'{"sample": {}}\n', "line 1: item: not given"),
        (b"\n", "the file has no rows"),
        (b'{"item": ' + b"[" * 50_000 + b"]" * 50_000 + b"}\n", "line 1"),
    ],
)
async def test_a_file_with_an_invalid_row_fails_the_run_and_names_the_row(
    make_judge, client_of, content, problem
) -> None:
    async with client_of(make_judge([])) as client:
        file = await client.files.create(file=("rows.jsonl", content), purpose="evals")
        run, items = await finished(client, {"type": "jsonl", "source": {"type": "file_id", "id": file.id}}, EQUAL)
    assert run.status == "failed"
    assert run.error.code == "invalid_row"
    assert problem in run.error.message
    assert items == []


async def test_an_invalid_inline_row_is_refused_with_its_number(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        made = await create(client, EQUAL)
        with pytest.raises(BadRequestError, match="row 2: item: 'answer' is a required property") as caught:
            await start(client, made.id, inline([row(1), {"item": {"question": "x"}}]))
        assert caught.value.code == "invalid_row"
        with pytest.raises(BadRequestError, match="no rows"):
            await start(client, made.id, inline([]))
        assert [run async for run in client.evals.runs.list(made.id)] == []


async def test_a_python_criterion_runs_in_the_sandbox(make_tool_judge, client_of) -> None:
    fails = {"type": "python", "name": "fails", "source": "def grade(sample, item):\n    return 1 / 0"}
    async with client_of(make_tool_judge([])) as client:
        run, items = await finished(client, inline([row(1), row(2, right=False)]), PYTHON, fails)
    assert [item.results[0].passed for item in items] == [True, False]
    assert [item.status for item in items] == ["error", "error"]
    error = items[0].results[1].to_dict()["error"]
    assert error["code"] == "python_grader_runtime_error"
    assert "ZeroDivisionError" in error["message"]
    assert run.result_counts.to_dict() == {"total": 2, "passed": 0, "failed": 0, "errored": 2}
    assert run.per_testing_criteria_results[1].to_dict()["errored"] == 2


async def test_model_criteria_use_the_judge_and_carry_the_id_of_the_judgment(make_judge, client_of) -> None:
    def writes(sequence: str) -> str:
        if "\nright\n" not in sequence:
            return "<score>7</score>"
        right_first = sequence.index("\nright\n") < sequence.index("\nwrong\n")
        return f"<preference>{'A' if right_first else 'B'}</preference>"

    service = make_judge(writes)
    seen: list[tuple[str, Any]] = []
    service.on_end.append(lambda request, call, outcome: seen.append((outcome.id, call)))
    async with client_of(service) as client:
        run, items = await finished(client, inline([row(1)]), SCORE, {**SCORE, "pass_threshold": 9}, LABEL)
    score, strict, label = items[0].results
    assert (score.passed, strict.passed, label.passed) == (True, False, True)
    assert (score.name, strict.name) == ("score", "score (2)")
    assert score.score == pytest.approx(0.9 * 7 + 0.1 * 3, abs=0.01)
    assert label.sample["output"] == [{"role": "assistant", "content": "right"}]
    ids = [result.to_dict()["judgment_ids"][0] for result in items[0].results]
    # The second criterion asks the same as the first, but each criterion is one call with its own key.
    assert set(ids) == {judgment_id for judgment_id, _ in seen}
    assert {call.dialect for _, call in seen} == {"openai.evals"}
    (usage,) = run.per_model_usage
    assert usage.to_dict()["model_name"] == "judge"
    assert usage.invocation_count == 3
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0


async def test_a_score_model_judges_the_last_message_of_a_row_without_a_sample(make_judge, client_of) -> None:
    service = make_judge(["<score>7</score>"] * 2)
    messages = [
        {"role": "user", "content": "{{ item.question }}"},
        {"role": "assistant", "content": "{{ item.answer }}"},
    ]
    rows = [{"item": row(41)["item"]}]
    async with client_of(service) as client:
        _, items = await finished(client, inline(rows), {**SCORE, "input": messages}, SCORE)
    judged, alone = items[0].results
    prompt = service.judge.engine.tokenizer.decode(service.judge.engine.calls[0][0])
    assert "41 + 1" in prompt
    assert "42" in prompt
    assert judged.score > 1
    assert alone.to_dict()["error"]["code"] == "invalid_variable_error"


async def test_a_multi_criterion_combines_its_parts(make_tool_judge, client_of) -> None:
    multi = {
        "type": "multi",
        "name": "both",
        "graders": {"equal": EQUAL, "program": PYTHON},
        "calculate_output": "0.25 * equal + 0.5 * program",
        "pass_threshold": 0.7,
    }
    async with client_of(make_tool_judge([])) as client:
        run, items = await finished(client, inline([row(1), row(1, right=False)]), multi)
    assert [item.results[0].score for item in items] == [0.75, 0.0]
    assert [item.status for item in items] == ["pass", "fail"]
    assert items[0].results[0].to_dict()["sub_scores"] == {"equal": 1.0, "program": 1.0}
    assert run.per_testing_criteria_results[0].passed == 1


@pytest.mark.parametrize(
    ("criterion", "low", "high"),
    [({**PYTHON, "source": "def grade(sample, item):\n    return item['n']"}, 0.49, 0.5)],
)
async def test_without_a_threshold_the_middle_of_the_scale_passes(
    make_tool_judge, client_of, criterion, low, high
) -> None:
    config = {"type": "custom", "item_schema": {}}
    async with client_of(make_tool_judge([])) as client:
        rows = [{"item": {"n": low}}, {"item": {"n": high}}]
        _, items = await finished(client, inline(rows), criterion, config=config)
    assert [item.status for item in items] == ["fail", "pass"]


async def test_output_items_are_filtered_ordered_and_paged(make_judge, client_of) -> None:
    rows = [row(number, right=number % 3 == 0) for number in range(25)]
    async with client_of(make_judge([])) as client:
        run, items = await finished(client, inline(rows), EQUAL)
        assert [item.datasource_item_id for item in items] == list(range(25))
        passed = await items_of(client, run, status="pass", limit=2)
        assert [item.datasource_item_id for item in passed] == list(range(0, 25, 3))
        newest = await items_of(client, run, order="desc", status="fail", limit=7)
        assert [item.datasource_item_id for item in newest] == [n for n in range(24, -1, -1) if n % 3]
        page = await client.evals.runs.output_items.list(run.id, eval_id=run.eval_id, limit=10)
        assert (len(page.data), page.has_more) == (10, True)
        item = await client.evals.runs.output_items.retrieve(items[7].id, eval_id=run.eval_id, run_id=run.id)
        assert item.to_dict() == items[7].to_dict()
        for wrong in ("outputitem_x", f"{items[0].id}99", items[0].id.replace("_0", "_99")):
            with pytest.raises(NotFoundError):
                await client.evals.runs.output_items.retrieve(wrong, eval_id=run.eval_id, run_id=run.id)
        with pytest.raises(BadRequestError, match="after"):
            await client.evals.runs.output_items.list(run.id, eval_id=run.eval_id, after="outputitem_x")
        with pytest.raises(BadRequestError, match="limit"):
            await client.evals.runs.output_items.list(run.id, eval_id=run.eval_id, limit=101)


async def test_runs_are_listed_by_status_and_deleted(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        first, _ = await finished(client, inline([row(1)]), EQUAL)
        second = await ended(client, await start(client, first.eval_id, inline([row(2)])))
        listed = [run.id async for run in client.evals.runs.list(first.eval_id, limit=1)]
        assert listed == [first.id, second.id]
        newest = [run.id async for run in client.evals.runs.list(first.eval_id, order="desc", status="completed")]
        assert newest == [second.id, first.id]
        assert [run async for run in client.evals.runs.list(first.eval_id, status="failed")] == []
        deleted = await client.evals.runs.delete(first.id, eval_id=first.eval_id)
        assert (deleted.deleted, deleted.run_id, deleted.object) == (True, first.id, "eval.run.deleted")
        with pytest.raises(NotFoundError):
            await client.evals.runs.retrieve(first.id, eval_id=first.eval_id)


async def test_a_canceled_run_keeps_its_graded_rows(make_held_judge, client_of, until) -> None:
    service, engine = make_held_judge(lambda sequence: "<score>7</score>", max_concurrency=1)
    async with client_of(service) as client:
        made = await create(client, SCORE)
        run = await start(client, made.id, inline([row(number) for number in range(10)]))
        engine.allow(4)
        await until(lambda: engine.num_held == 1)
        canceled = await client.evals.runs.cancel(run.id, eval_id=made.id)
        assert canceled.status == "canceled"
        await until(lambda: engine.num_held == 0)
        items = await items_of(client, run)
        with pytest.raises(ConflictError) as caught:
            await client.evals.runs.cancel(run.id, eval_id=made.id)
        found = await client.evals.runs.retrieve(run.id, eval_id=made.id)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert found.status == "canceled"
    assert 0 < len(items) < 10
    assert found.result_counts.total == len(items)


async def test_a_canceled_run_that_waits_is_not_run(make_held_judge, client_of, until, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "MAX_ACTIVE", 1)
    service, engine = make_held_judge(lambda sequence: "<score>7</score>", max_concurrency=1)
    async with client_of(service) as client:
        made = await create(client, SCORE)
        first = await start(client, made.id, inline([row(number) for number in range(3)]))
        await until(lambda: engine.num_held == 1)
        second = await start(client, made.id, inline([row(number) for number in range(10, 20)]))
        assert (await client.evals.runs.cancel(second.id, eval_id=made.id)).status == "canceled"
        third = await start(client, made.id, inline([row(number) for number in range(20, 23)]))
        engine.allow(20)
        assert (await ended(client, first)).result_counts.total == 3
        assert (await ended(client, third)).result_counts.total == 3
        assert (await ended(client, second)).result_counts.total == 0
    assert sum(sampling.allowed_token_ids is None for _, sampling, _ in engine.calls) == 6


async def test_a_caller_has_a_limited_number_of_unfinished_runs(make_held_judge, client_of) -> None:
    service, _ = make_held_judge([], max_concurrency=1)
    async with client_of(service, quota=FileQuota(num_batches=2, num_ended_batches=3)) as client:
        made = await create(client, SCORE)
        started = [await start(client, made.id, inline([row(1)])) for _ in range(2)]
        with pytest.raises(RateLimitError, match="2 runs are unfinished, the limit is 2"):
            await start(client, made.id, inline([row(1)]))
        for run in started:
            await client.evals.runs.cancel(run.id, eval_id=made.id)
        await start(client, made.id, inline([row(1)]))
        with pytest.raises(RateLimitError, match="3 runs are stored"):
            await start(client, made.id, inline([row(1)]))
        await client.evals.runs.delete(started[0].id, eval_id=made.id)
        await start(client, made.id, inline([row(1)]))


async def test_rows_and_results_count_as_files(make_judge, client_of) -> None:
    async with client_of(make_judge([]), quota=FileQuota(num_bytes=3000)) as client:
        run, _ = await finished(client, inline([row(1), row(2)]), EQUAL)
        with pytest.raises(APIStatusError, match="of 3,000 bytes are used") as caught:
            await start(client, run.eval_id, inline([row(number) for number in range(100)]))
        assert caught.value.status_code == 413
        with pytest.raises(APIStatusError, match="of 3,000 bytes are used"):
            await client.files.create(file=("rows.jsonl", b"x" * 2800), purpose="evals")
        await client.evals.runs.delete(run.id, eval_id=run.eval_id)
        file = await client.files.create(file=("rows.jsonl", jsonl([row(n) for n in range(25)])), purpose="evals")
        full = await ended(client, await start(client, run.eval_id, {"type": "jsonl", "source": file_of(file)}))
    assert (full.status, full.error.code) == ("failed", "storage_quota_exceeded")


def file_of(file: Any) -> dict[str, str]:
    return {"type": "file_id", "id": file.id}


async def test_a_deleted_eval_ends_its_runs(make_held_judge, client_of, until) -> None:
    service, engine = make_held_judge(lambda sequence: "<score>7</score>", max_concurrency=1)
    async with client_of(service) as client:
        made = await create(client, SCORE)
        await start(client, made.id, inline([row(number) for number in range(10)]))
        await until(lambda: engine.num_held == 1)
        await client.evals.delete(made.id)
        await until(lambda: engine.num_held == 0)
        assert [each async for each in client.evals.list()] == []


async def test_a_restarted_server_continues_after_the_graded_rows(
    make_judge, make_held_judge, client_of, until, tmp_path
) -> None:
    service, engine = make_held_judge(lambda sequence: "<score>7</score>", max_concurrency=1)
    async with client_of(service, folder=tmp_path) as client:
        made = await create(client, SCORE)
        run = await start(client, made.id, inline([row(number) for number in range(10)]))
        engine.allow(3)
        async with asyncio.timeout(60):
            while len(before := await items_of(client, run)) < 3:  # noqa: ASYNC110 (the server is asked)
                await asyncio.sleep(0.01)
    again = make_judge(lambda sequence: "<score>7</score>")
    async with client_of(again, folder=tmp_path) as client:
        done = await ended(client, run)
        items = await items_of(client, run)
    assert done.status == "completed"
    assert done.result_counts.passed == len(items) == 10
    assert [item.to_dict() for item in items[:3]] == [item.to_dict() for item in before]
    judged = sum(sampling.allowed_token_ids is None for _, sampling, _ in again.judge.engine.calls)
    assert judged == 7


async def test_results_of_equal_rows_are_kept(make_tool_judge, client_of) -> None:
    source = "import random\ndef grade(sample, item):\n    return random.random()"
    async with client_of(make_tool_judge([])) as client:
        grader = {**PYTHON, "source": source}
        first, items = await finished(client, inline([row(1), row(2)]), grader)
        second = await ended(client, await start(client, first.eval_id, inline([row(2), row(3)])))
        again = await items_of(client, second)
    scores = [item.results[0].score for item in items]
    assert again[0].results[0].score == scores[1]
    assert again[1].results[0].score not in scores


@pytest.mark.parametrize(
    ("criterion", "problem"),
    [
        ({**SCORE, "model": "gpt-none"}, 'testing_criteria.0.model: "gpt-none" given; models of this server: judge'),
        ({**EQUAL, "operation": "same"}, "testing_criteria.0.operation"),
        ({**EQUAL, "input": "{{ other.x }}"}, "expected: `item` or `sample`"),
        ({"type": "poem", "name": "x"}, "testing_criteria.0"),
        ({**SIMILAR, "evaluation_metric": "meteor"}, "evaluation_metric"),
    ],
)
async def test_an_invalid_criterion_is_refused(make_judge, client_of, criterion, problem) -> None:
    async with client_of(make_judge([])) as client:
        with pytest.raises((BadRequestError, NotFoundError)) as caught:
            await create(client, criterion)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"type": "custom", "item_schema": {"type": "nonsense"}}, "not a JSON Schema"),
        ({"type": "custom", "item_schema": {"$ref": "#/const", "const": "x"}}, "item_schema: $ref: '#/const' given"),
        ({"type": "custom"}, "item_schema: not given"),
        ({"type": "table"}, "data_source_config"),
    ],
)
async def test_an_invalid_data_source_is_refused(make_judge, client_of, config, problem) -> None:
    async with client_of(make_judge([])) as client:
        with pytest.raises(BadRequestError) as caught:
            await create(client, EQUAL, config=config)
    assert problem in str(caught.value)


async def test_a_run_of_an_older_eval_with_an_invalid_schema_is_refused(make_judge, client_of, monkeypatch) -> None:
    config = {"type": "custom", "item_schema": {"$ref": "#/const", "const": "x"}}
    async with client_of(make_judge([])) as client:
        with monkeypatch.context() as patched:
            patched.setattr(routes, "schema_of", lambda config: None)
            made = await create(client, EQUAL, config=config)
        with pytest.raises(BadRequestError, match=r"item_schema: \$ref: '#/const' given"):
            await start(client, made.id, inline([row(1)]))


async def test_a_caller_has_a_limited_number_of_evals(make_judge, client_of, monkeypatch) -> None:
    monkeypatch.setattr(store, "MAX_EVALS", 2)
    async with client_of(make_judge([])) as client:
        for _ in range(2):
            await create(client, EQUAL)
        with pytest.raises(RateLimitError, match="2 evals are stored") as caught:
            await create(client, EQUAL)
    assert caught.value.response.headers["x-should-retry"] == "false"


def walk_through(url: str) -> tuple[Any, list[Any]]:
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        made = client.evals.create(name="sums", data_source_config=CONFIG, testing_criteria=[EQUAL])  # type: ignore
        file = client.files.create(file=("rows.jsonl", jsonl([row(1), row(2, right=False)])), purpose="evals")
        source: Any = {"type": "jsonl", "source": {"type": "file_id", "id": file.id}}
        run = client.evals.runs.create(made.id, data_source=source)
        while run.status in ("queued", "in_progress"):
            time.sleep(0.01)
            run = client.evals.runs.retrieve(run.id, eval_id=made.id)
        return run, list(client.evals.runs.output_items.list(run.id, eval_id=made.id))


async def test_the_synchronous_client_walks_through(make_judge, served, tmp_path) -> None:
    async with served(make_judge([]), folder=tmp_path) as url:
        run, items = await asyncio.to_thread(walk_through, url)
    assert run.status == "completed"
    assert [item.status for item in items] == ["pass", "fail"]


async def test_objects_are_those_of_the_types_of_the_client(make_tool_judge, client_of) -> None:
    """The client itself does not validate what it receives."""
    async with client_of(make_tool_judge([])) as client:
        run, items = await finished(client, inline([row(1)]), EQUAL, SIMILAR, PYTHON)
        made = await client.evals.retrieve(run.eval_id)
    without_error = {**run.to_dict(), "error": {"code": "", "message": ""}}  # null without an error, against the types
    type(run).model_validate(without_error, strict=True)
    type(made).model_validate(made.to_dict(), strict=True)
    item = items[0].to_dict()
    item["sample"]["error"] = without_error["error"]
    type(items[0]).model_validate(item, strict=True)


async def test_hostile_names_and_rows_are_shown_again(make_judge, client_of) -> None:
    odd = {"item": {"question": "\ud800", "answer": "\u0000"}, "sample": {"output_text": "\u0000"}}
    async with client_of(make_judge([])) as client:
        assert isinstance(client, AsyncOpenAI)
        made = await create(client, EQUAL)
        body = b'{"data_source": ' + jsonl([inline([odd])])[:-1] + b"}"
        headers = {"content-type": "application/json"}
        run = await client.post(f"/evals/{made.id}/runs", content=body, options={"headers": headers}, cast_to=object)
        assert isinstance(run, dict)
        found = await client.evals.runs.retrieve(run["id"], eval_id=made.id)
        done = await ended(client, found)
        items = await items_of(client, done)
    assert [item.status for item in items] == ["pass"]
