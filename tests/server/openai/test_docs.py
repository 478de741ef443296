"""The examples in docs/openai.md run against the bundled judge, and the page names every path and option."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from pathlib import Path

import pytest

from tirjudge.judge import Judge
from tirjudge.opening import open_model
from tirjudge.tools.python import PythonTool
from tirjudge_server.openai.forms import JSON_TYPES
from tirjudge_server.openai.formula import FUNCTIONS
from tirjudge_server.openai.routes import BATCH_REQUESTS, REQUESTS, endpoints
from tirjudge_server.openai.similarity import METRICS
from tirjudge_server.service import JudgeService

PAGE = (Path(__file__).parents[3] / "docs" / "openai.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run_examples(url: str) -> str:
    """Run the examples in order, and return their output."""
    names: dict[str, object] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for example in EXAMPLES:
            exec(example.replace("http://127.0.0.1:8400", url), names)  # noqa: S102
    names["client"].close()  # type: ignore
    return printed.getvalue()


@pytest.mark.slow
async def test_the_examples_run_against_the_bundled_judge(sandbox, served, tmp_path: Path) -> None:
    async with open_model() as model:
        service = JudgeService(Judge(engine=model.engine, tools=[PythonTool(sandbox)], profile=model.profile))
        async with served(service, folder=tmp_path) as url:
            printed = await asyncio.to_thread(run_examples, url)
    assert printed.startswith("decided B\n")
    assert "```output" in printed
    assert re.search(r"^Rating: \[\[\d+\]\]$", printed, re.MULTILINE)
    assert "comma predicate\nwords choice\n" in printed
    assert re.search(r"^item-0 \d+$", printed, re.MULTILINE)
    assert printed.endswith("1.0 {'same': 1.0, 'short': 1.0}\n")


@pytest.mark.parametrize("path", [*REQUESTS, *BATCH_REQUESTS, *endpoints(None)])  # type: ignore
def test_every_path_is_documented(path: str) -> None:
    assert path in PAGE or path.rpartition("/")[2] in PAGE


@pytest.mark.parametrize("name", [*JSON_TYPES, *FUNCTIONS, *sorted(set(METRICS) - {f"rouge_{n}" for n in range(2, 5)})])
def test_every_option_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE
