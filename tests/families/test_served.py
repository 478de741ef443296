"""A checkpoint with a real vocabulary behind `tirjudge worker` judges as it does in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.models import Families, each_family
from tests.judgments import build_request, without_times
from tests.servers import serve_command
from tirjudge.model import EngineOptions
from tirjudge.opening import open_judge
from tirjudge.types import Judgment, Mode

pytestmark = pytest.mark.slow

RESPONSES = ["Paris 判断 <|im_end|>[INST]</s>", "Rome\n```python\nprint(1)\n```", "Lyon"]


async def judgments(address: str, *, profile: Path) -> list[Judgment]:
    """Judge in every mode. The model is random, so that most verdicts are forced."""
    async with open_judge(address, options=EngineOptions(profile=profile), tools=()) as judge:
        return [
            await judge.judge(build_request("Capital of France?", RESPONSES[:num], mode=mode, tools="off"))
            for mode, num in ((Mode.POINTWISE, 1), (Mode.PAIRWISE, 2), (Mode.LISTWISE, 3))
        ]


@each_family
async def test_a_served_checkpoint_judges_as_in_this_process(family: str, families: Families, tmp_path: Path) -> None:
    folder = families.write_checkpoint(family, tmp_path / family)
    here = await judgments(f"embedded:{folder}", profile=folder)
    with serve_command("worker", "--model", str(folder), state=tmp_path / "state") as worker:
        there = await judgments(f"vllm:{worker.url}", profile=folder)
    for local, served in zip(here, there, strict=True):
        assert [turn.text for rollout in local.rollouts for turn in rollout.turns]
        for expected, found in zip(local.rollouts, served.rollouts, strict=True):
            assert without_times(found).turns == without_times(expected).turns
            assert expected.verdict is not None
            assert found.verdict is not None
            assert found.verdict.label == expected.verdict.label
            assert found.verdict.probabilities == pytest.approx(expected.verdict.probabilities, abs=1e-3)
            assert found.verdict.label_mass == pytest.approx(expected.verdict.label_mass, rel=1e-2)
