"""Make the screenshots of the documentation: `python -m tests.screenshots docs/images`.

A server with a scripted model judges a few requests, and Chromium opens its pages.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2

from tests.browser import shared_browser
from tests.runs import Pair, write_pairs
from tests.servers import scripted_service, serve_async, shared_sandbox
from tirjudge.types import Outcome
from tirjudge_harness.reports.pages.indexing import index_run
from tirjudge_server.app import create_app
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records

TOP: Any = {"x": 0, "y": 0, "width": 1100, "height": 2050}
"""Part of a page that a screenshot shows."""

MAX_BYTES = 200_000
"""Maximum size of a screenshot."""

COUNTS = """To check: at least 3 sentences, no commas.
```python
import re

def checks(r):
    return [len(re.findall(r"[.!?](?=\\s|$)", r)) >= 3, "," not in r]

print("A", *checks(response_a))
print("B", *checks(response_b))
```
```output"""
FAILS = "```python\nprint(response_c)\n```\n```output"

PROMPT = "Describe the sea in at least 3 sentences. Do not use any commas."
RESPONSES = ["The sea is wide. It is blue. It moves.", "The sea is wide, blue and deep. It moves."]


async def make(folder: Path) -> None:
    """Write the screenshots into a folder."""
    verdict = {"A": "<preference>A</preference>", "B": "<preference>B</preference>"}
    texts = cycle([COUNTS, verdict["B"], FAILS, verdict["B"], verdict["B"], verdict["A"]])
    with shared_sandbox() as sandbox, shared_browser() as browser, tempfile.TemporaryDirectory() as state:
        service = scripted_service(texts, sandbox=sandbox, fingerprint="0" * 16, label_probs={"A": 0.1, "B": 0.9})
        versions = versions_of(service.judge, fingerprint="0" * 16, isolation=service.isolation)
        async with open_records(str(Path(state) / "records.db"), versions=versions) as records:
            service.records = records
            runs = Path(state) / "runs"
            _write_run(runs / "judgebench")
            async with serve_async(create_app(service, records=records, runs=runs)) as url:
                judged = await _judge(url)

                async def visit(page: Any) -> None:
                    await page.goto(f"{url}/ui/judgments/{judged}")
                    await page.screenshot(path=folder / "judgment.png", full_page=True, clip=TOP)
                    await page.goto(f"{url}/ui/judgments")
                    await page.screenshot(path=folder / "judgments.png")
                    await page.goto(url)
                    for name, text in {
                        "prompt": PROMPT,
                        "responses.0": RESPONSES[0],
                        "responses.1": RESPONSES[1],
                    }.items():
                        await page.fill(f"[name='{name}']", text)
                    await page.get_by_role("button", name="Judge").click()
                    await page.wait_for_selector("#result-verdict")
                    await page.screenshot(path=folder / "playground.png", full_page=True, clip={**TOP, "height": 1430})
                    await page.goto(f"{url}/ui/runs/report/judgebench")
                    await page.screenshot(path=folder / "run.png", full_page=True, clip={**TOP, "height": 1000})

                await browser.visit(visit, viewport={"width": 1100, "height": 900})


def _write_run(folder: Path) -> None:
    """Write a run with all kinds of results, and its index."""
    outcomes = (Outcome.OK, Outcome.OK, Outcome.ERROR, None)
    subsets = ("knowledge", "reasoning", "math", "coding")
    pairs = [
        Pair(
            id=f"pair-{number}",
            subset=subsets[number % 4],
            named=((0, 0), (0, 0), (0, 1), (0, 0), (1, 1))[number % 5],
            outcome=outcomes[number % 4],
            probability=0.6 + 0.1 * (number % 4),
        )
        for number in range(200)
    ]
    write_pairs(folder, pairs)
    index_run(folder, with_texts=False)


async def _judge(url: str) -> str:
    """Judge some requests. Return the id of the first judgment."""
    body = {"mode": "pairwise", "prompt": PROMPT, "responses": RESPONSES}
    async with httpx2.AsyncClient(base_url=url) as client:
        first = (await client.post("/v1/judge", json={**body, "seed": 1})).json()["id"]
        for seed in range(3):
            await client.post("/v1/judge", json={**body, "seed": seed, "prompt": f"{PROMPT} {seed}"})
    return first


def main(folder: Path) -> None:
    """Make the screenshots, and check their sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(make(folder))
    for file in sorted(folder.glob("*.png")):
        print(file, file.stat().st_size)
        if file.stat().st_size > MAX_BYTES:
            raise SystemExit(f"{file}: {file.stat().st_size} bytes, more than {MAX_BYTES}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
