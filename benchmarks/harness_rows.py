"""Judges real rows by the harness with the bundled judge, through a server, and keeps the tables.

    python benchmarks/harness_rows.py FOLDER [--limit 150] [--out benchmarks/results]

FOLDER holds rows in the neutral layout, one file a benchmark, such as `judgebench.jsonl.gz`. Of each file a sample of
`--limit` examples is judged, of each subset its share, since the bundled judge makes some ten judgments a second on two
cores and RM-Bench asks nine of an example. What is written: `harness_rows.json` and `harness_rows.md`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from reporting import report_head, tirjudge

from tirjudge_server.demo import started_server

BENCHMARKS = (
    ("judgebench", "judgebench.jsonl.gz", ("--part", "gpt", "--part", "claude"), 1),
    ("ifbench", "ifbench_thukeg.jsonl.gz", (), 1),
    ("rewardbench", "rewardbench_2000of2985.jsonl.gz", (), 2),
    ("rmbench", "rmbench_chat_code_safety.jsonl.gz", (), 0.25),
)
"""Benchmark, its file, further options, and its share of the limit."""

BEST_OF_N = (
    ("gsm8k_bo4.jsonl.gz", "gsm8k", ("knockout", "pointwise", "listwise", "verified_vote")),
    ("math_bo8.jsonl.gz", "math", ("knockout", "pointwise")),
    ("bigcodebench_bo2.jsonl.gz", "given", ("knockout", "pointwise")),
    ("evalplus_bo2.jsonl.gz", "given", ("knockout", "pointwise")),
)
"""File, grader, strategies."""

SINGLE = ("ifeval_gpt4.jsonl.gz",)
"""Files of one response a prompt: judged, with nothing to be right about."""

RESULTS = Path(__file__).with_name("results")
KEPT = ("name", "depth", "value", "num_marks", "interval")


def main(
    folder: Annotated[Path, typer.Argument(exists=True, help="Of the files of rows.")],
    limit: Annotated[int, typer.Option(help="Examples of a file.")] = 150,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = RESULTS,
) -> None:
    """Judge, and write the tables."""
    head, out = report_head(), out.resolve()
    os.chdir(folder)  # so that tables name the files without this machine's folders
    with tempfile.TemporaryDirectory() as name, started_server() as url:
        runs, common = Path(name), ("--url", url, "--json")
        judged = [
            judge(name, file, *options, *common, limit=round(limit * share), out=runs / name)
            for name, file, options, share in BENCHMARKS
        ]
        chosen = [
            choose(file, grader, strategies, *common, limit=limit // 3, out=runs / file)
            for file, grader, strategies in BEST_OF_N
        ]
        scored = []
        for file in SINGLE:
            command = ("judge", file, "--out", str(runs / f"{file}.jsonl"), "--limit", str(limit), *common)
            scored.append({"rows": file, "summary": json.loads(tirjudge(*command))})
        table = tirjudge("bench", "report", *(str(runs / name) for name, *_ in BENCHMARKS), "--format", "markdown")
    result = {**head, "limit": limit, "benchmarks": judged, "best_of_n": chosen, "single": scored}
    (out / "harness_rows.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (out / "harness_rows.md").write_text(table, encoding="utf-8")
    print(table)


def judge(name: str, file: str, *options: str, limit: int, out: Path) -> dict[str, Any]:
    """One benchmark, with the paper's protocol."""
    started = time.perf_counter()
    command = ("bench", "run", name, "--data", file, "--out", str(out), "--limit", str(limit), *options)
    (run,) = json.loads(tirjudge(*command))
    return {
        "benchmark": name,
        "rows": file,
        "examples": limit,
        "elapsed_s": round(time.perf_counter() - started, 1),
        "figures": [{key: figure[key] for key in KEPT} for figure in run["figures"]],
        "counts": run["counts"],
    }


def choose(file: str, grader: str, strategies: tuple[str, ...], *options: str, limit: int, out: Path) -> dict[str, Any]:
    """The best of N by each strategy."""
    started = time.perf_counter()
    asked = [part for strategy in strategies for part in ("--strategy", strategy)]
    command = ("bench", "best-of-n", file, "--out", str(out), "--grader", grader, *asked, "--limit", str(limit))
    results = json.loads(tirjudge(*command, *options))
    return {"rows": file, "elapsed_s": round(time.perf_counter() - started, 1), "results": results}


if __name__ == "__main__":
    typer.run(main)
