"""Evaluations in Inspect, from the dataset to the metrics."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.integrations.conftest import Serve

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]
"""Warnings of Inspect itself."""

SAMPLES = {"What is 2 + 2?": "four", "What is 3 + 3?": "six"}


@pytest.fixture(scope="module")
def inspect() -> ModuleType:
    """The adapter. It is imported late, because Inspect takes seconds to import."""
    pytest.importorskip("inspect_ai", reason="inspect-ai is not installed")
    return importlib.import_module("tirjudge.integrations.inspect")


async def evaluated(*scorers: Any, folder: Path) -> Any:
    """Return the log of an evaluation in which every answer is the same.

    The answers do not come from Inspect's mock model, because that downloads a file to count tokens.
    """
    from inspect_ai import Task, eval_async
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput
    from inspect_ai.solver import solver

    @solver
    def constant() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            state.output = ModelOutput.from_content("constant", "It is 4.")
            return state

        return solve

    dataset = [Sample(input=question, target=target) for question, target in SAMPLES.items()]
    task = Task(dataset=dataset, solver=constant(), scorer=list(scorers))
    (log,) = await eval_async(task, model="none/none", log_dir=str(folder), log_format="json")
    return log


@pytest.mark.slow
async def test_an_evaluation_is_scored(inspect: ModuleType, serve: Serve, tmp_path: Path) -> None:
    with serve("It adds up. <score>9</score>") as served:
        log = await evaluated(inspect.judge_score(url=served.url, tools="off"), folder=tmp_path)
    assert log.status == "success"
    assert log.results.scores[0].metrics["mean"].value == pytest.approx(8 / 9)
    score = log.samples[0].scores["judge_score"]
    assert score.answer == "It is 4."
    assert "It adds up." in score.explanation
    assert score.metadata["judgment"].startswith("jdg_")
    assert score.metadata["verdict"]["status"] == "decided"
    assert any("What is 2 + 2?" in prompt and "four" in prompt for prompt in served.prompts)


async def test_programs_and_their_outputs_are_in_the_explanation(
    inspect: ModuleType, serve: Serve, tmp_path: Path
) -> None:
    texts = ["```python\nprint(6 * 7)\n```\n```output", "<score>9</score>"] * len(SAMPLES)
    with serve(lambda sequence: texts["42" in sequence], sandbox="real") as served:
        log = await evaluated(inspect.judge_score(url=served.url), folder=tmp_path)
    explanation = log.samples[0].scores["judge_score"].explanation
    assert "print(6 * 7)" in explanation
    assert "ok:\n42" in explanation


async def test_preference_over_target_is_one_half_if_the_orders_disagree(
    inspect: ModuleType, serve: Serve, tmp_path: Path
) -> None:
    with serve("<preference>A</preference>", label_probs={"A": 0.8, "B": 0.2}) as served:
        log = await evaluated(inspect.preference_over_target(url=served.url, tools="off"), folder=tmp_path)
    assert log.results.scores[0].metrics["mean"].value == 0.5


async def test_abstentions_are_unscored(inspect: ModuleType, serve: Serve, tmp_path: Path) -> None:
    with serve("<score>9</score>", sandbox="real") as served:
        log = await evaluated(inspect.judge_score(url=served.url, tools="on"), folder=tmp_path)
    assert log.status == "success"
    score = log.samples[0].scores["judge_score"]
    assert math.isnan(score.value)
    assert score.reason == "grader_failed"
    assert "no_program_ran" in score.explanation


async def test_a_server_that_is_down_leaves_samples_unscored(inspect: ModuleType, nowhere: str, tmp_path: Path) -> None:
    log = await evaluated(inspect.judge_score(url=nowhere, deadline_s=0.2), folder=tmp_path)
    assert log.status == "success"
    assert log.samples[0].scores["judge_score"].reason == "scoring_failed"


async def test_an_api_key_file_is_not_logged(inspect: ModuleType, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("tj-secret\n")
    with serve("<score>9</score>") as served:
        scorer = inspect.judge_score(url=served.url, tools="off", api_key_file=str(tmp_path / "key"))
        await evaluated(scorer, folder=tmp_path / "logs")
    (written,) = (tmp_path / "logs").glob("*.json")
    assert "tj-secret" not in written.read_text()
