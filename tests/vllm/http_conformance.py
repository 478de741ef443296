"""Additional tests for engines that use vLLM over HTTP. Test modules import them, as they import `conformance`."""

from __future__ import annotations

from tests.vllm.conformance import PROMPT
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.types import Sampling


async def test_progress_changes_only_when_the_engine_takes_steps(engine: VLLMEngine):
    progress = [await engine.progress(), await engine.progress()]
    await engine.generate(await engine.tokenizer.encode_prompt(PROMPT), sampling=Sampling(max_tokens=9), session="s")
    progress.append(await engine.progress())
    assert progress[0] is not None
    assert progress[0] == progress[1] != progress[2]
