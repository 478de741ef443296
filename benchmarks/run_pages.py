"""Measure the pages of a large run: how long the index takes, and how long a page takes to open.

    python benchmarks/run_pages.py --out benchmarks/results/run_pages.json

The run has judgments of pairs in both orders, each with a program, as a run on JudgeBench. They are written by this script
with fixed texts of about the size that a model of 8 billion parameters writes. The server is `tirjudge serve --runs`. A page
is opened over HTTP, and in Chromium if it is installed: until the browser has its whole content.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, time
from typing import Annotated, Any

import httpx2
import typer
from reporting import TIRJUDGE, Out, report
from server_process import started

from tirjudge.types import (
    Judgment,
    Mode,
    Outcome,
    RolloutRecord,
    RolloutVerdict,
    StopReason,
    Timing,
    TurnRecord,
    Usage,
    Verdict,
)
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.run import AskedComparison, DataManifest, JudgeManifest, PlannedExample, RunManifest, write_plan
from tirjudge_harness.run_store import StoredAnswer

SUBSETS = (
    "mmlu-pro-math",
    "mmlu-pro-physics",
    "mmlu-pro-law",
    "livebench-reasoning",
    "livebench-math",
    "livecodebench",
)
REASONING = "The first response computes the sum step by step, and the second one leaves out a term. " * 8
PROGRAM = f"{REASONING}\n```python\nprint(sum(range(100)))\n```\n```output\n"
LIMIT_S = 2.0
"""Maximum seconds until a page is open."""


def main(
    items: Annotated[int, typer.Option(help="Items of the run.")] = 100_000,
    repeats: Annotated[int, typer.Option(help="How often each page is opened.")] = 9,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON. The exit status is 1 if a page takes longer than the limit."""
    with TemporaryDirectory() as folder:
        runs = Path(folder)
        for seed, name in enumerate(("first", "second")):
            write_run(runs / name, num_items=items, seed=seed)
        sizes = {file.name: file.stat().st_size for file in (runs / "first").iterdir()}
        index = [timed(*TIRJUDGE, "bench", "index", str(runs / name)) for name in ("first", "second")]
        compared = timed(*TIRJUDGE, "bench", "index", str(runs / "second"), "--baseline", str(runs / "first"))
        serve = ("serve", "--port", "0", "--records", "none", "--files", "none", "--runs", str(runs))
        with started(*TIRJUDGE, *serve) as server:
            pages = {name: open_page(server.url + path, repeats=repeats) for name, path in paths(items).items()}
            in_browser = browse(server.url, paths(items), repeats=repeats)
        result = {
            "num_items": items,
            "journal_bytes": sizes["journal.jsonl"],
            "index_bytes": (runs / "first" / "pages.db").stat().st_size,
            "index": index,
            "comparison": compared,
            "limit_s": LIMIT_S,
            "pages": pages,
            "pages_in_chromium": in_browser,
        }
    worst = max(page["max_s"] for page in (*pages.values(), *(in_browser or {}).values()))
    report(result, out, failed=worst > LIMIT_S)


def paths(num_items: int) -> dict[str, str]:
    """Return the path of each page that is opened."""
    return {
        "list of runs": "/ui/runs",
        "report": "/ui/runs/report/first",
        "first page of items": "/ui/runs/items/first",
        "last page of items": f"/ui/runs/items/first?page={num_items // 100}",
        "wrong and flipped items": "/ui/runs/items/first?wrong=on&flipped=on",
        "most confident wrong items": "/ui/runs/items/first?wrong=on&sort=confidence",
        "a part of an id": "/ui/runs/items/first?id=99",
        "one item": f"/ui/runs/item/{num_items - 1}/first",
        "comparison": "/ui/runs/compare?first=first&second=second",
    }


