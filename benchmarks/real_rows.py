"""Judge real rows through a server, and write the accuracy figures for the model card.

    python benchmarks/real_rows.py FILE.jsonl.gz ... --out judge/tirjudge/checkpoints/tiny/real_rows.json

A row is `{"id", "prompt", "responses", "label", "meta"?}`. Three kinds of rows are scored:

- rows with a label;
- rows whose `meta.correct` says which responses are correct, if some but not all are correct. The judgment is right if it
  picks a correct response;
- rows with one response whose `meta.strict` says which instructions it follows. The judgment is right if the score is 6 or
  more and the response follows all instructions, or if the score is lower and it does not.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from reporting import tirjudge

from tirjudge_server.demo import started_server

GOOD_SCORE = 6
"""Minimum score of a response that follows all instructions."""


def main(
    files: Annotated[list[Path], typer.Argument(exists=True)],
    out: Annotated[Path, typer.Option(help="File for the figures.")],
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder. Default: the bundled judge.")] = None,
) -> None:
    """Judge, and write a list of figures with one entry per file."""
    with started_server(*(() if model is None else ("--model", str(model)))) as url:
        text = json.dumps([judge_rows(file, url=url) for file in files], indent=1)
    out.write_text(text + "\n", encoding="utf-8")
    print(text)


def judge_rows(file: Path, *, url: str) -> dict[str, Any]:
    """Judge one file with `tirjudge judge FILE --url URL` and score it."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = {row["id"]: row for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.jsonl")
        summary = json.loads(tirjudge("judge", str(file), "--out", str(out), "--url", url, "--json"))
        judged = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    scored = [result for line in judged if (result := score_row(rows[line["id"]], line.get("judgment"))) is not None]
    return {
        "file": file.name.partition(".")[0],
        "holds": what_it_holds(next(iter(rows.values()))),
        "num_judged": summary["num_judged"],
        "num_scored": len(scored),
        "num_right": sum(right for right, _ in scored),
        "chance": chance_of(list(rows.values()), [chance for _, chance in scored]),
        "tool_use_rate": summary["tool_use_rate"],
        "code_error_rate": summary["code_error_rate"] or 0.0,
        "no_verdict_rate": summary["no_verdict_rate"],
    }


def score_row(row: dict[str, Any], judgment: dict[str, Any] | None) -> tuple[float, float] | None:
    """Return whether the row is right, and the probability of being right by chance. None: the row is not scored."""
    if judgment is None:
        return None
    verdict, meta = judgment["verdict"], row.get("meta") or {}
    if len(row["responses"]) == 1 and "strict" in meta:
        return float((verdict["scores"][0] >= GOOD_SCORE) == all(meta["strict"])), 0.0
    if "correct" in meta and 0 < sum(meta["correct"]) < len(meta["correct"]):
        picked = verdict["best"]
        return float(picked is not None and meta["correct"][picked]), sum(meta["correct"]) / len(meta["correct"])
    if row.get("label") is not None:
        return float(verdict["best"] == row["label"]), 1 / len(row["responses"])
    return None


def what_it_holds(row: dict[str, Any]) -> str:
    """Describe the rows of a file by its first row."""
    if len(row["responses"]) == 1:
        return "single responses: are all instructions followed?"
    return "pairs" if len(row["responses"]) == 2 else f"best of {len(row['responses'])}"


def chance_of(rows: list[dict[str, Any]], chances: list[float]) -> float | None:
    """Return the accuracy of random picks. For single responses, return the accuracy of always giving the more frequent
    answer. None: no row was scored."""
    if not chances:
        return None
    followed = [all(row["meta"]["strict"]) for row in rows if "strict" in (row.get("meta") or {})]
    if followed:
        share = sum(followed) / len(followed)
        return max(share, 1 - share)
    return sum(chances) / len(chances)


if __name__ == "__main__":
    typer.run(main)
