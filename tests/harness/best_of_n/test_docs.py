"""The page on best-of-N: its example runs, and it names every method and grader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tirjudge.best_of_n import GROUP_SIZE, VERIFIED_WEIGHT
from tirjudge.strategies import STRATEGIES
from tirjudge_harness.best_of_n.grading import Grading

PAGE = (Path(__file__).parents[3] / "docs" / "best-of-n.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*STRATEGIES, *Grading])
def test_every_method_and_grader_has_its_row(name: str) -> None:
    assert f"| `{name}` |" in PAGE


def test_the_defaults_are_those_of_the_code() -> None:
    assert f"groups of `group_size` ({GROUP_SIZE})" in PAGE
    assert f"has weight {VERIFIED_WEIGHT:g} if" in PAGE


@pytest.mark.slow
def test_the_example_chooses_the_response_that_follows_the_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(example, {"__name__": "__main__"})  # noqa: S102
    assert capsys.readouterr().out == "1 (1, 2, 0) (0.0, 1.0, 0.5)\n"
