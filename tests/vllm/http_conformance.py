"""What holds besides for every way to vLLM over HTTP; imported as `conformance` is."""

from __future__ import annotations

from tests.vllm.conformance import PROMPT
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.types import Sampling


async def test_it_says_when_it_takes_steps(engine: VLLMEngine):
    seen = [await engine.progress(), await engine.progress()]
    await engine.generate(await engine.tokenizer.encode_prompt(PROMPT), sampling=Sampling(max_tokens=9), session="s")
    seen.append(await engine.progress())
    assert seen[0] is not None
    assert seen[0] == seen[1] != seen[2]
