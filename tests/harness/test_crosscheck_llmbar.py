"""`benchmarks/crosscheck_llmbar.py`, on a folder with the layout of the authors' repository."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks"

SENTENCE = {"1": r"Output \(a\) is better.", "2": r"Output \(b\) is better."}

PUBLISHED = {
    "correct_False": "3 / 4 = 75.0%",
    "correct_True": "2 / 4 = 50.0%",
    "correct_average": "62.5%",
    "correct_both": "1 / 4 = 25.0%",
    "equal": "1 / 4 = 25.0%",
    "kappa_False": 1 / 3,
    "kappa_True": 1 / 7,
    "kappa_average": 5 / 21,
    "kappa_agreement": 0.5,
}
"""Of the texts in `TEXTS`. The first order: 1, 1, 2, none. The second order: 1, 2, none, 2. Labels: 1, 1, 2, 2.

With `other` for 2 and none, the first order agrees with the labels on 2 of 4, and 1/4 is expected: (1/2 - 1/4) / (3/4). The
second agrees on 1 of 4, and 1/8 is expected. The orders agree on 3 of 4, and 1/2 is expected.
"""

TEXTS = [
    (1, "Output (a) is better.", "1", "Thus, Output (b) is better, by far.", "1"),
    (1, "Output (a) is better.", "1", "Output (a) is better.", "2"),
    (2, "Output (b) is better.", "2", "Both are good.", None),
    (2, "Neither is.", None, "Output (a) is better.", "2"),
]
"""Label, then for each order the text and the response that the authors read."""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("crosscheck_llmbar")


def write_run(root: Path, *, results: Sequence[Any], published: dict[str, Any], parsing: Any) -> Path:
    folder = root / "Dataset/Toy/evaluators/GPT/CoT"
    folder.mkdir(parents=True)
    rows = [{"label": label, "results": ["a question", result]} for label, result in results]
    (folder / "result.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder / "statistics.json").write_text(json.dumps(published), encoding="utf-8")
    config = root / "LLMEvaluator/evaluators/config/GPT/CoT.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps([{"parsing": None}, {"parsing": parsing}]), encoding="utf-8")
    return folder / "statistics.json"


def compared(text: str, winner: str | None, swapped: str, other: str | None) -> dict[str, Any]:
    return {
        "swap = False": {"completion": [text, "stop"], "winner": winner},
        "swap = True": {"completion": [swapped, "stop"], "winner": other},
    }


def test_statistics_are_recomputed_from_raw_texts(script: ModuleType, tmp_path: Path) -> None:
    results = [(label, compared(*texts)) for label, *texts in TEXTS]
    path = write_run(tmp_path, results=results, published=PUBLISHED, parsing=SENTENCE)
    run = script.read_run(path, root=tmp_path)
    assert (run.name, run.unlike) == ("Toy, GPT/CoT", ())
    checks = script.checked(run)
    assert {one.figure: one.verdict for one in checks} == dict.fromkeys(PUBLISHED, "same")


def test_a_wrong_figure_differs(script: ModuleType, tmp_path: Path) -> None:
    results = [(label, compared(*texts)) for label, *texts in TEXTS]
    published = PUBLISHED | {"correct_both": "1 / 4 = 25.1%", "kappa_True": 0.143}
    run = script.read_run(write_run(tmp_path, results=results, published=published, parsing=SENTENCE), root=tmp_path)
    assert {one.figure for one in script.checked(run) if one.verdict == "differs"} == {"correct_both", "kappa_True"}


def test_a_text_that_ends_at_the_verdict_explains_a_difference(script: ModuleType, tmp_path: Path) -> None:
    """The authors read no verdict from the last text. In the kappas, no verdict and the second response are one category."""
    results = [(label, compared(*texts)) for label, *texts in TEXTS[:3]]
    results.append((2, compared("Neither is.", None, "Output (a) is better", None)))
    published = PUBLISHED | {"correct_True": "1 / 4 = 25.0%", "correct_average": "50.0%", "equal": "2 / 4 = 50.0%"}
    run = script.read_run(write_run(tmp_path, results=results, published=published, parsing=SENTENCE), root=tmp_path)
    assert run.unlike == ("Output (a) is better",)
    found = {one.figure: one for one in script.checked(run) if one.verdict != "same"}
    assert {one.verdict for one in found.values()} == {"explained"}
    assert found.keys() == {"correct_True", "correct_average", "equal"}
    assert found["correct_True"].why == script.CUT_SHORT


def test_ratings_are_decided_as_the_authors_do_and_counted_by_the_pointwise_rule(
    script: ModuleType, tmp_path: Path
) -> None:
    """Higher first, equal, and a text without a rating. Equal: half right; no rating: half right."""
    rows = [(1, "7", "3", "1", "1"), (1, "5", "5", "2", "1"), (2, "8", "Good.", "1", "2")]
    results = [
        (
            label,
            {"score_1": [first, "stop"], "score_2": [second, "stop"]}
            | {"swap = False": {"winner": winner}, "swap = True": {"winner": other}},
        )
        for label, first, second, winner, other in rows
    ]
    third = 100 / 3
    published = {"correct_False": f"1 / 3 = {third}%", "correct_True": f"3 / 3 = {3 * third}%"}
    published |= {"correct_average": f"{2 * third}%", "correct_both": f"1 / 3 = {third}%", "equal": f"1 / 3 = {third}%"}
    # Categories: 1, other, 1 and 1, 1, other; labels: 1, 1, 2.
    published |= {"kappa_False": (1 / 3 - 4 / 9) / (5 / 9), "kappa_True": (2 / 3 - 4 / 9) / (5 / 9)}
    published |= {"kappa_average": 0.1, "kappa_agreement": (1 / 3 - 5 / 9) / (4 / 9)}
    run = script.read_run(write_run(tmp_path, results=results, published=published, parsing=None), root=tmp_path)
    assert run.unlike == ()
    checks = {one.figure: one for one in script.checked(run)}
    assert {one.verdict for one in checks.values()} == {"same"}
    assert checks["correct_average of the ratings"].ours == pytest.approx(200 / 3)


def test_an_unknown_pattern_is_refused(script: ModuleType, tmp_path: Path) -> None:
    results = [(1, compared("A", "1", "B", "1"))]
    path = write_run(tmp_path, results=results, published=PUBLISHED, parsing={"1": "A", "2": "B"})
    with pytest.raises(ValueError, match="pattern: 'A' given; add a form for it to FORMS"):
        script.read_run(path, root=tmp_path)
