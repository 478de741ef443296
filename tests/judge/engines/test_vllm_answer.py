"""Ids and text of a completion are made equal after vLLM cut the text at a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tirjudge.engines.vllm_answer import Reader, VLLMAnswer

TOKENS = ("`", "``", "```", "````", "`\n", "\n`", "a`", "`a", "a", "\n")
STOPS = ("```", "`a`", "\n``", "a\na")


class Texts:
    """Tokenizer whose ids are indexes into `TOKENS`. Encoding uses only single characters."""

    async def encode(self, text: str) -> list[int]:
        return [TOKENS.index(character) for character in text]

    async def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(TOKENS[i] for i in token_ids)


class CountedTexts(Texts):
    def __init__(self) -> None:
        self.num_decoded = 0

    async def decode(self, token_ids: Sequence[int]) -> str:
        self.num_decoded += 1
        return await super().decode(token_ids)


async def test_ids_that_differ_early_from_the_text_need_few_decode_requests() -> None:
    texts = CountedTexts()
    answer = VLLMAnswer(
        text="\n" + "a" * 10_000 + "```",
        token_ids=[TOKENS.index("a")] * 10_000 + [TOKENS.index("````")],
        logprobs=(),
        finish_reason="stop",
        stop_reason="```",
    )
    completion = await Reader(texts, source="here").read(answer)
    assert await Texts().decode(completion.token_ids) == answer.text
    assert texts.num_decoded < 40


@pytest.mark.slow
@given(
    ids=st.lists(st.integers(0, len(TOKENS) - 1), min_size=1, max_size=12),
    stop=st.sampled_from(STOPS),
    has_logprobs=st.booleans(),
    num_more=st.integers(0, 2),
)
async def test_ids_decode_to_the_text_up_to_the_stop_string(ids, stop, has_logprobs, num_more) -> None:
    """The cases include speculative decoding, which may generate more tokens in the step that ends the turn."""
    texts = list(accumulate(TOKENS[i] for i in ids))
    num_sampled = next((n for n, text in enumerate(texts, start=1) if stop in text), None)
    assume(num_sampled is not None)
    num_sampled = min(num_sampled + num_more, len(ids))
    ids, whole = ids[:num_sampled], texts[num_sampled - 1]
    answer = VLLMAnswer(
        text=whole[: whole.index(stop) + len(stop)],
        token_ids=ids,
        logprobs=[-0.5] * len(ids) if has_logprobs else (),
        finish_reason="stop",
        stop_reason=stop,
    )
    completion = await Reader(Texts(), source="here").read(answer)
    num_kept = len(completion.token_ids) - completion.num_appended
    assert await Texts().decode(completion.token_ids) == completion.text == answer.text
    assert list(completion.token_ids[:num_kept]) == ids[:num_kept]
    assert (completion.num_appended > 0 or num_kept < len(ids)) == (whole != answer.text)
    assert completion.logprobs == ((-0.5,) * num_kept + (0.0,) * completion.num_appended if has_logprobs else ())
