"""A scalar reward model in real vLLM on a CPU. The same model in transformers gives the expected scores."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from tests.clients.wheels import wheel
from tests.families.models import Families, families
from tests.reward_models import ASKED, MAX_TOKENS, write_reward_model
from tests.reward_servers import Classifier
from tests.vllm.server import VLLMServer, vllm_server
from tirjudge.engines.checkpoint import read_safetensors
from tirjudge.engines.scalar import conversation
from tirjudge.errors import CheckpointError, PromptTooLong
from tirjudge.judge import Judge
from tirjudge.opening import open_judge
from tirjudge.types import JudgeRequest, Mode

__all__ = ["families", "wheel"]

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

CLOSE = 1e-3
"""Maximum difference of scores between two implementations in fp32."""


@pytest.fixture(scope="module")
def folder(families: Families, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reward_model(families, tmp_path_factory.mktemp("reward") / "tiny")


@pytest.fixture(scope="module")
def reward_server(python: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMServer]:
    log = tmp_path_factory.mktemp("vllm") / "log"
    with vllm_server(python, model=folder, log=log, options=["--runner", "pooling"], generates=False) as server:
        yield server


async def scores_of(judge: Judge) -> list[list[float]]:
    requests = [
        JudgeRequest(
            mode=Mode.LISTWISE, prompt=prompt if isinstance(prompt, str) else list(prompt), responses=responses
        )
        for prompt, responses in ASKED
    ]
    judgments = await asyncio.gather(*map(judge.judge, requests))
    return [judgment.raw_scores or [] for judgment in judgments]


async def test_vllm_and_transformers_give_the_same_scores(reward_server: VLLMServer, folder: Path) -> None:
    async with open_judge(f"classify:{reward_server.url}", tools=[]) as judge:
        remote = await scores_of(judge)
        assert (judge.profile.name, judge.profile.context_tokens) == ("judge", MAX_TOKENS)
    async with open_judge(f"sequence:{folder}", tools=[]) as judge:
        local = await scores_of(judge)
    for ours, theirs in zip(remote, local, strict=True):
        assert ours == pytest.approx(theirs, abs=CLOSE)
        for first, second in combinations(range(len(ours)), 2):
            if abs(theirs[first] - theirs[second]) > CLOSE:
                assert (ours[first] > ours[second]) == (theirs[first] > theirs[second])
    classifier = Classifier(folder)
    prompt, responses = ASKED[0]
    direct = [classifier.score(conversation(prompt, response)) for response in responses]
    assert remote[0] == pytest.approx(direct, abs=CLOSE)


async def test_a_text_beyond_the_context_is_an_error(reward_server: VLLMServer) -> None:
    async with open_judge(f"classify:{reward_server.url}", tools=[]) as judge:
        with pytest.raises(PromptTooLong):
            await judge.engine.score("Hi", "word " * MAX_TOKENS)


async def test_unknown_names_and_text_generators_are_refused(reward_server: VLLMServer, server: VLLMServer) -> None:
    async def refused(address: str) -> str:
        with pytest.raises(CheckpointError) as caught:
            async with open_judge(address, tools=[]):
                raise AssertionError
        return str(caught.value)

    assert "serves judge, not the requested 'other'" in await refused(f"classify:{reward_server.url}#other")
    assert "--runner pooling" in await refused(f"classify:{server.url}")


async def test_the_score_of_the_last_token_counts(python: Path, folder: Path, tmp_path: Path) -> None:
    """`/pooling` with the outputs of each token."""
    options = ["--runner", "pooling", "--pooler-config", '{"task": "token_classify"}']
    async with open_judge(f"sequence:{folder}", tools=[]) as judge:
        expected = await judge.engine.score(*_first())
    with vllm_server(python, model=folder, log=tmp_path / "log", options=options, generates=False) as tokens:
        async with open_judge(f"classify:{tokens.url}", tools=[]) as judge:
            found = await judge.engine.score(*_first())
    assert found.value == pytest.approx(expected.value, abs=CLOSE)
    assert found.num_tokens == expected.num_tokens


async def test_an_embedding_model_is_refused(python: Path, folder: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(folder, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    changed = {"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": True}
    (model / "config.json").write_text(json.dumps(config | changed))
    weights = read_safetensors(model / "model.safetensors")
    del weights["score.weight"]
    save_file(dict(weights), model / "model.safetensors")
    options = ["--runner", "pooling", "--convert", "embed"]
    with (
        vllm_server(python, model=model, log=tmp_path / "log", options=options, generates=False) as embeddings,
        pytest.raises(CheckpointError, match="numbers per text"),
    ):
        async with open_judge(f"classify:{embeddings.url}", tools=[]):
            raise AssertionError


def _first() -> tuple[Any, str]:
    prompt, responses = ASKED[0]
    return prompt, responses[0]
