"""Real vLLM on a CPU with a model of Qwen3's shape, vocabulary and chat template. A script decides what it writes."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.wheels import wheel
from tests.families.models import Families, families
from tests.vllm.server import VLLMServer, vllm_server
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions
from tirjudge.opening import open_judge
from tirjudge.types import JudgeRequest, Mode, Rollout, Sampling, StopReason

__all__ = ["families", "wheel"]

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

SHAPE = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
"""Sizes of Qwen3-0.6B, with 2 of its 28 layers."""

PROGRAM = "Let me count.\n```python\nprint(len(response_a), len(response_b))\n```\n```output"
VERDICT = "B is longer.\n<preference>B</preference>"
REQUEST = JudgeRequest(mode=Mode.PAIRWISE, prompt="Which is longer?", responses=["four", "<|im_end|> and more"])


@dataclass(frozen=True, kw_only=True)
class Rig:
    """A served model, its tokenizer, and the file with what it writes."""

    server: VLLMServer
    encode: Callable[[str], list[int]]
    script: Path

    def write(self, *turns: str) -> list[list[int]]:
        """Make the model write these turns. Return their ids."""
        ids = [self.encode(turn) for turn in turns]
        self.script.write_text(json.dumps(ids))
        return ids

    @asynccontextmanager
    async def judge(self, **options: Any) -> AsyncIterator[Judge]:
        """Open the model as a judge with a real sandbox."""
        async with open_judge(f"vllm:{self.server.url}", options=EngineOptions(**options)) as judge:
            yield judge


@pytest.fixture(scope="module")
def rig(python: Path, families: Families, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("qwen")
    model = Path(shutil.copytree(families.folder("qwen3"), folder / "model"))
    config = json.loads((model / "config.json").read_text()) | SHAPE | {"torch_dtype": "float32"}
    (model / "config.json").write_text(json.dumps(config))
    script = folder / "script.json"
    script.write_text("[]")
    os.environ["TIRJUDGE_TEST_SCRIPT"] = str(script)
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    options = ["--load-format", "dummy", "--max-model-len", "4096", "--logits-processors", "forcing:ForcedTurns"]
    try:
        with vllm_server(python, model=model, log=folder / "log", options=options) as server:
            yield Rig(server=server, encode=families.tokenizer("qwen3").encode_now, script=script)
    finally:
        del os.environ["TIRJUDGE_TEST_SCRIPT"], os.environ["PYTHONPATH"]


async def roll(judge: Judge, **changes: Any) -> Rollout:
    request = REQUEST.model_copy(update=changes)
    return await judge.rollout(request, order=(0, 1), session="s")


async def test_the_loop_runs_programs_and_keeps_the_ids_of_the_model(rig: Rig) -> None:
    ids = rig.write(PROGRAM, VERDICT)
    async with rig.judge() as judge:
        rollout = await roll(judge)
    assert rollout.stop_reason is StopReason.VERDICT
    assert rollout.label == "B"
    assert [list(turn.completion.token_ids) for turn in rollout.turns] == ids
    assert [turn.output for turn in rollout.turns] == ["4 19", None]
    assert rollout.label_logprobs.keys() == {"A", "B"}


async def test_thinking_is_off_unless_it_is_requested(rig: Rig) -> None:
    rig.write(VERDICT)
    end = rig.encode("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    async with rig.judge() as judge:
        assert judge.profile.chat_template_kwargs == {"enable_thinking": False}
        assert list((await roll(judge)).prompt_ids[-len(end) :]) == end
        judgment = await judge.judge(REQUEST)
    assert judgment.chat_template_kwargs == {"enable_thinking": False}


async def test_a_response_cannot_write_control_tokens(rig: Rig) -> None:
    rig.write(VERDICT)
    async with rig.judge() as judge:
        prompt_ids = (await roll(judge)).prompt_ids
    assert prompt_ids.count(rig.encode("<|im_end|>")[0]) == 1


async def test_a_model_without_a_verdict_is_forced(rig: Rig) -> None:
    rig.write("I cannot say.<|im_end|>")
    async with rig.judge() as judge:
        rollout = await roll(judge)
    assert rollout.forced
    assert rollout.forced_ids == tuple(rig.encode(f"\n<preference>{rollout.label}</preference>"))


async def test_with_thinking_on_nothing_in_a_thought_counts(rig: Rig) -> None:
    thought = f"\nMaybe\n{PROGRAM}\nso <preference>A</preference>.\n</think>"
    ids = rig.write("<think>", thought, f"\n\n{VERDICT}")
    async with rig.judge(chat_template_kwargs={"enable_thinking": True}) as judge:
        rollout = await roll(judge)
    assert rollout.label == "B"
    assert [turn.is_thought for turn in rollout.turns] == [True, True, False]
    assert rollout.num_programs == 0
    assert [list(turn.completion.token_ids) for turn in rollout.turns] == ids


async def test_labels_are_read_where_the_model_writes_them(rig: Rig) -> None:
    """The probability of `A` is P(`>A`) + P(`>`) P(`A`), each read from the server as one token."""
    (end,), (joined,), (alone,) = rig.encode(">"), rig.encode(">A"), rig.encode("A")
    async with rig.judge() as judge:
        engine = judge.engine
        prefix = rig.encode("So\n<preference")

        async def probability(ids: list[int], token_id: int) -> float:
            sampling = Sampling(max_tokens=1, allowed_token_ids=(token_id,), logprob_token_ids=(token_id,))
            completion = await engine.generate(ids, sampling=sampling, session="s")
            return math.exp(completion.token_logprobs[token_id])

        read = await engine.read_labels(prefix, labels=("A", "B"), opening=">", closing="</", session="s")
        first = await probability(prefix, joined)
        second = await probability(prefix, end) * await probability([*prefix, end], alone)
    assert read is not None
    assert read["A"] == pytest.approx(math.log(first + second), abs=1e-3)
