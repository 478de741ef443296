"""SIGKILL of `tirjudge serve` during a run of 2,000 rows, three times: each row is sampled and graded once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.server.openai.evals import CONFIG, EQUAL, items_of, jsonl, row
from tests.servers import serve_in_thread

pytestmark = pytest.mark.slow

NUM_ROWS = 2000
HANG_S = 300.0
"""Timeout of waits, which matters only if something hangs."""


class Counting:
    """A chat endpoint that answers a number of requests and holds all later ones.

    Attributes:
        answers: text of a request -> number of answers.
        num_allowed: number of requests that are still answered.
    """

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.num_allowed = 0

    async def complete(self, request: Request) -> JSONResponse:
        question = (await request.json())["messages"][0]["content"]
        while self.num_allowed == 0:
            await asyncio.sleep(0.01)  # released by another thread
            if await request.is_disconnected():
                return JSONResponse({})
        self.num_allowed -= 1
        self.answers[question] += 1
        text = str(int(question.split()[0]) + 1)
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice]})


async def test_a_server_killed_three_times_grades_each_row_once(start, random_checkpoint: Path, tmp_path: Path) -> None:
    counting = Counting()
    app = Starlette(routes=[Route("/v1/chat/completions", counting.complete, methods=["POST"])])
    with serve_in_thread(app) as chat_url:
        options = ["--model", str(random_checkpoint), "--records", "none", "--files", str(tmp_path / "files")]
        options += ["--max-concurrency", "8", "--sample-url", f"counting={chat_url}/v1"]
        server = await asyncio.to_thread(start, "serve", *options)
        eval_id, run_id = await begin(server.url)
        for num_done in (400, 1000, 1700):
            counting.num_allowed = num_done - sum(counting.answers.values())
            await wait_for(server.url, eval_id, run_id, num_rows=num_done)
            server.kill()
            server = await asyncio.to_thread(start, "serve", *options)
        counting.num_allowed = NUM_ROWS
        run, items = await wait_for(server.url, eval_id, run_id, num_rows=NUM_ROWS)
    assert run.status == "completed"
    assert run.result_counts.to_dict() == {"total": NUM_ROWS, "passed": NUM_ROWS, "failed": 0, "errored": 0}
    assert run.per_model_usage[0].invocation_count == NUM_ROWS
    assert sorted(counting.answers.values()) == [1] * NUM_ROWS
    assert [item.datasource_item_id for item in items] == list(range(NUM_ROWS))


async def begin(url: str) -> tuple[str, str]:
    """Create the eval and start its run. Return both ids."""
    template = {"type": "template", "template": [{"role": "user", "content": "{{ item.question }}"}]}
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        content = jsonl([{"item": row(number)["item"]} for number in range(NUM_ROWS)])
        file = await client.files.create(file=("rows.jsonl", content), purpose="evals")
        made = await client.evals.create(data_source_config=CONFIG, testing_criteria=[EQUAL])  # type: ignore
        source: Any = {"type": "completions", "model": "counting", "input_messages": template}
        source["source"] = {"type": "file_id", "id": file.id}
        run = await client.evals.runs.create(made.id, data_source=source)
    return made.id, run.id


async def wait_for(url: str, eval_id: str, run_id: str, *, num_rows: int) -> tuple[Any, list[Any]]:
    """Wait until a number of rows is graded, and return the run with its output items, if it has ended."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client, asyncio.timeout(HANG_S):
        while True:
            run = await client.evals.runs.retrieve(run_id, eval_id=eval_id)
            assert run.status in ("queued", "in_progress", "completed"), run.error
            if run.result_counts.total == num_rows and (num_rows < NUM_ROWS or run.status == "completed"):
                return run, await items_of(client, run, limit=100) if num_rows == NUM_ROWS else []
            await asyncio.sleep(0.05)
