"""`tirjudge train measure` with the bundled judge, on rows written for the test."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.command_line import run_command
from tirjudge.model import bundled_checkpoint
from tirjudge_training.bundled.measuring.report import figures_beside
from tirjudge_training.bundled.measuring.sets import SETS, sets_named

BOATS = ("Boats float because they push water aside.", "A boat is a small ship that floats on water.")


def pair(number: int, prompt: str, *, subset: str = "s", meta: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "id": f"{subset}{number}", "benchmark": "b", "subset": subset, "prompt": prompt, "responses": list(BOATS),
        "label": number % 2, "meta": meta or {},
    }  # fmt: skip


ROWS: dict[str, list[dict[str, Any]]] = {
    "ifbench_small": [pair(i, "What is a boat? Write in all lowercase letters.") for i in range(3)],
    "judgebench": [pair(i, "What is a boat?", subset="knowledge", meta={"source": "law"}) for i in range(3)],
    "rewardbench_part": [pair(i, "Why do boats float?", meta={"section": "Chat"}) for i in range(3)],
    "rmbench_chat": [
        {
            "id": "c1", "benchmark": "b", "subset": subset, "prompt": "What is a boat?",
            "responses": [*BOATS, BOATS[0].upper(), BOATS[1].upper()], "label": 0, "meta": {"correct": [0, 1]},
        }
        for subset in ("chat", "code")
    ],
    "evalplus_small": [
        {
            "id": f"m{i}", "benchmark": "b", "subset": "mbppplus", "prompt": "Write add(a, b).\nassert add(1, 2) == 3",
            "responses": ["def add(a, b): return a + b", "def add(a, b): return a - b"], "label": None,
            "meta": {"correct": [True, is_same]},
        }
        for i, is_same in enumerate((False, True))
    ],
    "gsm8k_bo4": [
        {
            "id": "g1", "benchmark": "b", "subset": "x", "prompt": "Tom has 3 boats and buys 2. How many has he?",
            "responses": ["A: 5", "A: 6", "A: 1", "5 boats. A: 5"], "label": None,
            "meta": {"correct": [True, False, False, True]},
        }
    ],
    "ifeval": [
        {
            "id": "1", "benchmark": "ifeval", "subset": "x", "prompt": "Write about boats. Do not use any commas.",
            "responses": [BOATS[0]], "label": None,
            "meta": {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}], "strict": [True]},
        },
        {
            "id": "2", "benchmark": "ifeval", "subset": "x", "prompt": "Write about boats in at least 30 words.",
            "responses": [BOATS[0]], "label": None,
            "meta": {
                "instruction_id_list": ["length_constraints:number_words"],
                "kwargs": [{"relation": "at least", "num_words": 30}], "strict": [False],
            },
        },
    ],
}  # fmt: skip


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    for name, written in ROWS.items():
        text = "".join(json.dumps(row) + "\n" for row in written)
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.mark.slow
def test_all_sets_are_measured(rows: Path, tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    pytest.importorskip("immutabledict")
    out, items = tmp_path / "figures.json", tmp_path / "items.jsonl"
    ran = run_command(
        "train", "measure", bundled_checkpoint(), "--rows", rows, "--limit", 2, "--out", out, "--items", items, "--json"
    )
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert json.loads(ran.stdout) == figures
    found = {one["name"]: one for one in figures["sets"]}
    assert list(found) == [one.name for one in SETS]
    assert {name: one["num_items"] for name, one in found.items()} == {
        "writer": 2, "writer-prompts": 2, "newer-forms": 2, "latest-forms": 2, "free-forms": 2, "ifeval-edits": 2,
        "ifeval": 2, "ifbench": 2, "gsm8k": 1, "code": 1, "writer-code": 2, "writer-lookups": 2, "writer-regexes": 2,
        "answered-regexes": 2, "calculations": 2, "worlds": 2, "judgebench": 2, "rmbench": 1,
        "rewardbench": 2, "near-misses": 2,
    }  # fmt: skip
    for one in figures["sets"]:
        assert 0 <= one["accuracy"] <= 1
        assert one["coverage"] == 1  # nothing is required of a verdict
        assert one["share_checked"] + sum(one["by_basis"][name]["share"] for name in ("reasoned", "guessed")) == 1
    assert found["writer"]["baselines"]["asked_checks"] == 1
    assert found["ifeval"]["baselines"] == {"always_yes": 0.5, "patterns": 1.0, "asked_checks": 1.0}
    assert found["gsm8k"]["baselines"]["chance"] == 0.5
    assert found["writer-lookups"]["exact_calls"]["num"] == 2
    assert found["ifeval-edits"]["sameness"]["num_items"] == 2
    assert figures["contamination"]["benchmarks"]["ifeval"] == 2
    judged = [json.loads(line) for line in items.read_text(encoding="utf-8").splitlines()]
    assert len(judged) == sum(one["num_items"] for one in figures["sets"])
    assert ran.stderr.startswith("measuring ")


@pytest.mark.slow
def test_a_checkpoint_without_scores_gets_figures_and_no_card(rows: Path, tmp_path: Path) -> None:
    without = shutil.ignore_patterns("scores.json", "README.md", "measured.json")
    checkpoint = Path(shutil.copytree(bundled_checkpoint(), tmp_path / "checkpoint", ignore=without))
    ran = run_command(
        "train", "measure", checkpoint, "--rows", rows, "--only", "writer-code", "--limit", 1, "--no-contamination"
    )
    assert ran.returncode == 0, ran.stderr
    assert "no card: run tirjudge train evaluate" in " ".join(ran.stderr.split())
    assert (checkpoint / "measured.json").exists()


@pytest.mark.slow
def test_one_set_is_measured(rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    ran = run_command(
        "train",
        "measure",
        bundled_checkpoint(),
        "--rows",
        rows,
        "--only",
        "ifbench",
        "--no-contamination",
        "--out",
        out,
    )
    assert ran.returncode == 0, ran.stderr
    assert "ifbench  3/3" in ran.stderr
    (one,) = json.loads(out.read_text(encoding="utf-8"))["sets"]
    assert one["num_items"] == 3
    assert one["baselines"]["chance"] == 0.5
    assert figures_beside(f"first={out}") == {
        "name": "first",
        "limit": None,
        "accuracies": {"ifbench": one["accuracy"]},
    }


def test_sets_without_rows_are_skipped(rows: Path, tmp_path: Path) -> None:
    (rows / "ifbench_small.jsonl.gz").unlink()
    ran = run_command(
        "train", "measure", bundled_checkpoint(), "--rows", rows, "--only", "ifbench", "--no-contamination",
        "--out", tmp_path / "figures.json",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["skipped"] == ["ifbench"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--only", "nonsense"), "no set is named 'nonsense'; the sets are writer,"),
        (("--rows", "missing"), "--rows missing: not a folder"),
        (("--beside", "first"), "--beside first: expected NAME=FILE"),
        (("--beside", "first=/dev/null"), "the file has no figures of `tirjudge train measure`"),
    ],
)
def test_mistakes_have_one_clear_line(options: tuple[str, ...], message: str, rows: Path) -> None:
    ran = run_command("train", "measure", bundled_checkpoint(), "--rows", rows, *options)
    assert ran.returncode == 2
    assert message in ran.stderr


@pytest.mark.slow
def test_invalid_rows_are_named(rows: Path, tmp_path: Path) -> None:
    (rows / "ifbench_small.jsonl.gz").write_bytes(gzip.compress(b'{"id": "1", "prompt": "p", "responses": []}\n'))
    ran = run_command("train", "measure", bundled_checkpoint(), "--rows", rows, "--only", "ifbench")
    assert ran.returncode == 2
    assert "ifbench_small.jsonl.gz: row 1: responses" in " ".join(ran.stderr.split())


@pytest.mark.slow
def test_items_depend_on_the_seed_alone(rows: Path) -> None:
    for name in ("writer", "judgebench", "rmbench"):
        (one,) = sets_named([name])
        drawn = [list(one.items(rows, seed=seed, limit=3)) for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1]
        assert drawn[0] != drawn[2] or len(drawn[0]) < 2


@pytest.mark.slow
def test_writers_pairs_differ_in_one_check(rows: Path) -> None:
    from tirjudge_training.instructions.responses import holds

    (one,) = sets_named(["writer"])
    for item in one.items(rows, seed=Random(3).randrange(100), limit=12):
        assert item.asked is not None
        passed = [sum(holds(c.expression, text, prompt=item.prompt) for c in item.asked) for text in item.responses]
        right = min(item.right)
        assert passed[right] == len(item.asked)
        assert passed[1 - right] == len(item.asked) - 1