def timed(*command: str) -> dict[str, float]:
    """Run a command. Return its seconds, its processor time and its peak memory."""
    began = perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: status {process.returncode}")
    return {
        "s": round(perf_counter() - began, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_memory_mib": usage.ru_maxrss // 1024,
    }


def open_page(url: str, *, repeats: int) -> dict[str, Any]:
    """Open a page over HTTP. The first opening counts too."""
    seconds = []
    with httpx2.Client(timeout=60.0) as client:
        for _ in range(repeats):
            began = perf_counter()
            answer = client.get(url).raise_for_status()
            seconds.append(perf_counter() - began)
            if "Reading the run" in answer.text:
                raise SystemExit(f"{url}: the run is not prepared")
    return figures(seconds) | {"bytes": len(answer.content)}


def browse(url: str, pages: dict[str, str], *, repeats: int) -> dict[str, Any] | None:
    """Open the pages in Chromium. None: it is not installed."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page, found = browser.new_page(), {}
        for name, target in pages.items():
            seconds = []
            for _ in range(repeats):
                began = perf_counter()
                page.goto(url + target, wait_until="load")
                seconds.append(perf_counter() - began)
            found[name] = figures(seconds)
        browser.close()
        return found


def figures(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the maximum."""
    return {"median_s": round(median(seconds), 3), "max_s": round(max(seconds), 3)}


def write_run(path: Path, *, num_items: int, seed: int) -> None:
    """Write the folder of a run, line by line."""
    planned = [planned_example(number) for number in range(num_items)]
    data = DataManifest(path="rows.jsonl", sha256="0" * 64, num_examples=num_items)
    manifest = RunManifest(
        benchmark="judgebench",
        mode=Mode.PAIRWISE,
        protocol="both_orders",
        orders="both",
        votes=1,
        judge=JudgeManifest(kind="local", model="scripted", fingerprint=f"{seed:016x}"),
        data=data,
        version="0.1.0",
        created=int(time()),
    )
    path.mkdir()
    with (path / "journal.jsonl").open("wb") as file:
        for key, judgment in judgments(num_items, seed=seed):
            file.write(StoredAnswer(key=key, judgment=judgment).model_dump_json().encode() + b"\n")
    write_plan(path, manifest=manifest, planned=planned)


def planned_example(number: int) -> PlannedExample:
    """Return one example. Its right response is the first."""
    outline = ExampleMetadata(
        id=f"pair-{number}",
        subset=SUBSETS[number % len(SUBSETS)],
        num_responses=2,
        correct=(0,),
        cluster=f"prompt-{number // 2}",
        lengths=(900 + number % 300, 1100 - number % 400),
    )
    return PlannedExample(
        place=number, outline=outline, asked=(AskedComparison(responses=(0, 1), key=f"key-{number}"),)
    )


def judgments(num_items: int, *, seed: int) -> Iterator[tuple[str, Judgment]]:
    """Yield a judgment per item: 70 % right, with flips, failed programs and abstentions."""
    draws = random.Random(seed)
    for number in range(num_items):
        chosen = [int(draws.random() > 0.7) for _ in range(2)]
        p = 0.5 + draws.random() / 2
        outcome = draws.choice((Outcome.OK, Outcome.OK, Outcome.OK, Outcome.ERROR))
        rollouts = [
            rollout(order, best=best, p=p, outcome=outcome)
            for order, best in zip(([0, 1], [1, 0]), chosen, strict=True)
        ]
        agreed = chosen[0] if chosen[0] == chosen[1] else None
        yield (
            f"key-{number}",
            Judgment(
                id=f"jdg_{number}",
                created=1_700_000_000 + number,
                mode=Mode.PAIRWISE,
                model="scripted",
                verdict=Verdict(
                    status="tie" if agreed is None else "decided",
                    best=agreed,
                    label=None if agreed is None else "AB"[agreed],
                    scores=None,
                    probabilities=None,
                    confidence=p,
                    label_mass=1.0,
                    forced=False,
                    reason=None,
                    basis="checked" if number % 3 else "reasoned",
                ),
                rollouts=rollouts,
                usage=Usage(input_tokens=900, cached_tokens=0, output_tokens=400, tool_calls=2, rollouts=2),
                timing=Timing(total_s=8.0 + draws.random(), engine_s=15.0, sandbox_s=0.3),
            ),
        )


def rollout(order: list[int], *, best: int, p: float, outcome: Outcome) -> RolloutRecord:
    """Return a rollout with one program."""
    label = "AB"[order.index(best)]
    output = "4950\n" if outcome is Outcome.OK else "SyntaxError: invalid syntax\n"
    turns = [
        TurnRecord(text=PROGRAM, code="print(sum(range(100)))\n", output=output, outcome=outcome),
        TurnRecord(text=f"{REASONING}<preference>{label}</preference>", code=None, output=None, outcome=None),
    ]
    verdict = RolloutVerdict(
        label=label,
        best=best,
        score=None,
        probabilities={"A": p if label == "A" else 1 - p, "B": p if label == "B" else 1 - p},
        label_mass=1.0,
        forced=False,
    )
    return RolloutRecord(order=order, turns=turns, stop_reason=StopReason.VERDICT, verdict=verdict)


if __name__ == "__main__":
    typer.run(main)
