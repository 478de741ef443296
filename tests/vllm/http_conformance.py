"""Additional tests for engines that use vLLM over HTTP. Test modules import them, as they import `conformance`."""

from __future__ import annotations

import pytest

from tests.vllm.conformance import PROMPT
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.errors import TemplateFailed
from tirjudge.prompt_messages import PromptMessage
from tirjudge.types import Sampling

REFUSES_REPEATED_ROLES = (
    "{% for m in messages[1:] %}{% if m['role'] == messages[loop.index0]['role'] %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}"
)
"""Start of the chat template of the tested servers. It refuses two messages of one role in a row, as many templates do."""


def conversation(*roles: str) -> list[PromptMessage]:
    return [PromptMessage(role=role, content="Hi") for role in roles]


async def test_a_refused_conversation_is_no_failure_of_the_server(engine: VLLMEngine):
    with pytest.raises(TemplateFailed, match="Conversation roles must alternate"):
        await engine.tokenizer.encode_prompt(conversation("user", "user"))
    assert await engine.tokenizer.encode_prompt(conversation("user", "response_1"))


async def test_progress_changes_only_when_the_engine_takes_steps(engine: VLLMEngine):
    progress = [await engine.progress(), await engine.progress()]
    await engine.generate(await engine.tokenizer.encode_prompt(PROMPT), sampling=Sampling(max_tokens=9), session="s")
    progress.append(await engine.progress())
    assert progress[0] is not None
    assert progress[0] == progress[1] != progress[2]
