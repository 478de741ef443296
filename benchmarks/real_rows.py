"""Judges real rows through a server and writes what came out, for the model card.

    python benchmarks/real_rows.py FILE.jsonl.gz ... --out judge/tirjudge/checkpoints/tiny/real_rows.json

A row is `{"id", "prompt", "responses", "label", "meta"?}`. Scored are rows with a label; rows whose `meta.correct` says
which responses are right, some and not all (right: a right one was picked); and rows of one response whose `meta.strict`
says which instructions it follows (right: its score is 6 or more if and only if it follows all).
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tirjudge_server.demo import started_server

GOOD_SCORE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRows:
    """One file's figures."""

    file: str
    holds: str
    num_judged: int
    num_scored: int
    num_right: float
    chance: float | None
    """What picking at random gets; for single responses, what the commoner answer gets."""
    tool_use_rate: float
    code_error_rate: float
    no_verdict_rate: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="checkpoint folder; default: the bundled judge")
    arguments = parser.parse_args()
    options = [] if arguments.model is None else ["--model", str(arguments.model)]
    with started_server(*options) as url:
        figures = [judge_rows(file, url=url) for file in arguments.files]
    arguments.out.write_text(json.dumps([asdict(row) for row in figures], indent=1) + "\n", encoding="utf-8")
    print(json.dumps([asdict(row) for row in figures], indent=1))


def judge_rows(file: Path, *, url: str) -> RealRows:
    """Judge one file with `tirjudge judge FILE --url URL` and score it."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = {row["id"]: row for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.jsonl")
        command = [sys.executable, "-c", "from tirjudge.cli import main; main()", "judge", str(file), "--out", str(out)]
        done = subprocess.run([*command, "--url", url, "--json"], stdout=subprocess.PIPE, text=True, check=True)
        judged = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    summary = json.loads(done.stdout)
    scored = [result for line in judged if (result := score_row(rows[line["id"]], line.get("judgment"))) is not None]
    return RealRows(
        file=file.name.partition(".")[0],
        holds=what_it_holds(next(iter(rows.values()))),
        num_judged=summary["num_judged"],
        num_scored=len(scored),
        num_right=sum(right for right, _ in scored),
        chance=_chance(list(rows.values()), [chance for _, chance in scored]),
        tool_use_rate=summary["tool_use_rate"],
        code_error_rate=summary["code_error_rate"] or 0.0,
        no_verdict_rate=summary["no_verdict_rate"],
    )


def score_row(row: dict[str, Any], judgment: dict[str, Any] | None) -> tuple[float, float] | None:
    """(right, chance) of one row; None if it is not scored."""
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
    if len(row["responses"]) == 1:
        return "single responses: are all instructions followed?"
    return "pairs" if len(row["responses"]) == 2 else f"best of {len(row['responses'])}"


def _chance(rows: list[dict[str, Any]], chances: list[float]) -> float | None:
    if not chances:
        return None
    followed = [all(row["meta"]["strict"]) for row in rows if "strict" in (row.get("meta") or {})]
    if followed:
        share = sum(followed) / len(followed)
        return max(share, 1 - share)
    return sum(chances) / len(chances)


if __name__ == "__main__":
    main()
