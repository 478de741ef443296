"""The walk-through in docs/evals.md runs, and the page names every option, status and type."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from pathlib import Path
from typing import get_args

import pytest

from tirjudge_server.evals.definitions import SampleParams
from tirjudge_server.evals.store import RunStatus
from tirjudge_server.openai.pages import ItemsQuery

PAGE = (Path(__file__).parents[3] / "docs" / "evals.md").read_text(encoding="utf-8")
(WALK_THROUGH,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CRITERIA = ("string_check", "text_similarity", "label_model", "score_model", "python", "multi")


def walk_through(url: str) -> str:
    """Run the example, and return its output."""
    names: dict[str, object] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(WALK_THROUGH.replace("http://127.0.0.1:8400", url), names)  # noqa: S102
    names["client"].close()  # type: ignore
    return printed.getvalue()


async def test_the_walk_through_runs(make_judge, served, tmp_path: Path) -> None:
    async with served(make_judge([]), folder=tmp_path) as url:
        printed = await asyncio.to_thread(walk_through, url)
    assert printed == "completed 1 1\nExcel is slow. Match output to human label\n"


@pytest.mark.parametrize(
    "name",
    [*CRITERIA, *get_args(RunStatus), *SampleParams.model_fields, *ItemsQuery.model_fields, "pass_threshold"],
)
def test_every_name_is_documented(name: str) -> None:
    assert re.search(rf"`{name}[`.]", PAGE)
