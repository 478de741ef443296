"""The example package in the documentation works."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tirjudge_harness.benchmark import BENCHMARKS

DOCS = (Path(__file__).parents[3] / "docs" / "adding-a-benchmark.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w.]+)`\n\n```\w+\n(.*?)```$", DOCS, re.MULTILINE | re.DOTALL))

USE = """
import sys
from pathlib import Path
from tirjudge.types import Mode
from tirjudge_harness.benchmark import BENCHMARKS
from tirjudge.right import Decision
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import evaluate
from tirjudge_harness.protocols import OFFICIAL
from tirjudge_harness.sources import load_examples

quiz = BENCHMARKS.named("quiz")
judged = []
for example in load_examples(quiz, data=Path("quiz.jsonl"), on_bad=lambda row: sys.exit(str(row))):
    asked = quiz.asked(example.outline, mode=Mode.PAIRWISE)
    print(example.outline.id, example.outline.tags["difficulty"], asked)
    # The judge always chooses the first response.
    shown = [order for pair in asked for order in (pair, pair[::-1])]
    decisions = tuple(Decision(shown=order, best=order[0]) for order in shown)
    judged.append(JudgedExample(outline=example.outline, mode=Mode.PAIRWISE, decisions=decisions))
for figure in evaluate(quiz, judged, mode=Mode.PAIRWISE, protocol=OFFICIAL).figures:
    print(figure.name, figure.value, figure.num_marks)
"""


def install(folder: Path) -> None:
    """Create the files of an installed package: the module and the metadata with the entry points."""
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    record = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (record / "entry_points.txt").write_text("\n".join(groups))


@pytest.mark.slow
def test_the_example_package_works(tmp_path: Path) -> None:
    assert set(FILES) == {"tirjudge_quiz.py", "pyproject.toml", "quiz.jsonl"}
    install(tmp_path)
    done = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "1 easy [(0, 1), (0, 2)]",
        "2 hard [(0, 1)]",
        # The first response always wins, so one of two orders is right.
        "average 0.5 3",
        "history 0.5 2",
        "nature 0.5 1",
        "all pairs 0.5 3",
        "easy 0.5 2",
        "hard 0.5 1",
    ], done.stderr


def test_the_example_benchmark_has_less_than_eighty_lines() -> None:
    assert len(FILES["tirjudge_quiz.py"].splitlines()) < 80


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_every_benchmark_is_in_the_documentation_with_its_parts(name: str) -> None:
    row = re.search(rf"^\| `{name}` \|.*$", DOCS, re.MULTILINE)
    assert row is not None
    missing = [part for part in BENCHMARKS[name].sources if f"`{part}`" not in row[0]]
    assert not missing or "the same" in row[0]


def test_built_in_benchmarks_use_the_entry_point() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["entry-points"][BENCHMARKS.group]) <= set(BENCHMARKS)
