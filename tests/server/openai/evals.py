"""Evals for tests: definitions, rows, and the wait for the end of a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from openai import AsyncOpenAI

SCHEMA = {
    "type": "object",
    "properties": {"question": {"type": "string"}, "answer": {"type": "string"}},
    "required": ["question", "answer"],
}
CONFIG = {"type": "custom", "item_schema": SCHEMA, "include_sample_schema": True}
EQUAL = {
    "type": "string_check",
    "name": "equal",
    "input": "{{ sample.output_text }}",
    "reference": "{{ item.answer }}",
    "operation": "eq",
}
PYTHON = {
    "type": "python",
    "name": "program",
    "source": "def grade(sample, item):\n    return float(sample['output_text'] == item['answer'])",
}


def row(number: int, *, right: bool = True) -> dict[str, Any]:
    """Return a row whose sample is right or wrong."""
    item = {"question": f"{number} + 1", "answer": str(number + 1)}
    return {"item": item, "sample": {"output_text": str(number + 1 if right else number)}}


def inline(rows: Iterable[Mapping[str, Any]], **others: Any) -> dict[str, Any]:
    """Return a data source with the rows in the request."""
    return {"type": "jsonl", "source": {"type": "file_content", "content": list(rows)}, **others}


def jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as a file."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in rows)


async def create(client: AsyncOpenAI, *criteria: Mapping[str, Any], config: Any = CONFIG, **others: Any) -> Any:
    """Create an eval."""
    return await client.evals.create(data_source_config=config, testing_criteria=list(criteria), **others)  # type: ignore


async def start(client: AsyncOpenAI, eval_id: str, data_source: Mapping[str, Any], **others: Any) -> Any:
    """Start a run."""
    return await client.evals.runs.create(eval_id, data_source=data_source, **others)  # type: ignore


async def ended(client: AsyncOpenAI, run: Any) -> Any:
    """Wait until a run has ended, and return it."""
    async with asyncio.timeout(120):
        while True:
            found = await client.evals.runs.retrieve(run.id, eval_id=run.eval_id)
            if found.status not in ("queued", "in_progress"):
                return found
            await asyncio.sleep(0.01)


async def finished(client: AsyncOpenAI, data_source: Mapping[str, Any], *criteria: Mapping[str, Any], **others: Any):
    """Create an eval, run it, and return the ended run with its output items."""
    made = await create(client, *criteria, **others)
    run = await ended(client, await start(client, made.id, data_source))
    return run, await items_of(client, run)


async def items_of(client: AsyncOpenAI, run: Any, **filters: Any) -> list[Any]:
    """Return all output items of a run."""
    pages = client.evals.runs.output_items.list(run.id, eval_id=run.eval_id, **filters)
    return [item async for item in pages]
