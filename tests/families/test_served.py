"""A checkpoint with a real vocabulary behind a worker judges as it does in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.families.models import Families, each_family
from tests.judgments import build_request, without_times
from tests.servers import serve_async, serve_command
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions
from tirjudge.opening import open_judge
from tirjudge.types import Judgment, Mode
from tirjudge_server.worker import create_worker

pytestmark = pytest.mark.slow

RESPONSES = ["Paris 判断 <|im_end|>[INST]</s>", "Rome\n```python\nprint(1)\n```", "Lyon"]


COMMAND_FAMILY = "qwen3"
"""Family whose checkpoint the command serves. For the others, a worker in this process serves the loaded model, because a
further process would load the vocabulary again."""


async def judgments(judge: Judge) -> list[Judgment]:
    """Judge in every mode. The model is random, so that most verdicts are forced."""
    return [
        await judge.judge(build_request("Capital of France?", RESPONSES[:num], mode=mode, tools="off"))
        for mode, num in ((Mode.POINTWISE, 1), (Mode.PAIRWISE, 2), (Mode.LISTWISE, 3))
    ]


@asynccontextmanager
async def serve(loaded: EmbeddedEngine, *, family: str, folder: Path, state: Path) -> AsyncIterator[str]:
    """Serve a checkpoint, whose engine is loaded, with an empty cache; yield the URL."""
    if family == COMMAND_FAMILY:
        with serve_command("worker", "--model", str(folder), state=state) as worker:
            yield worker.url
        return
    engine = EmbeddedEngine(loaded.model, tokenizer=loaded.tokenizer, eos_token_ids=loaded.eos_token_ids)
    try:
        async with serve_async(create_worker(engine, name=family)) as url:
            yield url
    finally:
        engine.close()


@each_family
async def test_a_served_checkpoint_judges_as_in_this_process(family: str, families: Families, tmp_path: Path) -> None:
    folder = families.write_checkpoint(family, tmp_path / family)
    options = EngineOptions(profile=folder)
    async with open_judge(f"embedded:{folder}", options=options, tools=()) as judge:
        here = await judgments(judge)
        loaded = judge.engine
        assert isinstance(loaded, EmbeddedEngine)
        async with (
            serve(loaded, family=family, folder=folder, state=tmp_path / "state") as url,
            open_judge(f"vllm:{url}", options=options, tools=()) as remote,
        ):
            there = await judgments(remote)
    for local, served in zip(here, there, strict=True):
        assert [turn.text for rollout in local.rollouts for turn in rollout.turns]
        for expected, found in zip(local.rollouts, served.rollouts, strict=True):
            assert without_times(found).turns == without_times(expected).turns
            assert expected.verdict is not None
            assert found.verdict is not None
            assert found.verdict.label == expected.verdict.label
            assert found.verdict.probabilities == pytest.approx(expected.verdict.probabilities, abs=1e-3)
            assert found.verdict.label_mass == pytest.approx(expected.verdict.label_mass, rel=1e-2)
